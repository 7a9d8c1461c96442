"""Gates: the run fails if a score of a candidate is below the minimum that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, head_to_head
from pytest_passbench.score.board import metric, tasks_of
from pytest_passbench.score.subgraph import NOT_JUDGED


@dataclass(frozen=True)
class GateResult:
    """The result of a gate for a candidate. ``line`` is shown to the user."""

    passed: bool
    line: str


def check(run: Run, gates: Sequence[tuple[str, float]]) -> list[GateResult]:
    """Return the result of every gate for every candidate of a run.

    A score passes its gate if it was measured and is not below the minimum. If the run was compared with an earlier
    one (``--passbench-compare``), no answer may be lost, nor more of a speed-up than the limit. If it has a reference
    (``--passbench-against``), no subgraph may be slower by more than the limit, with its whole interval; under
    ``strict``, with a part of it. A candidate without a comparable subgraph passes neither.
    """
    results = [_check(run, name, *gate) for name in run.names for gate in gates]
    results += [_check_changes(run, name) for name in run.names] if run.compared else []
    return results + ([_check_against(run, name) for name in run.names] if run.against else [])


def _check_against(run: Run, candidate: str) -> GateResult:
    limit = changes.limit_of(run)
    ratios = [record.head_to_head for record in run.of(candidate) if record.head_to_head is not None]
    whose = f"{one_line(candidate)} against {one_line(head_to_head.reference(run))}"
    if not ratios:
        return GateResult(False, f"against failed: {whose}: no subgraph has a ratio")
    ends = [ratio.low if changes.is_strict(run) else ratio.high for ratio in ratios]
    slower = sum(end < 1.0 - limit for end in ends)
    text = f"{whose}: {slower} of {counted(len(ratios), 'subgraph')} more than {100 * limit:g} % slower"
    return GateResult(not slower, f"against {'failed' if slower else 'passed'}: {text}")


def _check_changes(run: Run, candidate: str) -> GateResult:
    limit = changes.limit_of(run)
    whose = f"{one_line(candidate)} since {one_line(changes.file_of(run))}"
    records = [record for record in run.of(candidate) if record.stored is not None and not record.stored.note]
    if not records:
        text = changes.nothing_compared(run, [candidate])
        return GateResult(False, f"compare failed: {text} ({changes.SAME_TASKS})")
    lost = sum(map(changes.lost, records))
    fell = len(changes.regressions(run, candidate))
    opened = sum(changes.open_still(record, limit) for record in records)
    counts = f"{lost} lost correctness, {fell} more than {100 * limit:g} % of their speed-up"
    text = f"{whose}: of {counted(len(records), 'subgraph')} {counts}" + (f", {opened} open" if opened else "")
    if lost or fell:
        return GateResult(False, f"compare failed: {text}")
    return GateResult(True, f"compare passed: {text}")


def _check(run: Run, candidate: str, name: str, least: float) -> GateResult:
    value, whose = metric(run, candidate, name), f"{name} of {one_line(candidate)}"
    whose += f" ({run.criterion})" if run.criterion != "ladder" else ""
    missing = sum(item.status == NOT_JUDGED for group in tasks_of(run, candidate).values() for item in group)
    if missing and name == "gmean":  # the mean of what is correct: a failure does not lower it
        line = f"gate failed: {whose} leaves out {counted(missing, 'subgraph')} not judged"
        return GateResult(False, line)
    if value is None:
        line = f"gate failed: {whose} was not measured, at least {least:g} is asked for"
        return GateResult(False, line)
    if value < least:
        return GateResult(False, f"gate failed: {whose} is {value:.4g}, under {least:g}")
    return GateResult(True, f"gate passed: {whose} is {value:.4g}, at least {least:g}")
