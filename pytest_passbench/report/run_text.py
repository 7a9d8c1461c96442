"""A run's settings, environment and extent as text, and the command that judges a task of it again."""

from __future__ import annotations

import shlex
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.options import OPTIONS, Option
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.report.tables import NONE

MAX_COMMAND_CHARACTERS = 2000

WHY_LEFT_OUT = "of a dtype the smallest alone, where Triton's interpreter runs it"


def extent(run: Run) -> str:
    """Return how many tasks and subgraphs were judged, and of which edition of the suite."""
    edition = f", edition {', '.join(run.editions)} of the suite" if run.editions else ""
    return f"{counted(len(run.tasks), 'task')}, {counted(len(run.records), 'subgraph')} judged{edition}"


def listing(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each name with its value as text: numbers with four digits, a dash for a value that was not given."""
    return [(str(name), _flat(value)) for name, value in values.items()]


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items()) or NONE
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_flat, value)) or NONE
    if isinstance(value, float):
        return f"{value:.4g}"
    return NONE if value is None else str(value)


def command(run: Run, candidate: str, task: str) -> str:
    """Return the shell command that judges a task for a candidate again, with the run's settings and its seed."""
    path = next((item.get("path") for item in run.candidates if item.get("name") == candidate), candidate)
    words = ["pytest", "--passbench", f"--candidate={path}", f"--passbench-task={task}"]
    for option in OPTIONS:
        words += _words(option, run.settings) if option.key in same_in("command") else []
    if run.seed.get("revealed"):
        words.append(f"--passbench-seed={run.seed['revealed']}")
    return line(" ".join(shlex.quote(str(word)) for word in words), MAX_COMMAND_CHARACTERS)


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


def left_out_sentence(run: Run, candidate: str, label: str = "") -> str:
    """Return a sentence on how many subgraphs a candidate was judged on, and why; empty if none was left out.

    ``label`` is what a table calls the candidate, if that is not its name.
    """
    left_out = run.left_out(candidate)
    if not left_out:
        return ""
    judged = sum(run.count(candidate, task) for task in run.tasks)
    return f"{label or candidate} was judged on {judged} of {counted(judged + left_out, 'subgraph')}: {WHY_LEFT_OUT}."


def left_out_sentences(run: Run) -> list[str]:
    """Return a sentence for each candidate that was judged on fewer subgraphs than its tasks have."""
    return [*filter(None, (left_out_sentence(run, name) for name in run.names))]
