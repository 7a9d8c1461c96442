"""The survey of a candidate in words: its findings, and for a task the matches, the plans and the misses.

For all tasks only graphs are matched: the tasks that the candidate's passes match, a line for each.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.settings import SUITES, Settings

if TYPE_CHECKING:
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.record import Finding
    from pytest_passbench.core.task import Task
    from pytest_passbench.judge.session import Session
    from pytest_passbench.judge.survey import MatchReport, Survey
    from pytest_passbench.suite.find import TaskRef

MAX_CHARACTERS = 300  # of the sentence on a task

SEVERITIES = ("violation", "error", "warning")
MAX_NAMED = 4  # subgraphs of a group that are named


def render(task: Task | None, survey: Survey) -> Iterator[str]:
    """Yield the findings, and what passes do to the task; without a task, how many passes were read."""
    yield from dict.fromkeys(map(finding_line, survey.findings))  # a kernel's errors come again with every match
    if task is not None:
        yield from _effects(task, survey)
    else:
        counts = [counted(sum(item.severity == kind for item in survey.findings), kind) for kind in SEVERITIES]
        yield ", ".join([f"{counted(len(survey.passes), 'pass')} read", *counts])


def finding_line(finding: Finding) -> str:
    """Return a finding with its place, severity and rule."""
    place = f"{finding.place}: " if finding.place else ""
    return f"{place}{finding.severity} [{finding.rule}] {finding.message}"


def _effects(task: Task, survey: Survey) -> Iterator[str]:
    """Yield per group of equal subgraphs the graph, the matches with their plans, and the misses."""
    graphs = {subgraph.id: subgraph.graph for subgraph in task.subgraphs}
    groups: dict[str, list[MatchReport]] = {}
    for match in survey.matched:
        key = json.dumps([graphs[match.subgraph], [asdict(report) for report in match.passes], match.places])
        groups.setdefault(key, []).append(match)
    for equal in groups.values():
        first = equal[0]
        yield ""
        yield f"{graphs[first.subgraph]}: {_names([match.subgraph for match in equal])}"
        yield from _graph(task.graphs[graphs[first.subgraph]], first)
        yield from _plans(survey, first)
        yield from _misses(first)
        yield from _left(first)
    if not survey.matched and not survey.findings:
        yield f"the candidate has no passes for {task.id}"


def _names(ids: list[str]) -> str:
    names = ", ".join(ids[:MAX_NAMED])
    return names if len(ids) <= MAX_NAMED else f"{names}, ... ({len(ids)} subgraphs)"


def _graph(source: str, match: MatchReport) -> Iterator[str]:
    """Yield the graph's text. Before each line stands the number of the match that it belongs to."""
    marks = {node: str(number) for number, (_name, nodes) in enumerate(match.places, 1) for node in nodes}
    for text in source.rstrip().splitlines():
        variable = re.match(r"\s*(\w+)\s*=", text)
        yield f"  {marks.get(variable[1], '') if variable else '':>3} | {text}"


def _plans(survey: Survey, match: MatchReport) -> Iterator[str]:
    from pytest_passbench.plans.words import steps

    plans: dict[str, list[Any]] = {}
    for planned in survey.plans:
        if planned.subgraph == match.subgraph:
            plans.setdefault(planned.name, []).append(planned.plan)
    regions = {report.name for report in match.passes if report.kind == "region"}
    for number, (name, nodes) in enumerate(match.places, 1):
        yield f"  {number}: {name}{' (a region)' if name in regions else ''} replaces {', '.join(nodes)}"
    for name, of_pass in plans.items():
        for plan in of_pass:
            yield f"     {name} runs, for {match.subgraph}:"
            yield from (f"       {step}" for step in steps(plan))


def _misses(match: MatchReport) -> Iterator[str]:
    from pytest_passbench.core import misses

    lines = misses.lines(match.passes)
    if lines:
        yield "  no match:" if match.places else "  no pass matches:"
        yield from (f"    {line}" for line in lines)


def _left(match: MatchReport) -> Iterator[str]:
    """Yield the regions that were left to eager, with the reasons."""
    for report in match.passes:
        yield from (f"  {report.name} leaves to eager {reason}" for reason in report.left)


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
            matches, miss = in_words(judge, ref.load(), candidate)
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


def in_words(judge: Session, task: Task, candidate: Candidate) -> tuple[str, str]:
    """Return in words how a candidate matches a task, or "" and the nearest miss.

    A mistake in the candidate that leaves it open is quoted.
    """
    from pytest_passbench.judge.arms.failures import ArmFailure

    try:
        graphs = {match.graph: match for match in judge.matches(task, candidate)}
    except ArmFailure as failure:
        return line(f"cannot be told: {failure.message}", MAX_CHARACTERS), ""
    names = {graph: match.name for graph, match in graphs.items() if match.name}
    if not names:
        miss = next((match.miss for match in graphs.values() if match.miss), "it has no passes for this task")
        return "", line(miss, MAX_CHARACTERS)
    count = sum(subgraph.graph in names for subgraph in task.subgraphs)
    return f"{count}/{len(task.subgraphs)} subgraphs, by {', '.join(dict.fromkeys(names.values()))}", ""
