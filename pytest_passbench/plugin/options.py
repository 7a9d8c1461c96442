"""The options as pytest has them, and the one frozen Settings that they make.

An option is ``--passbench-NAME`` with the ini twin ``passbench_NAME``; the command line wins. Some exist in the ini
file alone. A value that is out of range or unknown ends the run with pytest's usage error (exit code 4).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from pytest_passbench.core.escape import line
from pytest_passbench.core.options import OPTIONS, Option, as_settings
from pytest_passbench.core.settings import Settings

FLAGS = {
    "passbench": "judge compiler passes: collect tasks, and only those if no path is given",
    "passbench_trusted": "run the candidate in this process, for --pdb; nothing is scored",
    "passbench_only_matching": "judge only the tasks that a pass of the candidate matches; no score has the others",
}
BY_KEY = {option.key: option for option in OPTIONS}


def add(parser: pytest.Parser) -> None:
    """Add every option, in one group, and every ini setting."""
    group = parser.getgroup("passbench", "judging compiler passes (pytest-passbench)")
    for name, text in FLAGS.items():
        dashed = "--" + name.replace("_", "-")
        group.addoption(dashed, dest=name, action="store_true", default=None, help=text)
        parser.addini(name, text, type="bool", default=False)
    for option in OPTIONS:
        form: Literal["linelist", "string"] = "linelist" if option.many else "string"
        parser.addini(option.dest, option.text, type=form, default=None)
        if option.ini_only:
            continue
        names = [option.short] if option.short else []
        alone = {"nargs": "?", "const": option.alone} if option.alone else {}
        group.addoption(*names, f"--passbench-{option.name}", dest=option.dest, type=option.type,
                        action="append" if option.many else "store", default=None,
                        metavar=option.metavar, help=option.help, **alone)  # fmt: skip


def check_names(args: Sequence[str]) -> None:
    """Raise UsageError for an argument ``--passbench-...`` that is no option, with the nearest one."""
    options = {"--" + name.replace("_", "-") for name in FLAGS}
    options |= {f"--passbench-{option.name}" for option in OPTIONS if not option.ini_only}
    settings = {f"--passbench-{option.name}": f"-o {option.dest}=VALUE" for option in OPTIONS if option.ini_only}
    arguments = list(args[: args.index("--")] if "--" in args else args)
    for name in (argument.partition("=")[0] for argument in arguments):
        if name.startswith("--passbench-") and name not in options:
            from pytest_passbench.suite.find import did_you_mean

            if name in settings:
                remedy = f"write it there, or {settings[name]}"
                raise pytest.UsageError(f"{name}: is a setting of the ini file, not an option ({remedy})")
            proposal = did_you_mean(name, {*options, *settings}, lambda near: settings.get(near, near))
            remedy = f"{proposal}'pytest --help' shows them all"
            raise pytest.UsageError(f"{line(name)}: there is no such option ({remedy})")


def flag(config: pytest.Config, name: str, namespace: argparse.Namespace | None = None) -> bool:
    """Return True if a flag is set, on the command line or in the ini file.

    ``namespace``: the command line as parsed so far, if pytest has not taken it over yet.
    """
    value = getattr(namespace or config.option, name)
    return bool(config.getini(name) if value is None else value)


def enabled(config: pytest.Config, namespace: argparse.Namespace | None = None) -> bool:
    """Return True if this pytest run judges passes."""
    return flag(config, "passbench", namespace)


def check_unused(config: pytest.Config) -> None:
    """Raise UsageError for an option that asks for a judgement in a run without ``--passbench``."""
    for key in ("candidates", "fail_under", "against", "compare"):
        option = BY_KEY[key]
        if getattr(config.option, option.dest) is not None:
            spelling = option.short or f"--passbench-{option.name}"
            raise pytest.UsageError(f"{spelling} judges nothing without --passbench: add it, or leave {spelling} out")


def folders(config: pytest.Config, namespace: argparse.Namespace | None = None) -> tuple[Path, ...]:
    """Return the folders from which pytest must import nothing, absolute: the candidates' and the reference's."""
    candidates, reference = (
        _value(config, BY_KEY[key], namespace or config.option) for key in ("candidates", "against")
    )
    return tuple(path.resolve() for path in (*(candidates or ()), *([reference] if reference is not None else ())))


def report_dir(config: pytest.Config, namespace: argparse.Namespace) -> Path:
    """Return the folder of runs, absolute."""
    path: Path | None = _value(config, BY_KEY["report_dir"], namespace)
    return config.invocation_params.dir / Settings.report_dir if path is None else path


def settings(config: pytest.Config, *, paths: bool) -> Settings:
    """Return the run's settings. ``paths``: the command line names what to run, so the suite defaults to all of it.

    Raises pytest.UsageError for a value in the ini file that is out of range or unknown.
    """
    values = {option.key: _value(config, option, config.option) for option in OPTIONS}
    if paths and values["suite"] is None:
        values["suite"] = "all"
    if values["max_regression"] is not None:
        values["max_regression"], values["compare_strict"] = values["max_regression"]
    flags = {name: flag(config, f"passbench_{name}") for name in ("trusted", "only_matching")}
    run_settings = as_settings({**values, **flags})
    compares = run_settings.compare is not None
    if run_settings.trusted and run_settings.fail_under:
        raise pytest.UsageError("--passbench-fail-under needs scores, and --passbench-trusted makes none")
    if run_settings.trusted and compares:
        raise pytest.UsageError("--passbench-compare needs speeds, and --passbench-trusted measures none")
    if config.option.passbench_max_regression is not None and not compares and run_settings.against is None:
        remedy = "add --passbench-compare=FILE, or --passbench-against=DIR"
        raise pytest.UsageError(f"--passbench-max-regression needs something to compare with: {remedy}")
    return run_settings


def _value(config: pytest.Config, option: Option, namespace: argparse.Namespace) -> Any:
    value, base = getattr(namespace, option.dest, None), config.invocation_params.dir
    if value is None:
        value, base = _from_ini(config, option), (config.inipath or config.rootpath).parent
    if value is not None and option.type is Path:
        value = [base / path for path in value] if option.many else base / value
    return tuple(value) if isinstance(value, list) else value


def _from_ini(config: pytest.Config, option: Option) -> Any:
    text = config.getini(option.dest)
    if not text:
        return None
    try:
        return [option.type(line) for line in text] if option.many else option.type(text)
    except argparse.ArgumentTypeError as error:
        place = config.inipath or "-o"  # without an ini file only the command line can have set it
        raise pytest.UsageError(f"{place}: {option.dest}: {error}") from None
