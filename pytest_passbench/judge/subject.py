"""The judging of one subgraph: build, probe, measure, audit, record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import RAN, ArmResult, Record
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.faults import HarnessFault, fault_line, is_fault
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import AGAINST, CANDIDATE, EAGER, FLOAT64, REFERENCE, TWIN
from pytest_passbench.judge.arms.template import Effects, Template
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.deadline import Pace
from pytest_passbench.judge.devices import clock_of, start_template
from pytest_passbench.judge.entries import pass_reports, speed_of
from pytest_passbench.judge.machine.cores import device_locks, exclusive, pinned
from pytest_passbench.judge.measure.allowance import Allowance
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.programs import Built
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.judge.verify.late import LateReference
from pytest_passbench.judge.witness import raise_if_fault
from pytest_passbench.protocol import Order
from pytest_passbench.timing.looks import Stopping
from pytest_passbench.timing.measurement import Arms, measure
from pytest_passbench.timing.rounds import BLOCK_SECONDS, calls_per_block, shape

MAX_PROBES = 20
LONG_CALL_SECONDS, VERY_LONG_CALL_SECONDS = 4e-3, 40e-3  # cold caches change such calls little
REFERENCES = 1  # probes that are compared with float64. Of later calls, chance decides
PROBE_SHARE = 0.25  # of later probes that are verified
SETTLED = 0.9  # of the time seen before. A slower probe shows that calls no longer get faster
MIN_BLOCK_SHARE = 0.7  # of the length of a measured block, for the last probe
#: Time of the audit that measuring leaves: seconds, and calls of the candidate.
AUDIT_SECONDS, AUDIT_CALLS = 0.5, 24


@dataclass
class Subject:
    """A subgraph that is judged: an order for each arm, its inputs, and the arms' sandboxes.

    ``planners`` answer requests about the passes of the arms that have any. ``earlier`` is a measurement to continue.
    A ``last`` attempt takes the crash of a baseline for the baseline's own. ``built`` are eager's programs of an
    earlier case on the subgraph. If there are none and the subject ``keeps`` its own, they live on when it has ended,
    and ``built`` has them then.
    After :meth:`judge`, ``measured`` is the measurement, and ``twin`` the result of a second eager. ``noisy`` is then
    True if noise left an answer open or vague.
    """

    case: Case
    record: Record
    orders: Mapping[str, Order]
    planners: Mapping[str, Planner]
    arms: Mapping[str, Arm]
    bench: Bench
    locks: list[str]
    stopping: Stopping
    allowance: Allowance
    auditor: Auditor
    earlier: Arms | None = None
    last: bool = False
    built: Built | None = None
    keeps: bool = False
    templates: dict[str, Template] = field(default_factory=dict)
    twin: ArmResult = field(default_factory=ArmResult)
    measured: Arms | None = None
    noisy: bool = False
    culprits: frozenset[str] = frozenset()
    _read_output: str = ""
    _forked: list[Template] = field(default_factory=list)
    _reference_lost: bool = False

    def judge(self) -> Record:
        """Judge the subgraph and return its record. Failures of arms go into the record and raise nothing."""
        try:
            # Of the subgraph before, whose processes have mostly ended by now.
            with self.bench.phases("end"), self.bench.deadline.paused():
                for arm in self.arms.values():
                    arm.end_children()
            with self.bench.phases("build"):
                with self._device_alone():
                    self._build()
                for planner in self.planners.values():
                    planner.reader.freeze()
            self._run()
            self._keep()
        finally:
            self.auditor.note(self.record)
            with self.bench.phases("end"):
                self._close()
        return self.record

    def result(self, arm: str) -> ArmResult:
        """Return the part of the record about ``arm``."""
        if arm == CANDIDATE:
            return self.record.arm
        if arm == REFERENCE and self.record.against is not None:
            return self.record.against.arm
        if arm == TWIN:
            return self.twin
        return self.record.baselines.setdefault(arm, ArmResult())

    def _build(self) -> None:
        deadline = self.bench.deadline
        with deadline.paused():
            self.bench.inputs.write(self.bench.inputs.draw(1), self.bench.pages)
        if self.built is not None:
            self.templates.update(self.built.templates)
        started = {arm: self._start(arm) for arm in self.orders if arm not in self.templates}
        reference = self._start_reference() if started.get(EAGER) is not None else None
        for arm, template in started.items():
            if template is not None:
                with deadline.paused(arm != CANDIDATE):
                    self._wait(arm, template)
        if reference is not None:
            with deadline.paused():
                self._wait_reference(reference)
        in_order = (arm for arm in (*self.orders, FLOAT64) if arm in self.templates)
        # The same order, whether templates were kept or built now.
        self.templates = {arm: self.templates[arm] for arm in in_order}

    def _start_reference(self) -> Template | None:
        """Start eager in float64 in eager's sandbox, as the reference for rounding errors. Return None on failure."""
        try:
            return self._forked_for(EAGER, replace(self.orders[EAGER], arm=FLOAT64))
        except ArmFailure:
            return None

    def _wait_reference(self, template: Template) -> None:
        try:
            template.wait()
            self.templates[FLOAT64] = template
        except ArmFailure:
            template.leave()  # the graph has no float64 form, so there are no rounding errors in the record

    def _start(self, arm: str) -> Template | None:
        try:
            return self._forked_for(arm, self.orders[arm])
        except ArmFailure as failure:
            self._failed(arm, failure)
            return None

    def _forked_for(self, arm: str, order: Order) -> Template:
        template = start_template(self.arms[arm], order, self.bench.layout, self.bench.pages.fd)
        self._forked.append(template)
        return template

    def _wait(self, arm: str, template: Template) -> None:
        try:
            with blaming(arm):
                report = template.wait(self.planners.get(arm))
                if arm == CANDIDATE:
                    self._note_built(template)
        except ArmFailed as failed:
            self._failed(arm, failed.failure, template)
            template.close()
            return
        if arm == CANDIDATE and self.auditor.violated:
            self.auditor.note(self.record)
            self.record.arm.output = self._output(CANDIDATE, template)
            template.close()
            return
        if report["missed"]:
            self._missed(arm, template)
            return
        self.templates[arm] = template

    def _note_built(self, template: Template) -> None:
        self.record.passes = pass_reports(template.report["passes"], template.untuned, template.plans)
        with self.bench.phases("audit"):
            self.auditor.findings += template.findings
            self.auditor.built(self.record)

    def _missed(self, arm: str, template: Template) -> None:
        result, passes = self.result(arm), pass_reports(template.report["passes"])
        self._mark(result, "pass_miss", "match", misses.message(passes))
        result.output = self._output(arm, template)
        template.close()

    def _failed(self, arm: str, failure: ArmFailure, template: Template | None = None) -> None:
        """Write a failure into the record: eager's is the subgraph's own, others are the arm's.

        Raises HarnessFault for a failure that may be the machine's: that of eager's process, and in a first attempt
        that of a baseline's.
        """
        if is_fault(failure) and not (arm == REFERENCE and self.last):
            raise HarnessFault(fault_line(failure)) from failure
        if arm == EAGER:
            raise_if_fault(arm, failure)
            self._mark(self.record.arm, "eager_fail", failure.phase, failure.message)
            return
        if arm not in (CANDIDATE, REFERENCE, TWIN) and failure.status == "crash" and not self.last:
            raise_if_fault(arm, failure)
        result = self.result(arm)
        message = self.planners[arm].located(failure.message) if arm in self.planners else failure.message
        self._mark(result, failure.status, failure.phase, message)
        if arm == CANDIDATE:
            self.auditor.findings += failure.findings
            self.culprits |= failure.culprits
        if template is not None:
            result.output = self._output(arm, template)

    def _output(self, arm: str, template: Template) -> str:
        """Return the printed output of an arm. The candidate's includes that of reading its passes."""
        if arm != CANDIDATE:
            return template.output()
        self._read_output = self._read_output or self.planners[CANDIDATE].reader.output()
        return self._read_output + template.output()

    @staticmethod
    def _mark(result: ArmResult, status: str, phase: str, message: str) -> None:
        result.status, result.phase, result.message = status, phase, printable(message, LINES)
        result.speed = None

    def _run(self) -> None:
        """Probe, measure and audit. An arm that fails drops out, and the others begin again."""
        while EAGER in self.templates and self._judged(self.templates):
            try:
                with self._alone(), self.bench.phases("measure"):
                    self._probe_and_measure()
                return
            except ArmFailed as failed:
                self._drop(failed)

    @contextmanager
    def _device_alone(self) -> Iterator[None]:
        """Hold the lock of the device, if there is one: builds use it, and tuning measures on it."""
        with ExitStack() as held:
            names = device_locks(self.locks)
            if names:
                with self.bench.phases("wait"), self.bench.deadline.paused():
                    held.enter_context(exclusive(names))
            yield

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the arms' cores within this context, alone and awake."""
        with self.bench.phases("wait"), ExitStack() as held:
            with self.bench.deadline.paused():
                for context in exclusive(self.locks), pinned(self.bench.cores.judge), self.bench.awake.on():
                    held.enter_context(context)
            yield

    def _drop(self, failed: ArmFailed) -> None:
        template = self.templates.pop(failed.arm)
        if failed.arm == FLOAT64:
            self._reference_lost = True
            template.leave()
        else:
            self._failed(failed.arm, failed.failure, template)
            template.close()

    @staticmethod
    def _judged(arms: Iterable[str]) -> list[str]:
        """Return those of ``arms`` that have results in the record. A reference has none without a candidate."""
        found = [arm for arm in arms if arm not in (EAGER, TWIN, FLOAT64)]
        return found if CANDIDATE in found else [arm for arm in found if arm != REFERENCE]

    def _probe_and_measure(self) -> None:
        report = self.templates[EAGER].report
        program = Effects(list(report["mutated"]), int(report["outputs"]))
        verified = self.bench.secret.stream("verified calls")
        checker = Checker(self.bench.inputs, self.bench.layout, program.mutated, self.bench.tolerance, verified)
        clock = clock_of(self.orders[EAGER].device)(self.templates, program, self.bench, checker.after_round)
        try:
            per_call = self._probe(clock, checker)
            self._drop_wrong(checker)
            timed = self._judged(arm for arm in self.templates if not self._interpreted(arm))
            if timed:
                twin = [TWIN] if TWIN in self.templates else []
                self._measure(clock, checker, per_call, [EAGER, *timed, *twin])
            if CANDIDATE in self.templates:
                with self.bench.phases("audit"):
                    template = self.templates[CANDIDATE]
                    self.auditor.measured(template, clock, checker, per_call, self.measured)
        finally:
            clock.close()
            if checker.late is not None:
                checker.late.close()
        self._note_standings(checker)

    def _probe(self, clock: CpuClock, checker: Checker) -> dict[str, float]:
        """Return the seconds per call of every arm, from blocks that look like any other. Some calls are verified.

        A single call after a stop has cold caches, and may take several times as long as one in a row. So blocks grow
        until they are about as long as the measured ones.
        """
        clock.calls = self.bench.layout.slots
        clock.fork()
        calls, arms = 1, [arm for arm in self.templates if arm != FLOAT64]
        times, exact = dict.fromkeys(arms, math.inf), 0.0
        for number in range(MAX_PROBES):
            before = max(times.values())
            if number == REFERENCES:
                runner = clock.take_out(FLOAT64)
                if runner is not None:
                    checker.late = LateReference(runner, self.bench, exact + checker.reference_seconds)
                checker.share = PROBE_SHARE
            for arm in arms:
                times[arm] = min(times[arm], clock.block(arm, calls).per_call)
            if number < REFERENCES and FLOAT64 in self.templates:
                exact = clock.block(FLOAT64, calls).seconds
            slowest = max(times.values())
            warm = all(clock.warm[arm] for arm in arms)
            if number and slowest > (LONG_CALL_SECONDS if warm else VERY_LONG_CALL_SECONDS):
                break
            if slowest > SETTLED * before:  # repetition does not make it faster
                if calls * slowest > MIN_BLOCK_SHARE * clock.block_seconds or calls == self.bench.layout.slots:
                    if warm:
                        break
                    continue
                wanted = calls_per_block(slowest, clock.block_seconds, self.bench.layout.slots)
                calls, times = max(wanted, min(3 * calls, self.bench.layout.slots)), dict.fromkeys(arms, math.inf)
        return times

    def _interpreted(self, arm: str) -> bool:
        return bool(self.templates[arm].report.get("interpreted"))

    def _drop_wrong(self, checker: Checker) -> None:
        """Drop the arms that no criterion accepts, since their speed would not count."""
        for arm, standing in checker.standings.items():
            if standing.wrong:
                self.result(arm).speed_note = "not measured: the outputs are wrong"
                template = self.templates.pop(arm)
                self.result(arm).output = self._output(arm, template)
                template.close()

    def _measure(self, clock: CpuClock, checker: Checker, per_call: dict[str, float], timed: list[str]) -> None:
        slowest = max(per_call[arm] for arm in timed)
        longer = clock.block_seconds / BLOCK_SECONDS if self.allowance.seconds is None else 1.0
        form = shape(
            slowest,
            target=clock.block_seconds,
            pair=self.allowance.pair * longer,
            max_calls=self.bench.layout.slots,
            precise=self.allowance.precise,
        )
        clock.calls = form.calls
        clock.keep(timed)
        checker.expect_pairs(form.rounds, self.bench.phases.spent["verify"])
        earlier = self.earlier if self.earlier is not None and set(timed) <= set(self.earlier.arms) else None
        if earlier is not None:
            earlier.arms = tuple(timed)
        seconds = self.allowance.seconds
        stopping = replace(self.stopping, seconds=None if seconds is None else seconds * len(timed) / 2)
        self.measured, results = measure(
            clock,
            timed,
            form,
            stopping,
            self.bench.secret.stream("order of rounds"),
            earlier=earlier,
            ratios={AGAINST: (REFERENCE, CANDIDATE)} if REFERENCE in timed else {},
            more=Pace(self.bench.deadline, AUDIT_SECONDS + AUDIT_CALLS * per_call.get(CANDIDATE, 0.0)),
        )
        deciding = [name for name in self.measured.deciding if name != TWIN]
        self.noisy = any(results[name].decision.worth_repeating for name in deciding)
        for name, result in results.items():
            speed = speed_of(self.measured, name, result)
            speed.eager_device_us, speed.other_device_us = map(clock.device_us, self.measured.sides(name))
            if name == AGAINST and self.record.against is not None:
                self.record.against.speed = speed
            else:
                self.result(name).speed = speed

    def _note_standings(self, checker: Checker) -> None:
        self.record.null_from, self.record.dtypes = checker.null_from, checker.dtypes
        self.record.eager_error64 = checker.eager_errors
        self.record.null_accurate = bool(checker.eager_errors) and checker.null_accurate
        for arm, standing in checker.standings.items():
            result, accuracy = self.result(arm), standing.accuracy
            result.error64 = accuracy.errors
            result.greatest_ratio64, result.mean_ratio64 = accuracy.greatest_ratios, accuracy.mean_ratios
            if standing.broken:
                result.greatest_ratio64 = [math.inf] * len(accuracy.greatest_ratios)
            result.correct_from, result.worst = standing.correct_from, standing.worst
            if standing.status != RAN:
                self._mark(result, standing.status, "verify", standing.message)
            if arm in self.templates:
                result.output = self._output(arm, self.templates[arm])
                if self._interpreted(arm):
                    result.speed_note = "not measured (Triton's interpreter)"

    def _keep(self) -> None:
        """Let eager's programs live on, if they are to and none of them has failed."""
        kept = {arm: self.templates[arm] for arm in (EAGER, FLOAT64) if arm in self.templates}
        if self.keeps and self.built is None and EAGER in kept and not self._reference_lost:
            for template in kept.values():
                template.last()
            self.built = Built(self.bench.pages, kept)

    def _close(self) -> None:
        """End all processes without waiting. They take a while to end, and the next subgraph waits for that."""
        for arm in self.arms.values():
            arm.kill_children()
        lasting = [] if self.built is None else list(self.built.templates.values())
        for template in self._forked:
            if template not in lasting:
                template.leave()
        if self.built is None:
            self.bench.pages.close()
