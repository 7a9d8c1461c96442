"""The command that judges a task again as a run did."""

from __future__ import annotations

import shlex
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.options import OPTIONS, Option
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in

MAX_CHARACTERS = 2000


def command(run: Run, candidate: str, task: str) -> str:
    """Return the shell command that judges a task for a candidate again, with the run's settings and its seed."""
    path = next((item.get("path") for item in run.candidates if item.get("name") == candidate), candidate)
    words = ["pytest", "--passbench", f"--candidate={path}", f"--passbench-task={task}"]
    for option in OPTIONS:
        words += _words(option, run.settings) if option.key in same_in("command") else []
    if run.seed.get("revealed"):
        words.append(f"--passbench-seed={run.seed['revealed']}")
    return line(" ".join(shlex.quote(str(word)) for word in words), MAX_CHARACTERS)


def _words(option: Option, settings: dict[str, Any]) -> list[str]:
    """Return the words that set an option as the run had it; none if that is the default."""
    default = getattr(Settings, option.key)
    value = settings.get(option.key, default)
    if option.key == "max_regression" and settings.get("compare_strict"):
        value = f"{value},strict"
    values = value if isinstance(value, tuple | list) else [value]
    if value == default or not values:
        return []
    if option.ini_only:
        return [word for item in values for word in ("-o", f"{option.dest}={item}")]
    return [f"--passbench-{option.name}={item}" for item in values]
