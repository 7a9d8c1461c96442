"""The trial of a case: its arms' programs are built, probed, measured and audited.

The processes of a trial live and end here. An arm that fails drops out, and the others go on.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.judge import crashes, roundings
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.cuda import start_template
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import AGAINST, CANDIDATE, EAGER, FLOAT64, REFERENCE, TWIN
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.audits.findings import note
from pytest_passbench.judge.bench import Bench, Pace
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Built
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.measure.allowance import Allowance
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.measure.cuda_clock import clock_of
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.results import Writer, pass_reports, speed_of
from pytest_passbench.judge.verify.checker import Checker, LateFloat64, WrongCall
from pytest_passbench.protocol import Order
from pytest_passbench.timing.looks import Stopping
from pytest_passbench.timing.measurement import Arms, MeasuredRatio, measure
from pytest_passbench.timing.rounds import BlockLength

#: The time that measuring leaves for the audit: seconds, and so many calls of the candidate besides.
AUDIT_SECONDS, AUDIT_CALLS = 0.5, 24
MAX_PROBES = 20
LONG_CALL_SECONDS, VERY_LONG_CALL_SECONDS = 4e-3, 40e-3  # cold caches change such calls little
FLOAT64_PROBES = 1  # probes that are compared with float64. For later calls, chance decides
PROBE_SHARE = 0.25  # of later probes that are verified
SETTLED = 0.9  # of the least time before. A probe that takes longer shows that calls no longer get faster


@dataclass(eq=False)
class Trial:
    """A case with an order for each arm, its inputs and the arms' sandboxes; :meth:`judge` completes its record.

    ``planners`` answer requests about the passes of the arms that have any. ``earlier`` is a measurement to continue.
    Without ``stopping`` nothing is timed: the probe's calls are verified, and that is all.
    A ``last`` attempt takes the crash of a baseline for the baseline's own. ``built`` are eager's programs of an
    earlier case on the subgraph. If there are none and the trial ``keeps`` its own, ``built`` is set to its own.

    After :meth:`judge`, ``measured`` is the measurement, if there was one. ``unsettled`` is then True if a further
    measurement is worth its time: noise left the verdict open, or the candidate differs from its reference and no
    second build has confirmed that yet. ``interpreted``: Triton's interpreter runs kernels of the candidate.
    """

    case: Case
    record: Record
    orders: Mapping[str, Order]
    planners: Mapping[str, Planner]
    arms: Mapping[str, Arm]
    bench: Bench
    stopping: Stopping | None
    allowance: Allowance
    auditor: Auditor
    last: bool
    earlier: Arms | None = None
    built: Built | None = None
    keeps: bool = False
    measured: Arms | None = None
    unsettled: bool = False
    interpreted: bool = False

    def __post_init__(self) -> None:
        self.writer = Writer(self.record, self.planners, self.auditor, self.last)
        self._templates = Templates(self)
        self._wrong_call: WrongCall | None = None

    def judge(self) -> None:
        """Judge the case. Failures of arms go into the record and raise nothing. Raises HarnessFault."""
        bench = self.bench
        try:
            # These are processes of the subgraph before. Most have ended by now.
            with bench.phases("end"), bench.deadline.paused():
                for arm in self.arms.values():
                    arm.end_children()
            with bench.phases("build"):
                with bench.device_alone():
                    self._templates.build()
                for planner in self.planners.values():
                    planner.reader.freeze()
            self._run()
            self._explain_rounding()
            self._templates.keep()
        finally:
            note(self.record, self.auditor.findings)
            with bench.phases("end"):
                self._templates.close()

    def _explain_rounding(self) -> None:
        """Write which operator's rounding a wrong answer in half precision leaves out, if that explains it."""
        bench, order, arm = self.bench, self.orders[EAGER], self.record.arm
        wrong = arm.status == RAN and arm.first_correct > bench.tolerance
        if self._wrong_call is None or not wrong or self.earlier is not None or is_cuda(order.device):
            return
        with bench.alone(), bench.phases("audit"), bench.deadline.paused():
            arm.rounding = roundings.explained(order, self.arms[EAGER], bench, self._wrong_call)

    @property
    def eager_ran(self) -> bool:
        """True if eager was built, and called without a failure."""
        return EAGER in self._templates.ready

    def _run(self) -> None:
        """Probe, measure and audit. An arm that fails drops out, and the others begin again."""
        while EAGER in self._templates.ready and _judged(self._templates.ready):
            try:
                with self.bench.alone(), self.bench.phases("measure"):
                    self._probe_and_measure()
                return
            except ArmFailed as failed:
                self._templates.drop(failed)

    def _probe_and_measure(self) -> None:
        bench, templates = self.bench, self._templates.ready
        program = templates[EAGER].effects
        verified = bench.secret.stream("verified calls")
        by_engine = {arm for arm, template in templates.items() if template.native(program)}
        checker = Checker(bench.inputs, bench.layout, program.mutated, bench.tolerance, verified, by_engine)

        def after_round(runners: Mapping[str, Runner], batch: Batch, calls: int, before: int) -> None:
            checker.after_round(runners, batch, calls, before)
            self.auditor.after_round(runners, checker, calls, before)

        clock = clock_of(self.orders[EAGER].device)(templates, program, bench, after_round)
        try:
            length = self.allowance.block_length(clock.block_seconds, bench.layout.slots)
            per_call = probe(clock, checker, bench, templates, length)
            for arm, standing in checker.standings.items():
                if standing.wrong:
                    self._templates.drop_wrong(arm)
            if self.stopping is not None:
                if CANDIDATE in templates and templates[CANDIDATE].interpreted:
                    with bench.phases("audit"):
                        self.auditor.untimed(clock.runners, checker)  # its runner ends before others are timed
                timing = partial(self._measure, clock, checker, per_call, length.seconds, self.stopping)
                timing(self.earlier)
                if CANDIDATE in templates:
                    with bench.phases("audit"):
                        self.auditor.measured(templates[CANDIDATE], clock, checker, per_call, self.measured, timing)
        finally:
            self.auditor.verified(checker)
            clock.close()
            if checker.late is not None:
                checker.late.close()
        self.writer.answers(checker, templates)
        self._wrong_call = checker.wrong_call

    def _measure(
        self,
        clock: CpuClock,
        checker: Checker,
        per_call: Mapping[str, float],
        block: float,
        stopping: Stopping,
        earlier: Arms | None = None,
    ) -> Arms | None:
        """Measure the arms that are left, if any can be timed. Write their speeds, and return the measurement."""
        bench, allowance = self.bench, self.allowance
        judged = _judged(arm for arm, template in self._templates.ready.items() if not template.interpreted)
        if not judged:
            return None
        timed = [EAGER, *judged, *([TWIN] if TWIN in self._templates.ready else [])]
        call = max(per_call[arm] for arm in timed)
        form = allowance.shape(call, block, clock.block_seconds, bench.layout.slots)
        clock.calls = form.calls
        clock.keep(timed)
        checker.expect_pairs(form.rounds)
        self.auditor.expect_pairs(form.rounds)
        if earlier is not None and set(timed) <= set(earlier.arms):
            earlier.arms = tuple(timed)
        else:
            earlier = None
        seconds = None if allowance.seconds is None else allowance.seconds * len(timed) / 2
        self.measured, results = measure(
            clock,
            timed,
            form,
            replace(stopping, seconds=seconds),
            bench.secret.stream("order of rounds"),
            earlier=earlier,
            ratios={AGAINST: (REFERENCE, CANDIDATE)} if REFERENCE in timed else {},
            more=Pace(bench.deadline, AUDIT_SECONDS + AUDIT_CALLS * per_call.get(CANDIDATE, 0.0)),
        )
        self._write_speeds(clock, results, continued=earlier is not None)
        return self.measured

    def _write_speeds(self, clock: CpuClock, results: Mapping[str, MeasuredRatio], continued: bool) -> None:
        assert self.measured is not None
        deciding = [name for name in self.measured.deciding if name != TWIN]
        decisions = [results[name].decision for name in deciding]
        self.unsettled = any(decision.worth_repeating for decision in decisions) or (
            AGAINST in deciding and not continued and results[AGAINST].decision.verdict in ("FASTER", "SLOWER")
        )
        for name, result in results.items():
            speed = speed_of(self.measured, name, result)
            speed.eager_device_us, speed.other_device_us = map(clock.device_us, self.measured.sides(name))
            self.writer.speed(name, speed)


def _judged(arms: Iterable[str]) -> list[str]:
    """Return those of ``arms`` that have results in the record. A reference has none without a candidate."""
    names = [arm for arm in arms if arm not in (EAGER, TWIN, FLOAT64)]
    return names if CANDIDATE in names else [arm for arm in names if arm != REFERENCE]


class Templates:
    """The templates of a trial's arms, from their fork to their end. An arm that fails drops out, with a reason.

    ``ready`` are those with a program, by arm.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.ready: dict[str, Template] = {}
        self._forked: list[Template] = []
        self._float64_lost = False

    def build(self) -> None:
        """Fork a template for each arm that has none, side by side, and wait until all have built their programs."""
        orders, bench = self._trial.orders, self._trial.bench
        with bench.deadline.paused():
            bench.inputs.write(bench.inputs.draw(1), bench.pages)
        if self._trial.built is not None:
            self.ready.update(self._trial.built.templates)
        started = {arm: self._start(arm) for arm in orders if arm not in self.ready}
        reference = self._start_float64() if started.get(EAGER) is not None else None
        for arm, template in started.items():
            if template is not None:
                with bench.deadline.paused(arm != CANDIDATE):
                    self._wait(arm, template)
        if reference is not None:
            with bench.deadline.paused():
                self._wait_float64(reference)
        # The same order, whether templates were kept or built now.
        self.ready = {arm: self.ready[arm] for arm in (*orders, FLOAT64) if arm in self.ready}

    def _start(self, arm: str) -> Template | None:
        try:
            return self._fork(arm, self._trial.orders[arm])
        except ArmFailure as failure:
            self._trial.writer.failed(arm, failure)
            return None

    def _start_float64(self) -> Template | None:
        """Start eager in float64 in eager's sandbox, as the reference for rounding errors. Return None on failure."""
        try:
            return self._fork(EAGER, replace(self._trial.orders[EAGER], arm=FLOAT64))
        except ArmFailure:
            return None

    def _fork(self, arm: str, order: Order) -> Template:
        bench = self._trial.bench
        template = start_template(self._trial.arms[arm], order, bench.layout, bench.pages.fd)
        self._forked.append(template)
        return template

    def _wait(self, arm: str, template: Template) -> None:
        record, auditor = self._trial.record, self._trial.auditor
        try:
            with blaming(arm):
                report = template.wait(self._trial.planners.get(arm))
                if arm == CANDIDATE:
                    self._note_built(template)
        except ArmFailed as failed:
            self._trial.writer.failed(arm, failed.failure, template)
            template.close()
            return
        if arm == CANDIDATE and auditor.violated:
            note(record, auditor.findings)
            self._trial.writer.printed(arm, template)
            template.close()
        elif report["missed"] or (template.uncounted and not _matches(template)):
            self._trial.writer.missed(arm, template)
            template.close()
        else:
            self.ready[arm] = template
            self._trial.writer.built(arm, template)

    def _note_built(self, template: Template) -> None:
        record, auditor = self._trial.record, self._trial.auditor
        items = template.report["passes"]
        record.passes = pass_reports(items, template.untuned, template.plans, template.uncounted)
        self._trial.interpreted = template.interpreted
        with self._trial.bench.phases("audit"):
            auditor.findings += template.findings
            auditor.built(record)

    def _wait_float64(self, template: Template) -> None:
        try:
            template.wait()
            self.ready[FLOAT64] = template
        except ArmFailure:
            template.leave()  # the graph has no float64 form, so there are no rounding errors in the record

    def drop(self, failed: ArmFailed) -> None:
        """End the template of an arm that failed while it ran."""
        template = self.ready.pop(failed.arm)
        if failed.arm == FLOAT64:
            self._float64_lost = True
            template.leave()
        else:
            self._trial.writer.failed(failed.arm, self._explained(failed, template), template)
            template.close()

    def _explained(self, failed: ArmFailed, template: Template) -> ArmFailure:
        """Return the failure. If a kernel crashed, add its launch and the likely cause to the message."""
        bench = self._trial.bench
        if failed.arm not in self._trial.planners or failed.failure.status != "crash":
            return failed.failure
        with bench.phases("audit"), bench.deadline.paused():
            with bench.alone():
                failure = crashes.explained(failed.failure, template, bench.layout.slots)
            if failure is not failed.failure:
                failure.add(crashes.sanitizers_report(template, self._trial.planners[failed.arm].root))
            return failure

    def drop_wrong(self, arm: str) -> None:
        """End the template of an arm whose answers no criterion accepts, since its speed would not count."""
        template = self.ready.pop(arm)
        self._trial.writer.result(arm).speed_note = "not measured: the outputs are wrong"
        self._trial.writer.printed(arm, template)
        template.close()

    def keep(self) -> None:
        """Let eager's programs live on if the trial ``keeps`` them and none has failed. Reap their ended runners."""
        lasting = {arm: self.ready[arm] for arm in (EAGER, FLOAT64) if arm in self.ready}
        if self._trial.keeps and EAGER in lasting and not self._float64_lost:
            for template in lasting.values():
                template.last()
            if self._trial.built is None:
                self._trial.built = Built(self._trial.bench.pages, lasting)

    def close(self) -> None:
        """End all processes without waiting. They take a while to end, and the next subgraph waits for that."""
        for arm in self._trial.arms.values():
            arm.kill_children()
        lasting = [] if self._trial.built is None else list(self._trial.built.templates.values())
        for template in self._forked:
            if template not in lasting:
                template.leave()
        if self._trial.built is None:
            self._trial.bench.pages.close()


def _matches(template: Template) -> bool:
    """Return True if a pass has a match that counts."""
    return any(report.matches for report in pass_reports(template.report["passes"], uncounted=template.uncounted))


def probe(
    clock: CpuClock, checker: Checker, bench: Bench, programs: Collection[str], length: BlockLength
) -> dict[str, float]:
    """Return the seconds per call of every arm, from blocks that look like any other. Some calls are verified.

    ``programs`` are the arms, and eager in float64 if it has been built. The checker takes over its runner.
    A single call after a stop has cold caches, and may take several times as long as one in a row. So blocks grow
    until they are about as long as the measured ones, whose ``length`` is found meanwhile. Raises ArmFailed.
    """
    clock.calls = bench.layout.slots
    clock.fork()
    calls, arms = 1, [arm for arm in programs if arm != FLOAT64]
    times, exact = dict.fromkeys(arms, math.inf), 0.0
    for number in range(MAX_PROBES):
        before = max(times.values())
        if number == FLOAT64_PROBES:
            runner = clock.take_out(FLOAT64)
            if runner is not None:
                checker.use_later(LateFloat64(runner, bench, exact + checker.reference_seconds), bench)
            checker.share = PROBE_SHARE
        for arm in arms:
            times[arm] = min(times[arm], clock.block(arm, calls).per_call)
        if number < FLOAT64_PROBES and FLOAT64 in programs:
            exact = clock.block(FLOAT64, calls).seconds
        slowest = max(times.values())
        warm = all(clock.warm[arm] for arm in arms)
        if number and slowest > (LONG_CALL_SECONDS if warm else VERY_LONG_CALL_SECONDS):
            break
        if slowest > SETTLED * before:  # repetition does not make it faster
            if length.suffices(calls, times):
                if warm:
                    break
                continue
            calls, times = length.longer(calls, slowest), dict.fromkeys(arms, math.inf)
    return times
