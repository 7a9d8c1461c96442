"""The survey of a candidate in words: its findings, and for a task the matches, the plans and the misses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict

from pytest_passbench.core import misses
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Finding
from pytest_passbench.core.task import Task
from pytest_passbench.judge.survey import MatchReport, Survey
from pytest_passbench.plans.words import steps

SEVERITIES = ("violation", "error", "warning")
MAX_NAMED = 4  # subgraphs of a group that are named


def render(task: Task | None, survey: Survey) -> Iterator[str]:
    """Yield the findings, and what passes do to the task; without a task, how many passes were read."""
    yield from dict.fromkeys(map(finding_line, survey.findings))  # a kernel's errors come again with every match
    if task is not None:
        yield from _effects(task, survey)
        if survey.sanitized is not None:
            reports = sum(finding.rule == "sanitize" for finding in survey.findings)
            yield f"\n{counted(survey.sanitized, 'plan')} run with sanitizers: {counted(reports, 'error')}"
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

    def key(match: MatchReport) -> str:
        return json.dumps([graphs[match.subgraph], [asdict(report) for report in match.passes], match.places])

    for equal in grouped(survey.matched, key).values():
        first = equal[0]
        yield ""
        yield f"{graphs[first.subgraph]}: {_names([match.subgraph for match in equal])}"
        yield from _graph(task.graphs[graphs[first.subgraph]], first)
        yield from _plans(survey, first)
        yield from _misses(first)
        for report in first.passes:
            yield from (f"  {report.name} leaves to eager {reason}" for reason in report.left)
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
    plans = grouped((item for item in survey.plans if item.subgraph == match.subgraph), lambda item: item.name)
    regions = {report.name for report in match.passes if report.kind == "region"}
    for number, (name, nodes) in enumerate(match.places, 1):
        yield f"  {number}: {name}{' (a region)' if name in regions else ''} replaces {', '.join(nodes)}"
    for name, of_pass in plans.items():
        for planned in of_pass:
            yield f"     {name} runs, for {match.subgraph}:"
            yield from (f"       {step}" for step in steps(planned.plan))


def _misses(match: MatchReport) -> Iterator[str]:
    lines = misses.lines(match.passes)
    if lines:
        yield "  no match:" if match.places else "  no pass matches:"
        yield from (f"    {line}" for line in lines)
