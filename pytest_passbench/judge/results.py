"""The results of a case as its record has them: failures, outputs, answers, speeds, reports on passes.

The baselines' results are kept here too, since each is measured once for a subgraph, however many candidates are
judged on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any

from pytest_passbench.core import misses
from pytest_passbench.core.criterion import worst
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.record import RAN, ArmResult, PassReport, Record, Speed
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault, fault_line, is_fault, raise_if_fault
from pytest_passbench.judge.arms.names import AGAINST, CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.suite.taskfile import task_hash
from pytest_passbench.timing.looks import FIRST_LOOK
from pytest_passbench.timing.measurement import Arms, MeasuredRatio

MAX_LEFT = 50  # reasons why regions were left to eager, of one pass
_EMPTY: list[str] = []  # one for all reports, of which a run keeps tens of thousands
#: Statuses of a baseline that may be the machine's fault. The next candidate's case measures the baseline again.
TRANSIENT = ("crash", "timeout")


def speed_of(measured: Arms, name: str, result: MeasuredRatio) -> Speed:
    """Return a ratio as the record stores it. ``name`` is an arm (its speed-up over eager), or AGAINST."""
    estimate, (first, second) = result.estimate, measured.sides(name)
    return Speed(
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        verdict=result.decision.verdict,
        eager_us=measured.per_call(first) * 1e6,
        other_us=measured.per_call(second) * 1e6,
        pairs=measured.log_ratios(name),
    )


def pass_reports(
    items: Iterable[Mapping[str, Any]],
    untuned: Collection[str] = (),
    plans: Mapping[str, Sequence[str]] = MappingProxyType({}),
    uncounted: Mapping[str, str] = MappingProxyType({}),
) -> list[PassReport]:
    """Return a candidate's reports on its passes, capped and escaped. No verdict depends on them.

    ``untuned`` are the names of the passes whose kernels could have been tuned and were not. ``plans`` has the launch
    plans by the names of their passes, in words. ``uncounted`` has, by the pass's name, the reason why no match of a
    pass counts although it matched. A run keeps all reports, and subgraphs of a task have most in common: equal
    reports are one object while they are cached, and each text is kept once.
    """
    reports = []
    for item in list(items)[:200]:
        name = str(item.get("name", ""))
        report = _report(
            intern(printable(name)[:200]),
            int(item.get("matches", 0)),
            _texts(item.get("operators", ()), 60, 500),
            intern(printable(str(item.get("miss", "")), LINES)[:1000]),
            _texts(item.get("computed", ()), 60, 50),
            float(item.get("nearness", 0.0)),
            name in untuned,
            tuple(map(intern, plans.get(name, ()))),
            intern(printable(str(item.get("kind", "pattern")))[:10]),
            _texts(item.get("left", ()), 300, MAX_LEFT),
        )
        if name in uncounted:
            report = replace(report, matches=0, operators=_EMPTY, miss=uncounted[name], nearness=1.0)
        reports.append(report)
    return reports


def _texts(values: Sequence[object], characters: int, most: int) -> tuple[str, ...]:
    return tuple(intern(printable(str(value))[:characters]) for value in values[:most])


@lru_cache(maxsize=1000)
def _report(*fields: Any) -> PassReport:
    """Return the report with these fields, in order. Tuples become lists, and empty ones the same list."""
    values: list[Any] = [(list(item) or _EMPTY) if isinstance(item, tuple) else item for item in fields]
    return PassReport(*values)


class Writer:
    """The writer of a case's record. It decides to which result an arm's failure goes.

    ``culprits`` are the passes that the candidate's failures name.
    """

    def __init__(self, record: Record, planners: Mapping[str, Planner], auditor: Auditor, last: bool) -> None:
        self._record, self._planners, self._auditor, self._last = record, planners, auditor, last
        self.culprits: frozenset[str] = frozenset()
        self._twin = ArmResult()  # a record has no result of a second eager
        self._read_output = ""

    def result(self, arm: str) -> ArmResult:
        """Return the part of the record about ``arm``."""
        if arm == CANDIDATE:
            return self._record.arm
        if arm == REFERENCE and self._record.against is not None:
            return self._record.against.arm
        if arm == TWIN:
            return self._twin
        return self._record.baselines.setdefault(arm, ArmResult())

    def failed(self, arm: str, failure: ArmFailure, template: Template | None = None) -> None:
        """Write a failure into the record. Eager's failure is the subgraph's, any other is the arm's.

        Raises HarnessFault for a failure that may be the machine's: that of eager's process, and in a first attempt
        that of a baseline's.
        """
        if is_fault(failure) and not (arm == REFERENCE and self._last):
            raise HarnessFault(fault_line(failure)) from failure
        if arm == EAGER:
            raise_if_fault(arm, failure)
            _mark(self._record.arm, "eager_fail", failure.phase, failure.message)
            return
        if arm not in (CANDIDATE, REFERENCE, TWIN) and failure.status == "crash" and not self._last:
            raise_if_fault(arm, failure)
        message = failure.message if arm not in self._planners else self._planners[arm].located(failure.message)
        _mark(self.result(arm), failure.status, failure.phase, message)
        if arm == CANDIDATE:
            self._auditor.findings += failure.findings
            self.culprits |= failure.culprits
        if template is not None:
            self.printed(arm, template)

    def missed(self, arm: str, template: Template) -> None:
        """Write that no pass matched."""
        reports = pass_reports(template.report["passes"], uncounted=template.uncounted)
        _mark(self.result(arm), "pass_miss", "match", misses.message(reports))
        self.printed(arm, template)

    def built(self, arm: str, template: Template) -> None:
        """Write what a baseline's compiler has generated."""
        if "generated" in template.report and arm not in self._planners:
            self.result(arm).generated = template.report["generated"]

    def printed(self, arm: str, template: Template) -> None:
        """Write what an arm has printed. The candidate's output includes that of reading its passes."""
        output = template.output()
        if arm == CANDIDATE:
            self._read_output = self._read_output or self._planners[CANDIDATE].reader.output()
            output = self._read_output + output
        self.result(arm).output = output

    def speed(self, name: str, speed: Speed) -> None:
        """Write the speed of an arm over eager, or that of the candidate over its reference."""
        if name == AGAINST and self._record.against is not None:
            self._record.against.speed = speed
        else:
            self.result(name).speed = speed

    def answers(self, checker: Checker, templates: Mapping[str, Template]) -> None:
        """Write how correct all arms' answers were. ``templates`` are those of the arms that did not drop out."""
        record = self._record
        record.null_from, record.dtypes = checker.null_from, checker.dtypes
        record.eager_error64 = checker.eager_errors
        record.null_accurate = bool(checker.eager_errors) and (checker.null_accurate or checker.accepts_left_out)
        for arm, standing in checker.standings.items():
            result, accuracy = self.result(arm), standing.accuracy
            result.error64 = accuracy.errors
            result.greatest_ratio64, result.mean_ratio64 = accuracy.greatest_ratios, accuracy.mean_ratios
            if standing.broken:
                result.greatest_ratio64 = [math.inf] * len(accuracy.greatest_ratios)
            result.correct_from, result.worst = standing.correct_from, standing.worst
            if standing.status != RAN:
                _mark(result, standing.status, "verify", standing.message)
            if arm in templates:
                self.printed(arm, templates[arm])
                if templates[arm].interpreted:
                    result.speed_note = "not measured (Triton's interpreter)"


def _mark(result: ArmResult, status: str, phase: str, message: str) -> None:
    result.status, result.phase, result.message = status, phase, printable(message, LINES)
    result.speed = None


def keep_earlier(record: Record, earlier: Record) -> None:
    """Merge an ``earlier`` record of the same subgraph, and its time, into ``record``. The worse result counts."""
    pairs = [(record.arm, earlier.arm)]
    if record.against is not None and earlier.against is not None:
        pairs.append((record.against.arm, earlier.against.arm))
    pairs += [(arm, earlier.baselines[name]) for name, arm in record.baselines.items() if name in earlier.baselines]
    for arm, before in pairs:
        levels = zip(arm.correct_from, before.correct_from, strict=False)
        arm.correct_from = [max(now, then) for now, then in levels] or arm.correct_from
        arm.greatest_ratio64 = worst(arm.greatest_ratio64, before.greatest_ratio64)
        arm.mean_ratio64 = worst(arm.mean_ratio64, before.mean_ratio64)
        arm.worst = arm.worst or before.worst
        arm.rounding = arm.rounding or before.rounding
        arm.output = arm.output or before.output  # passes print when they are read, which happens only once
    record.left_out = list(earlier.left_out)
    record.null_from = max(record.null_from, earlier.null_from)
    record.null_accurate = record.null_accurate and earlier.null_accurate
    for phase, seconds in earlier.durations.items():
        record.durations[phase] = record.durations.get(phase, 0.0) + seconds


@dataclass(frozen=True)
class BaselineResults:
    """The results of the baselines beside a candidate, with the dtypes and ``null_from`` of eager's outputs."""

    candidate: str = ""
    arms: dict[str, ArmResult] = field(default_factory=dict)
    dtypes: list[str] = field(default_factory=list)
    null_from: int = NEVER


@dataclass
class Baselines:
    """The known results of the baselines, by the content of the subgraph.

    The first candidate that is judged on a subgraph has them measured. If it is measured again, the later result
    replaces its first one. All other candidates get copies.
    """

    _results: dict[str, BaselineResults] = field(default_factory=dict)

    def keep(self, case: Case, record: Record) -> None:
        """Keep what a record says of its baselines, unless another candidate's record was first."""
        arms = {name: arm for name, arm in record.baselines.items() if _lasts(arm)}
        if not arms:
            return
        key = _key(case)
        if key not in self._results or self._results[key].candidate == record.candidate:
            self._results[key] = deepcopy(BaselineResults(record.candidate, arms, record.dtypes, record.null_from))

    def of_others(self) -> None:
        """Treat all results as those of other candidates, even if a candidate of the next run has the same name."""
        self._results = {key: replace(measured, candidate="") for key, measured in self._results.items()}

    def beside_others(self, case: Case) -> BaselineResults:
        """Return a copy of the results that were measured beside another candidate; empty if there are none."""
        measured = self._results.get(_key(case)) if self._results else None
        return (
            BaselineResults() if measured is None or measured.candidate == case.candidate.name else deepcopy(measured)
        )


def _key(case: Case) -> str:
    """Return a hash of the task with this subgraph alone: a resumed run leaves out some subgraphs of a task."""
    return task_hash(replace(case.task, subgraphs=(case.subgraph,)))


def _lasts(arm: ArmResult) -> bool:
    """Return True if a result is worth keeping: no fault that may pass, and no measurement that was cut short."""
    if arm.status in TRANSIENT or (arm.status == RAN and not arm.correct_from):
        return False
    return arm.speed is None or len(arm.speed.pairs) >= FIRST_LOOK
