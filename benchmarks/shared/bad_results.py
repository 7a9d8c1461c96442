"""Results files and command lines that a user may get wrong."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shared.bad_case import add, sparse, words
from shared.good_inputs import (
    results,
    write_candidate,
    write_results,
    write_task,
)

# Results files


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return a results file's contents, changed by ``change``."""
    data = copy.deepcopy(results())
    change(data)
    return data


def _results(
    name: str,
    content: Callable[[], Any],
    commands: tuple[str, ...] = ("show --json", "verify", "merge"),
    says: str = "results.json",
) -> None:
    for command in commands:

        def write(folder: Path, command: str = command) -> list[str]:
            path = write_results(folder, content())
            out = [str(folder / "out")] if command == "merge" else []
            return [*command.split(), *out, str(path)]

        add(f"results: {name}, {command}", write, says)


def _edit(name: str, *steps: str | int, value: Any, says: str = "results.json") -> None:
    def change(data: dict[str, Any]) -> None:
        at: Any = data
        for step in steps[:-1]:
            at = at[step]
        at[steps[-1]] = value

    _results(name, lambda: changed(change), says=says)


_ARM = ("records", 0, "arm")
_FINDING = {"layer": "plan", "rule": "kernels", "severity": "WOW", "message": "it is bad"}
_edit("correct_from of []", *_ARM, "correct_from", value=[], says="correct_from")
_edit("correct_from of [5]", *_ARM, "correct_from", value=[5], says="correct_from")
_edit("correct_from of [-10^9]", *_ARM, "correct_from", value=[-(10**9)], says="correct_from")
_edit("two values for one output", *_ARM, "correct_from", value=[-6, -6], says="correct_from")
_edit("null_from of 5", "records", 0, "null_from", value=5, says="null_from")
_edit("verdict WOW", *_ARM, "speed", "verdict", value="WOW", says="verdict")
_edit("status fine", *_ARM, "status", value="fine", says="status")
_edit("b of null", "settings", "score", "b", value=None, says="b")
_edit("b of 2", "settings", "score", "b", value=2.0, says="b")
_edit("score of null", "settings", "score", value=None, says="score")
_edit("a negative duration", "records", 0, "durations", "read", value=-1.0, says="durations")
_edit("an infinite duration", "records", 0, "durations", "read", value={"float": "inf"}, says="durations")
_edit("a duration of 10^400", "records", 0, "durations", "read", value=10**400, says="64 digits")
_edit("a ratio of 10^400", *_ARM, "speed", "ratio", value=10**400, says="64 digits")
_edit("a ratio of 0", *_ARM, "speed", "ratio", value=0, says="ratio")
_edit("a time of NaN", *_ARM, "speed", "eager_us", value={"float": "nan"}, says="eager_us")
_edit("a negative time", *_ARM, "speed", "other_us", value=-1.0, says="other_us")
_edit("an interval beside the ratio", *_ARM, "speed", "low", value=1e6, says="speed.low")
_edit("a ratio of 0 to the reference", "records", 0, "against", "speed", "ratio", value=0, says="against.speed.ratio")
_edit("a ratio to a reference of no speed", "records", 0, "against", "arm", "speed", value=None, says="against.speed")
_edit("a reference of text", "records", 0, "against", value="old", says="against")
_edit("an earlier time of NaN", "records", 0, "stored", "again", "eager_us", value={"float": "nan"}, says="again")
_edit("an earlier answer of 5", "records", 0, "stored", "correct", value=5, says="correct")
_edit("an earlier noise of -1", "compared", "noise", "delta", value=-1, says="compared.noise.delta")
_edit("a noise of delta text", "noise", "delta", value="wide", says="noise.delta")
_edit("records of {}", "records", value={}, says="records")
_edit("a record of null", "records", 1, value=None, says="records[1]")
_edit("an unknown field of an arm", *_ARM, "extra", value=1, says="extra")
_edit("tasks of null", "tasks", value=None, says="tasks")
_edit("a path with NUL", "settings", "tasks", value=["a\0b"], says="settings.tasks")
_edit("a lone surrogate for a task", "records", 0, "task", value="\ud800", says="surrogate")
_edit("another schema", "schema", value="passbench/9", says="passbench/9")
_edit("10^9 subgraphs", "selected", "cand", "gelu-add", value=10**9, says="selected")
_edit("a matches of -1", "records", 0, "passes", 0, "matches", value=-1, says="matches")
_edit("noise of width -1", "noise", "width", value=-1, says="noise.width")
_edit("noise of width text", "noise", "width", value="wide", says="noise.width")
_edit("100,000 tasks", "tasks", value=[str(number) for number in range(100_000)], says="more than 20,000")
_edit("a noise of width null", "noise", "width", value=None, says="noise.width")
_edit("a noise of offset 1e308", "noise", "offset", value=1e308, says="noise.offset")
_edit("pairs of 1e308", *_ARM, "speed", "pairs", value=[[1e308, -1e308]] * 3, says="speed.pairs")
_edit("pairs of 800", *_ARM, "speed", "pairs", value=[[800.0, 800.0]] * 3, says="speed.pairs")
_edit("a candidate that is not listed", "records", 0, "candidate", value="other", says="records[0].candidate")
_edit("a finding of severity WOW", "records", 0, "findings", value=[_FINDING], says="severity")
_edit("an earlier status of WOW", "records", 0, "stored", "status", value="WOW", says="stored.status")
_edit("a duration of 1e300", "records", 0, "durations", "read", value=1e300, says="durations")
_edit("a time of 1e300", *_ARM, "speed", "eager_us", value=1e300, says="eager_us")
_edit("a negative error", *_ARM, "error64", value=[-1.0], says="arm.error64")
_edit("a negative error of eager", "records", 0, "eager_error64", value=[-1.0], says="eager_error64")
_edit("an empty baseline", "records", 0, "baselines", "inductor", value={}, says="baselines.inductor.correct_from")
_results("the same subgraph twice", lambda: changed(lambda d: d["records"].append(d["records"][0])), says="gelu-add")
_results("100,000 brackets", lambda: "[" * 100_000)
_results("100,000 brackets within", lambda: json.dumps(results()).replace('"one"', "[" * 100_000 + "]" * 100_000))
_results("500 brackets within", lambda: json.dumps(results()).replace('"one"', "[" * 500 + "]" * 500))
_results("an integer of 5,000 digits", lambda: json.dumps(results()).replace("0.5,", "9" * 5_000 + ","))
_results("NaN", lambda: json.dumps(results()).replace("0.5,", "NaN,"))
_results("a list", lambda: [])
_results("cut short", lambda: json.dumps(results())[:-100])
_results("two values for a key", lambda: json.dumps(results()).replace('"tasks":', '"tasks": [], "tasks":', 1))
_results("not UTF-8", lambda: b"\xff\xfe{}" * 3)
_results("subgraphs that are none", lambda: {"subgraphs": 5}, ("show --json",), "subgraphs")
_results(
    "a case's correct_from of [-10^9]",
    lambda: {"subgraphs": [{"status": "correct", "correct_from": [-(10**9)]}]},
    ("show --json",),
    "correct_from",
)
_results("a case's b of null", lambda: {"subgraphs": [], "b": None}, ("show --json",), "b")
_results("a case's p of text", lambda: {"subgraphs": [], "p": "1"}, ("show --json",), "p")
_results(
    "a case's interpretation of []",
    lambda: {"subgraphs": [], "interpretation": []},
    ("show --json",),
    "interpretation",
)


def _in_place_of_results(command: str, make: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        make(folder / "results.json")
        return [*command.split(), str(folder / "results.json")]

    return write


for _command in ("show --json", "verify"):
    add(f"results: a FIFO, {_command}", _in_place_of_results(_command, os.mkfifo), "results.json")
    add(f"results: /dev/zero, {_command}", words(*_command.split(), "/dev/zero"), "/dev/zero")
    add(f"results: a sparse file, {_command}", _in_place_of_results(_command, sparse), "results.json")


# Command lines


def _line(says: str, *words: str, code: int = 2) -> None:
    def write(folder: Path) -> list[str]:
        write_task(folder)
        write_results(folder, results())
        write_candidate(folder)
        return [word.replace("{folder}", str(folder)) for word in words]

    add(f"line: {' '.join(words)[:80]}", write, says, code)


_TASK, _FILE = "{folder}/gelu-add.task.yaml", "{folder}/results.json"
_line("--processes", "tasks", "check", _TASK, "--processes", "0")
_line("--processes", "tasks", "check", _TASK, "--processes", "-1")
_line("--processes", "tasks", "check", _TASK, "--processes", "1000000")
_line("--sample", "tasks", "check", _TASK, "--sample", "nan")
_line("--sample", "tasks", "check", _TASK, "--sample", "-1")
_line("--sample", "tasks", "check", _TASK, "--sample", "inf")
_line("suite", "tasks", "list", _TASK, "--suite", "none", code=1)
_line("File name too long", "show", "x/" * 3_000, code=1)
_line("is the results file itself", "show", _FILE, "--html", _FILE, code=1)
_line("'nan' is not a number above 0", "show", _FILE, "--b", "nan")
_line("'0' is not a number above 0", "show", _FILE, "--b", "0")
_line("'inf' is not a number from 0", "show", _FILE, "--p", "inf")
_line("'1e6' is not a number from 0", "show", _FILE, "--p", "1e6")
_line("--rerun", "verify", _FILE, "--rerun", "-1")
_line("--rerun", "verify", _FILE, "--rerun", "9" * 30)
_line("not a share", "compare", _FILE, _FILE, "--max-regression", "3")
_line("not a share", "compare", _FILE, _FILE, "--max-regression=-1%")
_line("not a number", "compare", _FILE, _FILE, "--max-regression", "%")
_line("--format", "compare", _FILE, _FILE, "--format", "pdf")
_line("no.json", "compare", _FILE, "{folder}/no.json", code=1)
_line("no.json", "compare", "{folder}/no.json", _FILE, code=1)
_line("--all", "forge", code=1)
_line("--processes", "forge", "--only", "none", "--processes", "0")
_line("--timeout", "forge", "--only", "none", "--timeout", "nan")
_line("--tasks", "forge", "--only", "none", "--tasks", "-1")
_line("--steps", "forge", "--all", "--steps", "none", code=1)
_line("--steps", "forge", "--all", "--steps", "", code=1)
_line("--size", "forge", "--model", "m.py:M", "--input", "float b 3", "--size", "0,0", code=1)
_line("no.py", "forge", "--model", "{folder}/no.py:M", code=1)
_line("FILE.py:NAME", "forge", "--model", "M", code=1)
for _option, _value in (
    ("budget", "inf"),
    ("shard", "1/" + "9" * 5_000),
    ("tolerance", "9" * 5_000),
    ("fail-under", "AS=nan"),
    ("device", "cuda:" + "9" * 5_000),
    ("seed", ""),
    ("max-regression", "nan"),
    ("max-regression", "100%"),
):
    _line(
        _option,
        "pytest",
        "--passbench",
        "--candidate={folder}/cand",
        f"--passbench-{_option}={_value}",
        _TASK,
        code=4,
    )
for _option, _value in (("threads", "9" * 5_000), ("threads", "²"), ("timeout", "nan")):
    _ini = f"-opassbench_{_option}={_value}"
    _line(_option, "pytest", "--passbench", "--candidate={folder}/cand", _ini, _TASK, code=4)
_line("too long", "pytest", "--passbench", "--candidate={folder}/cand", "--passbench-against=" + "x" * 5_000, code=4)
_line("too long", "pytest", "--passbench", "--candidate={folder}/cand", "--passbench-compare=" + "x" * 5_000, code=4)
_line("no candidate", "pytest", "--passbench", _TASK, code=4)
_line("passbench", "pytest", "--passbench", "--candidate={folder}/cand", "--passbench-tasks=" + "x" * 5_000, code=4)
_line("passbench", "pytest", "--passbench", "--candidate=" + "x" * 5_000, _TASK, code=4)
