"""The judge of one case: its passes are read, its arms get their programs, and a trial of them follows.

It decides what is tried, and learns from a trial for later cases: the baselines' results, the machine's noise, passes
that broke a rule.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import DISQUALIFIED, RAN, Against, ArmResult, Record
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault, fault_line, is_fault
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.audits import findings
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Deadline, Stopwatch
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.inputs import default as default_generator
from pytest_passbench.judge.measure.allowance import REMEASURED, REMEASURED_TO_REFERENCE, Allowance, Budget
from pytest_passbench.judge.measure.noise import Noise
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.judge.planning.planner import TOO_SLOW_BEFORE, Planner
from pytest_passbench.judge.planning.reader_process import is_without_answer
from pytest_passbench.judge.results import Baselines, keep_earlier
from pytest_passbench.judge.trial import Trial
from pytest_passbench.protocol import Order
from pytest_passbench.timing.looks import TO_EAGER, TO_REFERENCE, Stopping
from pytest_passbench.timing.measurement import Arms

UNNEEDED = "not measured: the candidate has no speed to compare it with"


@dataclass
class _Attempt:
    """An attempt of :mod:`.attempts` at a case: its record and time. ``earlier`` is a measurement to be continued."""

    case: Case
    record: Record
    deadline: Deadline
    last: bool
    earlier: Arms | None = None
    phases: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self.phases = Stopwatch(self.record.durations)

    @property
    def name(self) -> str:
        """The name of its part of the run's secret."""
        return ("again" if self.earlier is not None else "") + ("retry" if self.last else "")


class CaseJudge:
    """The judge of one case at a time. It keeps results of earlier cases that later ones need.

    ``budget`` divides the run's time among the cases. ``noise`` is the machine's, from eager against eager.
    ``baselines`` are the results of baselines that are measured once for all candidates.
    """

    def __init__(self, equipment: Equipment) -> None:
        self._equipment, self._settings = equipment, equipment.settings
        self.budget, self.noise, self.baselines = Budget(self._settings.budget), Noise(), Baselines()
        #: By candidate, pass directory and task: passes that took too long together, with the first subgraph.
        self._too_slow: dict[tuple[str, Path, str], dict[frozenset[str], str]] = {}

    def begin(self, usual: Allowance) -> None:
        """Begin a new run, in which a subgraph has the ``usual`` allowance unless there is a budget."""
        self.budget = self.budget.renewed(usual)
        self.baselines.of_others()
        self._too_slow.clear()

    def first(self, case: Case, last: bool) -> tuple[Record, Trial | None]:
        """Judge a case for the first time. Return its record, and its trial if there was something to judge.

        A fault in the ``last`` attempt may be the baseline's or the reference's own. Raises ArmFailure or one of
        :data:`~pytest_passbench.judge.arms.failures.FAULTS` if a fault ends the attempt.
        """
        attempt = _Attempt(case, self._record(case), Deadline(self._settings.timeout), last)
        trial = self._judge(attempt)
        attempt.deadline.pause()  # until it is measured again, if it is
        return attempt.record, trial

    def remeasure(self, first: Trial, last: bool) -> tuple[Record, None]:
        """Measure a case again, from where its ``first`` trial ended. Findings stay. Raises as :meth:`first` does."""
        case, earlier, deadline = first.case, first.record, first.bench.deadline
        attempt = _Attempt(case, self._record(case), deadline, last, first.measured)
        attempt.record.findings = list(earlier.findings)
        with deadline.running():
            self._judge(attempt)
        keep_earlier(attempt.record, earlier)
        return attempt.record, None

    def _record(self, case: Case) -> Record:
        record = case.record()
        if self._equipment.reference is not None:
            record.against = Against()
        return record

    def _judge(self, attempt: _Attempt) -> Trial | None:
        fault = attempt.case.fault or self._read(attempt)
        if fault is None:
            return self._try(attempt)
        attempt.record.arm = fault
        self._complete_reference(attempt.record)
        return None

    def _read(self, attempt: _Attempt) -> ArmResult | None:
        """Have the candidate's passes read. Return the result of a candidate that cannot be run; None if it can."""
        case, equipment = attempt.case, self._equipment
        with attempt.phases("start"), attempt.deadline.paused():
            reading = equipment.readers.arm()
            reading.deadline = attempt.deadline
            others = [equipment.reference.readers.arm()] if equipment.reference is not None else []
            equipment.arms()  # these start in the background
            for starting in (reading, *others):
                starting.ready()
        with attempt.phases("read"):
            read = _read(equipment.readers, case)
        if isinstance(read, ArmResult):
            return read
        if read[1] or not case.passes.stems:
            return None
        return ArmResult("integrity", DISQUALIFIED, "its passes broke a rule on another subgraph of the run")

    def _try(self, attempt: _Attempt) -> Trial:
        """Take a case through its trial, and learn from it for later cases."""
        case, record, equipment = attempt.case, attempt.record, self._equipment
        with attempt.phases("start"), attempt.deadline.paused():
            default_generator()  # compiled when it is first asked for
            arms = equipment.arms()
            arms[CANDIDATE].deadline = attempt.deadline
            for arm in arms.values():
                arm.ready()
        with attempt.phases("other"):
            trial = self._trial(attempt, arms)
            known_programs = trial.built
            trial.judge()
            if trial.built is not None and trial.built is not known_programs:
                equipment.programs.keep(case, trial.built)
            beside = self.baselines.beside_others(case)
            record.baselines.update(beside.arms)
            if not record.dtypes:  # eager did not run for this record
                record.dtypes, record.null_from = beside.dtypes, beside.null_from
            self._complete_reference(record)
            if trial.measured is not None:
                self.noise.add(trial.measured, case.subgraph.elements)
        if record.arm.status == "timeout" and record.arm.phase != TOO_SLOW_BEFORE:
            planner = trial.planners[CANDIDATE]
            if group := planner.late or frozenset(planner.asked):
                self._too_slow.setdefault(_place(case), {})[group] = case.subgraph.id
        if record.arm.status == "integrity":
            culprits = set(trial.writer.culprits) or findings.culprits(record)
            equipment.readers.disqualify(case.candidate, case.passes, culprits)
        if is_without_answer(record.arm):
            equipment.readers.forget()
        return trial

    def _trial(self, attempt: _Attempt, arms: dict[str, Arm]) -> Trial:
        case, repeated, equipment = attempt.case, attempt.earlier is not None, self._equipment
        with attempt.phases("read"):
            planners = self.planners(case)
        orders = self.orders(case, arms, equipment.readers.passes(case.candidate, case.passes))
        self._add_reference(attempt, planners, orders)
        if repeated or not self.noise.wants(case.subgraph.elements):
            orders.pop(TWIN, None)
        for name in self.baselines.beside_others(case).arms:
            orders.pop(name, None)
        longer = REMEASURED if equipment.reference is None else REMEASURED_TO_REFERENCE
        allowance = longer if repeated else self.budget.allowance(len(orders))
        keeps = equipment.programs.enabled and not repeated
        built = equipment.programs.of(case, arms[EAGER]) if keeps else None
        pages = None if built is None else built.pages
        bench = equipment.bench(case, attempt.name, attempt.phases, attempt.deadline, pages)
        return Trial(
            case=case,
            record=attempt.record,
            orders=orders,
            planners=planners,
            arms=arms,
            bench=bench,
            stopping=self._stopping(allowance.pairs),
            allowance=allowance,
            auditor=Auditor(self._settings, bench, arms[CANDIDATE], case.operators),
            earlier=attempt.earlier,
            last=attempt.last,
            built=built,
            keeps=keeps,
        )

    def planners(self, case: Case) -> dict[str, Planner]:
        """Return the planner of each arm that has passes. Raises ArmFailure. Some benchmarks give eager one."""
        planner = self._equipment.readers.planner(case.candidate, case.passes)
        out = self._too_slow.get(_place(case), {})
        planner.begin({group: first for group, first in out.items() if first != case.subgraph.id})
        return {CANDIDATE: planner}

    def orders(self, case: Case, arms: dict[str, Arm], passes: tuple[dict[str, Any], ...]) -> dict[str, Order]:
        """Return the program of each arm. The benchmarks exchange some: eager for the candidate, for example."""
        return case.orders(self._settings, arms, passes)

    def _add_reference(self, attempt: _Attempt, planners: dict[str, Planner], orders: dict[str, Order]) -> None:
        """Add the reference's planner and program, if there is one, or write into the record why it is not run."""
        reference, against = self._equipment.reference, attempt.record.against
        if reference is None or against is None:
            return
        with attempt.phases("read"), attempt.deadline.paused():
            other = replace(attempt.case, candidate=reference.candidate)
            read = _read(reference.readers, other, attempt.last)
        if isinstance(read, ArmResult):
            against.arm = read
            if read.status == "pass_miss":
                read.message = "the reference has no passes for this task"
            orders.pop(REFERENCE)
        else:
            planners[REFERENCE] = read[0]
            orders[REFERENCE] = replace(orders[CANDIDATE], passes=read[1])

    def _complete_reference(self, record: Record) -> None:
        """Complete the reference's part of a record. End the reference's reader if it gave no answer."""
        reference, against = self._equipment.reference, record.against
        if reference is None or against is None:
            return
        if record.arm.speed is None:
            against.speed = None
        if against.arm.status == RAN and against.arm.speed is None and not against.arm.speed_note:
            against.arm.speed_note = UNNEEDED
        if is_without_answer(against.arm):
            reference.readers.forget()

    def _stopping(self, pairs: int) -> Stopping:
        """Return when to stop measuring. A ratio to a reference is often near delta, so it may take longer."""
        noise = self.noise
        delta, looks = (
            (noise.delta, TO_EAGER) if self._equipment.reference is None else (noise.head_to_head_delta, TO_REFERENCE)
        )
        return Stopping(delta, looks, max_pairs=pairs, correlation=noise.correlation)


def _read(
    readers: CandidateReaders, case: Case, last: bool = False
) -> tuple[Planner, tuple[dict[str, Any], ...]] | ArmResult:
    """Return the planner and the passes of a case's candidate, or its result if it cannot be run.

    Raises HarnessFault for a failure that may be the machine's; in the ``last`` attempt it is the candidate's.
    """
    if (fault := case.fault) is not None:
        return fault
    try:
        return readers.planner(case.candidate, case.passes), readers.passes(case.candidate, case.passes)
    except ArmFailure as failure:
        if is_fault(failure) and not last:
            raise HarnessFault(fault_line(failure)) from failure
        return ArmResult(failure.status, failure.phase, printable(failure.message, LINES))


def _place(case: Case) -> tuple[str, Path, str]:
    return case.candidate.content_hash, case.passes.path, case.task.id
