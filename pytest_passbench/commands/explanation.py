"""The tasks that a candidate's passes match, or miss, a line for each: only graphs are matched."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.settings import SUITES, Settings

if TYPE_CHECKING:
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.find import TaskRef

MAX_CHARACTERS = 300  # of the sentence on a task


def print_tasks(directory: Path, words: Sequence[str], suite: str | None, missed: bool) -> int:
    """Print a line for each task that a pass matches, or, if ``missed``, for each other task.

    A task for which it cannot be told has a line in both lists. Totals and progress go to stderr. Return the exit
    code: 1 if there is no line, or one of that kind. Raises UserError if there is no task to look at.
    """
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.arms.failures import ArmFailure
    from pytest_passbench.judge.session import Session

    candidate, refs = Candidate.open(directory), _tasks(words, suite)
    progress, width, matched = ProgressLines("explain"), max(len(ref.id) for ref in refs), 0
    unknown = lines = 0
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for number, ref in enumerate(refs, 1):
            try:
                matches, text = in_words(judge, ref, candidate)
            except ArmFailure as failure:
                matches, text = None, line(f"cannot be told: {failure.message}", MAX_CHARACTERS)
            matched, unknown = matched + bool(matches), unknown + (matches is None)
            if matches is None or matches != missed:
                progress.clear()
                print(f"{ref.id:<{width}}  {text}".rstrip(), flush=True)
                lines += 1
            progress.update(f"{number} of {len(refs)} tasks looked at, {matched} matched")
    progress.clear()
    open_tasks = f", {unknown} cannot be told" if unknown else ""
    print(f"{matched} of {len(refs)} tasks matched{open_tasks}", file=sys.stderr)
    return int(unknown > 0 or not lines)


def _tasks(words: Sequence[str], suite: str | None) -> list[TaskRef]:
    """Return the tasks of a suite: of those that are named, or else of the installed ones."""
    from pytest_passbench.suite import find

    if not words:
        refs, suite = find.discover(find.installed_tasks()), suite or "full"
    else:
        refs = [ref for word in words for ref in find.at(word)]
    refs = find.select(refs, suite or "all")
    if not refs:
        raise UserError(f"no task is in the suite {suite}", remedy=f"suites are: {', '.join(SUITES)}")
    return refs


def in_words(judge: Session, ref: TaskRef, candidate: Candidate) -> tuple[bool, str]:
    """Return whether a candidate matches a task, and in words how it does, or the nearest miss.

    Raises ArmFailure for a mistake in the candidate that leaves it open.
    """
    graphs = list(judge.matches(ref, candidate))
    names = dict.fromkeys(match.name for match in graphs if match.name)
    if not names:
        miss = next((match.miss for match in graphs if match.miss), "it has no passes for this task")
        return False, line(miss, MAX_CHARACTERS)
    matched = sum(match.subgraphs for match in graphs if match.name)
    return True, f"{matched}/{sum(match.subgraphs for match in graphs)} subgraphs, by {', '.join(names)}"
