"""The report on a whole model: eager, TorchInductor and passes in the same rounds, and where the time goes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import RAN, Record, Speed
from pytest_passbench.core.settings import INDUCTOR
from pytest_passbench.report.tables import NONE, NOT_MEASURED, Table
from pytest_passbench.report.terminal import show
from pytest_passbench.score.interval import Interval, digits, quotient
from pytest_passbench.timing.estimate import from_values, pair_value, weights
from pytest_passbench.timing.looks import TO_EAGER

MAX_OPERATORS = 10  # lines of the table of operators
MAX_REASONS = 5  # reasons why regions were left to eager


@dataclass(frozen=True)
class OperatorCall:
    """A call of eager's: its ``operator``, its least time in ``seconds``, and True if a kernel replaces it."""

    operator: str
    seconds: float
    replaced: bool


@dataclass(frozen=True)
class ModelReport:
    """A model judged at one size. ``calls`` are eager's, in the order of the graph."""

    record: Record
    calls: tuple[OperatorCall, ...]

    @property
    def left_share(self) -> float:
        """The share of eager's time in calls that no kernel replaces."""
        total = sum(call.seconds for call in self.calls)
        return sum(call.seconds for call in self.calls if not call.replaced) / total if total else 1.0

    @property
    def kernel_us(self) -> float | None:
        """The time of kernels and their calls: the passes' minus eager's for the rest. None if it is not positive."""
        speed = self.record.arm.speed
        rest = 0.0 if speed is None else speed.other_us - self.left_share * speed.eager_us
        return rest if rest > 0 else None

    @property
    def beside_inductor(self) -> Interval | None:
        """The ratio of TorchInductor's time to the passes', from common rounds; None unless both :func:`counting`."""
        if INDUCTOR not in self.record.baselines:
            return None
        speed, other = counting(self.record, "candidate"), counting(self.record, INDUCTOR)
        return between(speed, other) if speed is not None and other is not None else None

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON-ready builtins. Ratios are of eager's time to the program's."""
        record, ratio = self.record, self.beside_inductor
        return {
            "size": record.subgraph,
            "dtype": record.dtype,
            "programs": {name: _program_json(record, arm) for name, arm in _arms(record)},
            "inductor_to_passes": None if ratio is None else [ratio.ratio, ratio.low, ratio.high],
            "operators": len(self.calls),
            "replaced": sum(call.replaced for call in self.calls),
            "left_share": self.left_share,
            "kernel_us": self.kernel_us,
            "matches": {item.name: item.matches for item in record.passes if item.matches},
            "calls": [[call.operator, call.seconds * 1e6, call.replaced] for call in self.calls],
        }


def counting(record: Record, arm: str) -> Speed | None:
    """Return an arm's speed-up if its answer is right by one of the criteria; None also if it was not measured."""
    return record.result(arm).speed if record.is_correct(arm, "ladder") or record.accurate(arm) else None


def between(first: Speed, second: Speed) -> Interval:
    """Return the ratio of the second program's time to the first's, from both speed-ups over eager.

    If both were measured in the same pairs of processes, eager's noise cancels.
    """
    if len(first.pairs) != len(second.pairs) or not first.pairs:
        return quotient(first, second)
    values = [pair_value(a) - pair_value(b) for a, b in zip(first.pairs, second.pairs, strict=True)]
    estimate = from_values(values, TO_EAGER.nominal, counting=weights(first.pairs))
    return Interval(estimate.ratio, estimate.low, estimate.high)


def text(report: ModelReport, width: int) -> str:
    """Return the report for a terminal of ``width`` columns (80 or more)."""
    parts = [show(program_table(report), width), "\n".join(_of_programs(report))]
    if report.record.arm.status == RAN:
        parts += [show(pass_table(report), width), show(operator_table(report), width), "\n".join(_of_time(report))]
    return "\n\n".join(part for part in parts if part)


def program_table(report: ModelReport) -> Table:
    """Return a line for eager, TorchInductor and the passes: time per call, speed-up, right under both criteria."""
    record = report.record
    times = [arm.speed.eager_us for arm in (record.arm, *record.baselines.values()) if arm.speed is not None]
    eager = ("eager", digits(times[0]) if times else NOT_MEASURED, "1.000", NONE, NONE)
    rows = [eager, *(_program(record, name, arm) for name, arm in _arms(record))]
    headers = ("program", "us per call", "speed-up", f"agrees at t = {record.tolerance}", "as accurate")
    return Table(f"{line(record.source or record.task)}: {record.subgraph}, {record.dtype}", headers, tuple(rows))


def _arms(record: Record) -> list[tuple[str, str]]:
    """Return the name of each program beside eager, and the name of its arm."""
    return [*((name, name) for name in record.baselines), (record.candidate, "candidate")]


def _program(record: Record, name: str, arm: str) -> tuple[str, ...]:
    result = record.result(arm)
    if result.status != RAN:
        return name, NONE, NONE, result.status, NONE
    first = "at no t" if result.first_correct == NEVER else f"from t = {result.first_correct}"
    if result.first_correct <= record.tolerance:
        first = "as a null answer would"
    accurate = {None: "no float64 form", True: "yes", False: "no"}[record.accurate(arm)]
    time = NOT_MEASURED if result.speed is None else digits(result.speed.other_us)
    speed = counting(record, arm)
    speed_up = NONE if speed is None else str(Interval.of(speed))
    return name, time, speed_up, "yes" if record.is_correct(arm, "ladder") else f"no: {first}", accurate


def _program_json(record: Record, arm: str) -> dict[str, Any]:
    result = record.result(arm)
    speed = result.speed
    return {
        "status": result.status,
        "message": result.message,
        "agrees": record.is_correct(arm, "ladder"),
        "agrees_from": None if result.first_correct == NEVER else result.first_correct,
        "accurate": record.accurate(arm),
        "us": None if speed is None else speed.other_us,
        "eager_us": None if speed is None else speed.eager_us,
        "speed_up": None if speed is None else [speed.ratio, speed.low, speed.high],
    }


def _of_programs(report: ModelReport) -> list[str]:
    ratio, arm = report.beside_inductor, report.record.arm
    lines = [] if ratio is None else [f"The passes are {ratio} times as fast as TorchInductor, in the same rounds."]
    for name, result in [(report.record.candidate, arm), *report.record.baselines.items()]:
        if result.status != RAN:
            lines.append(f"{name}: {result.status}: {line(result.message, 400)}")
    return lines + ([f"worst element: {line(arm.worst, 300)}"] if arm.worst and not report.record.correct else [])


def pass_table(report: ModelReport) -> Table:
    """Return the table of passes that matched, with their matches and the operators that they replace."""
    rows = [
        (item.name, item.kind, str(item.matches), str(len(item.operators)))
        for item in sorted(report.record.passes, key=lambda item: -len(item.operators))
        if item.matches
    ]
    return Table("Passes that matched", ("pass", "kind", "matches", "operators"), tuple(rows))


def operator_table(report: ModelReport) -> Table:
    """Return eager's time by operator, the longest first, with how many calls kernels replace."""
    total = sum(call.seconds for call in report.calls) or 1.0
    groups = grouped(report.calls, lambda call: call.operator)
    ranked = sorted(groups.items(), key=lambda item: -sum(call.seconds for call in item[1]))
    rows = [_operator(name, calls, total) for name, calls in ranked[:MAX_OPERATORS]]
    rest = [call for _, calls in ranked[MAX_OPERATORS:] for call in calls]
    rows += [_operator(f"{len(ranked) - MAX_OPERATORS} others", rest, total)] if rest else []
    return Table("Where eager's time goes", ("operator", "calls", "replaced", "time %"), tuple(rows))


def _operator(name: str, calls: Sequence[OperatorCall], total: float) -> tuple[str, ...]:
    seconds = sum(call.seconds for call in calls)
    return name, str(len(calls)), str(sum(call.replaced for call in calls)), f"{100 * seconds / total:.1f}"


def _of_time(report: ModelReport) -> list[str]:
    """Return sentences on what kernels replace, on what is left, and on the time in kernels."""
    replaced, left, speed = sum(call.replaced for call in report.calls), report.left_share, report.record.arm.speed
    operators = counted(len(report.calls), "operator")
    lines = [f"Kernels replace {replaced} of {operators}, with {100 * (1 - left):.1f} % of eager's time."]
    if left > 0:
        lines.append(f"If they took no time at all, the model would be {digits(1 / left)} times as fast as eager.")
    if speed is not None and report.kernel_us is not None:
        share = 100 * report.kernel_us / speed.other_us
        lines.append(
            f"Of the passes' {digits(speed.other_us)} us, about {digits(report.kernel_us)} us ({share:.0f} %) are "
            "kernels and calls; eager's operators take the rest."
        )
    return [*lines, *_of_regions(report.record)]


def _of_regions(record: Record) -> list[str]:
    """Return a sentence for each reason why regions were left to eager, the most frequent first."""
    reasons = Counter(reason.partition(": ")[2] or reason for item in record.passes for reason in item.left)
    return [
        f"left to eager: {counted(number, 'region')}: {line(reason, 200)}"
        for reason, number in reasons.most_common(MAX_REASONS)
    ]
