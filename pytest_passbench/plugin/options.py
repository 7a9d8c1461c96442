"""The command line and ini options, and the one frozen Settings that they make.

Every option is ``--passbench-NAME`` with the ini twin ``passbench_NAME``; the command line wins. Values are
checked here, once: what is out of range or unknown ends the run with pytest's usage error (exit code 4).
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_passbench.core.settings import ScoreSettings, Settings

METRICS = ("AS", "correct", "gmean", "fast1")


def _wrong(message: str) -> argparse.ArgumentTypeError:
    return argparse.ArgumentTypeError(message)


def tolerance(text: str) -> int:
    """An integer t from -10 to 0."""
    if not re.fullmatch(r"-?\d+", text) or not -10 <= int(text) <= 0:
        raise _wrong(f"{text!r} is not an integer from -10 to 0")
    return int(text)


def count(text: str) -> int:
    """A positive integer."""
    if not text.isdigit() or int(text) < 1:
        raise _wrong(f"{text!r} is not an integer of 1 or more")
    return int(text)


def seconds(text: str) -> float:
    """A positive, finite number of seconds."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise _wrong(f"{text!r} is not a positive number of seconds")
    return value


def duration(text: str) -> float:
    """Seconds, from a number of them, or of minutes ("10m") or hours ("1.5h")."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    try:
        return seconds(text[:-1]) * unit if unit else seconds(text)
    except argparse.ArgumentTypeError:
        raise _wrong(f"{text!r} is no length of time: write seconds, minutes or hours, as 90, 10m or 1h") from None


def failure_value(text: str) -> float:
    """b: what a failure counts, above 0 and below 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise _wrong(f"{text!r} is not a number between 0 and 1")
    return value


def exponent(text: str) -> float:
    """p: the extra power of slowdowns, 0 or more."""
    value = _number(text)
    if not 0 <= value < math.inf:
        raise _wrong(f"{text!r} is not a number of 0 or more")
    return value


def device(text: str) -> str:
    """``cpu``, ``cuda`` or ``cuda:N``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise _wrong(f"{text!r} is not one of cpu, cuda, cuda:N")
    return text


def shard(text: str) -> tuple[int, int]:
    """``i/N``: the i-th of N parts of the tasks, counted from 1."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise _wrong(f"{text!r} is not i/N with 1 <= i <= N")
    return int(match[1]), int(match[2])


def gates(text: str) -> tuple[tuple[str, float], ...]:
    """``NAME=VALUE``, several separated by commas."""
    return tuple(_gate(part.strip()) for part in text.split(","))


def _gate(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    known = {metric.lower(): metric for metric in METRICS}
    if not equals or name.strip().lower() not in known:
        raise _wrong(f"{text!r} is not NAME=VALUE with NAME one of {', '.join(METRICS)}")
    number = _number(value)
    if not 0 <= number < math.inf:
        raise _wrong(f"{value!r} in {text!r} is not a number of 0 or more")
    return known[name.strip().lower()], number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise _wrong(f"{text!r} is not a number") from None


def one_of(*names: str) -> Callable[[str], str]:
    """One of ``names``."""

    def check(text: str) -> str:
        if text not in names:
            raise _wrong(f"{text!r} is not one of {', '.join(names)}")
        return text

    return check


@dataclass(frozen=True)
class Option:
    """One option; ``field`` is its name in Settings (or ScoreSettings), ``many`` says it may be repeated."""

    name: str
    type: Callable[[str], Any]
    help: str
    metavar: str
    field: str = ""
    many: bool = False
    short: str = ""

    @property
    def key(self) -> str:
        """Its field of Settings."""
        return self.field or self.name.replace("-", "_")

    @property
    def dest(self) -> str:
        """Its name in the ini file and in pytest's namespace."""
        return "passbench_" + self.name.replace("-", "_")


SUITES = ("lite", "full", "train", "all")

OPTIONS = (
    Option("candidate", Path, "folder of passes to judge; may be repeated", "DIR", "candidates", True,
           "--candidate"),
    Option("tasks", Path, "task file, published sample, or a folder of either, in place of the installed "
           "tasks; may be repeated", "PATH", many=True),
    Option("suite", one_of(*SUITES), "which tasks: lite, full, train or all (default: lite of the installed "
           "tasks, all of given ones)", "NAME"),
    Option("tolerance", tolerance, "t at which outputs must agree with eager, -10 to 0 (default: -5)", "T"),
    Option("device", device, "cpu, cuda or cuda:N (default: cpu)", "DEVICE"),
    Option("pipeline", one_of("dynamo", "direct", "inductor"), "how passes are applied: dynamo, direct or "
           "inductor (default: dynamo)", "NAME"),
    Option("policy", one_of("kernels", "open"), "what replacements may call: kernels (of torch, allocation "
           "only) or open (default: kernels)", "NAME"),
    Option("audit", one_of("off", "standard", "paranoid"), "off, standard or paranoid (default: standard)",
           "LEVEL"),
    Option("sandbox", one_of("auto", "required"), "required: do not run without bubblewrap (default: auto)",
           "NAME"),
    Option("baseline", one_of("inductor"), "also judge inductor beside the candidate; may be repeated",
           "NAME", "baselines", True),
    Option("threads", count, "threads of every arm (default: 1)", "N"),
    Option("timeout", seconds, "seconds that each step of a subgraph may take: reading, a build, a block "
           "(default: 120)", "SECONDS"),
    Option("budget", duration, "how long the run may take, as 90, 10m or 1h: less time, wider intervals "
           "(default: as long as it takes to decide)", "TIME"),
    Option("report-dir", Path, "folder for the run's results (default: reports)", "DIR"),
    Option("fail-under", gates, "exit with 1 where AS, correct, gmean or fast1 is lower: AS=0.9,correct=0.8; "
           "may be repeated", "GATES", many=True),
    Option("shard", shard, "judge only the i-th of N parts of the tasks", "i/N"),
    Option("seed", str, "the run's secret seed, to repeat a run (default: drawn)", "HEX"),
    Option("b", failure_value, "what a failure counts in the scores (default: 0.1)", "B"),
    Option("p", exponent, "extra power of slowdowns in the scores (default: 0)", "P"),
    Option("interpretation", one_of("default", "mismatch_extended"), "from which t failures are tolerated: "
           "default or mismatch_extended", "NAME"),
)  # fmt: skip

FLAGS = {
    "passbench": "judge compiler passes: collect tasks, and only those where no path is given",
    "passbench_trusted": "run the candidate in this process, for --pdb; nothing is scored",
    "passbench_durations": "show where the run's time went, by phase",
}


def add(parser: pytest.Parser) -> None:
    """Add every option and its ini twin, in one group."""
    group = parser.getgroup("passbench", "judging compiler passes (pytest-passbench)")
    for name, text in FLAGS.items():
        dashed = "--" + name.replace("_", "-")
        group.addoption(dashed, dest=name, action="store_true", default=None, help=text)
        parser.addini(name, text, type="bool", default=False)
    for option in OPTIONS:
        names = [option.short] if option.short else []
        form: Literal["linelist", "string"] = "linelist" if option.many else "string"
        group.addoption(*names, f"--passbench-{option.name}", dest=option.dest, type=option.type,
                        action="append" if option.many else "store", default=None,
                        metavar=option.metavar, help=option.help)  # fmt: skip
        parser.addini(option.dest, option.help, type=form, default=None)


def flag(config: pytest.Config, name: str, namespace: argparse.Namespace | None = None) -> bool:
    """Whether a flag is set, on the command line or in the ini file.

    ``namespace``: the command line, as far as it is known, where pytest has not taken it over yet.
    """
    given = getattr(namespace or config.option, name)
    return bool(config.getini(name) if given is None else given)


def enabled(config: pytest.Config, namespace: argparse.Namespace | None = None) -> bool:
    """Whether this pytest run judges passes."""
    return flag(config, "passbench", namespace)


def candidates(config: pytest.Config, namespace: argparse.Namespace | None = None) -> tuple[Path, ...]:
    """The candidate folders given, absolute, in order, each once."""
    option = next(option for option in OPTIONS if option.key == "candidates")
    paths = _value(config, option, namespace or config.option) or ()
    return tuple(dict.fromkeys(path.resolve() for path in paths))


def settings(config: pytest.Config, *, paths: bool) -> Settings:
    """The run's settings. ``paths``: the command line names what to run, so the suite defaults to all of it.

    Raises pytest.UsageError for a value in the ini file that is out of range or unknown.
    """
    values = {option.key: _value(config, option, config.option) for option in OPTIONS}
    values = {key: value for key, value in values.items() if value is not None}
    values["candidates"] = candidates(config)
    values["fail_under"] = tuple(gate for group in values.get("fail_under", ()) for gate in group)
    values.setdefault("suite", "all" if paths or values.get("tasks") else "lite")
    scores = {f.name: values.pop(f.name) for f in fields(ScoreSettings) if f.name in values}
    trusted = flag(config, "passbench_trusted")
    if trusted and values["fail_under"]:
        raise pytest.UsageError("--passbench-fail-under needs scores, and --passbench-trusted makes none")
    return Settings(**values, trusted=trusted, score=ScoreSettings(**scores))


def _value(config: pytest.Config, option: Option, namespace: argparse.Namespace) -> Any:
    given, base = getattr(namespace, option.dest), config.invocation_params.dir
    if given is None:
        given, base = _from_ini(config, option), (config.inipath or config.rootpath).parent
    if given is not None and option.type is Path:
        given = [base / path for path in given] if option.many else base / given
    return tuple(given) if isinstance(given, list) else given


def _from_ini(config: pytest.Config, option: Option) -> Any:
    text = config.getini(option.dest)
    if not text:
        return None
    try:
        return [option.type(line) for line in text] if option.many else option.type(text)
    except argparse.ArgumentTypeError as error:
        raise pytest.UsageError(f"{config.inipath}: {option.dest}: {error}") from None
