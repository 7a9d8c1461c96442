"""The command that judges a task again as a run did."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.options import OPTIONS
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import ScoreSettings, Settings, same_in

MAX_CHARACTERS = 2000


def command(run: Run, candidate: str, task: str) -> str:
    """Return the shell command that judges a task for a candidate again, with the run's settings and its seed."""
    path = next((item.get("path") for item in run.candidates if item.get("name") == candidate), candidate)
    words = ["pytest", "--passbench", f"--candidate={path}", f"--passbench-task={task}"]
    values = {**run.settings, **(run.settings.get("score") or {})}
    usual = {**asdict(Settings()), **asdict(ScoreSettings())}
    named = {*same_in("command"), *asdict(ScoreSettings())} & values.keys()
    for option in OPTIONS:
        if option.key not in named or (value := _plain(values[option.key])) == _plain(usual[option.key]):
            continue
        words += [f"--passbench-{option.name}={item}" for item in (value if isinstance(value, list) else [value])]
    words += ["--passbench-compare-strict"] if values.get("compare_strict") else []
    if run.seed.get("revealed"):
        words.append(f"--passbench-seed={run.seed['revealed']}")
    return line(" ".join(shlex.quote(str(word)) for word in words), MAX_CHARACTERS)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, list)) else value
