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

    Totals and progress go to stderr. Return the number of lines. Raises UserError if there is no task to look at.
    """
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session

    candidate, refs = Candidate.open(directory), _tasks(words, suite)
    progress, width, matched = ProgressLines("explain"), max(len(ref.id) for ref in refs), 0
    with Session(Settings(pipeline="direct"), os.urandom(32)) as judge:
        for number, ref in enumerate(refs, 1):
            matches, miss = in_words(judge, ref, candidate)
            matched += bool(matches)
            if bool(matches) != missed:
                progress.clear()
                print(f"{ref.id:<{width}}  {miss if missed else matches}".rstrip(), flush=True)
            progress.update(f"{number} of {len(refs)} tasks looked at, {matched} matched")
    progress.clear()
    print(f"{matched} of {len(refs)} tasks matched", file=sys.stderr)
    return len(refs) - matched if missed else matched


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


def in_words(judge: Session, ref: TaskRef, candidate: Candidate) -> tuple[str, str]:
    """Return in words how a candidate matches a task, or "" and the nearest miss.

    A mistake in the candidate that leaves it open is quoted.
    """
    from pytest_passbench.judge.arms.failures import ArmFailure

    try:
        graphs = list(judge.matches(ref, candidate))
    except ArmFailure as failure:
        return line(f"cannot be told: {failure.message}", MAX_CHARACTERS), ""
    names = dict.fromkeys(match.name for match in graphs if match.name)
    if not names:
        miss = next((match.miss for match in graphs if match.miss), "it has no passes for this task")
        return "", line(miss, MAX_CHARACTERS)
    matched = sum(match.subgraphs for match in graphs if match.name)
    return f"{matched}/{sum(match.subgraphs for match in graphs)} subgraphs, by {', '.join(names)}", ""
