"""The trial of one subgraph: build, probe, measure, audit, record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import AGAINST, CANDIDATE, EAGER, FLOAT64, REFERENCE, TWIN
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Effects
from pytest_passbench.judge.deadline import Pace
from pytest_passbench.judge.devices import clock_of
from pytest_passbench.judge.entries import speed_of
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.programs import Built
from pytest_passbench.judge.trial.probe import probe
from pytest_passbench.judge.trial.subject import Subject
from pytest_passbench.judge.trial.templates import Templates
from pytest_passbench.judge.trial.writer import Writer
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.timing.measurement import Arms, measure

#: Time of the audit that measuring leaves: seconds, and calls of the candidate.
AUDIT_SECONDS, AUDIT_CALLS = 0.5, 24


class Trial:
    """The trial of a subject, which completes the subject's record.

    After :meth:`judge`, ``measured`` is the measurement, if there was one. ``unsettled`` is then True if a further
    measurement is worth its time: noise left an answer open or vague, or the programs differ from a reference's and
    none that were built anew have confirmed it.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.measured: Arms | None = None
        self.unsettled = False
        self._bench = subject.bench
        self._writer = Writer(subject)
        self._templates = Templates(subject, self._writer)

    @property
    def built(self) -> Built | None:
        """Eager's programs that live on when the trial has ended, if any do."""
        return self._templates.built

    @property
    def interpreted(self) -> bool:
        """True if Triton's interpreter runs kernels of the candidate's program."""
        return self._templates.interpreted

    @property
    def culprits(self) -> frozenset[str]:
        """The passes that the candidate's failures name."""
        return self._writer.culprits

    def judge(self) -> None:
        """Judge the subject. Failures of arms go into the record and raise nothing. Raises HarnessFault."""
        subject, bench = self.subject, self._bench
        try:
            # Of the subgraph before, whose processes have mostly ended by now.
            with bench.phases("end"), bench.deadline.paused():
                for arm in subject.arms.values():
                    arm.end_children()
            with bench.phases("build"):
                with bench.device_alone():
                    self._templates.build()
                for planner in subject.planners.values():
                    planner.reader.freeze()
            self._run()
            self._templates.keep()
        finally:
            subject.auditor.note(subject.record)
            with bench.phases("end"):
                self._templates.close()

    def _run(self) -> None:
        """Probe, measure and audit. An arm that fails drops out, and the others begin again."""
        while EAGER in self._templates.ready and _judged(self._templates.ready):
            try:
                with self._bench.alone(), self._bench.phases("measure"):
                    self._probe_and_measure()
                return
            except ArmFailed as failed:
                self._templates.drop(failed)

    def _probe_and_measure(self) -> None:
        subject, bench, templates = self.subject, self._bench, self._templates.ready
        report = templates[EAGER].report
        program = Effects(list(report["mutated"]), int(report["outputs"]))
        verified = bench.secret.stream("verified calls")
        checker = Checker(bench.inputs, bench.layout, program.mutated, bench.tolerance, verified)

        def after_round(runners: Mapping[str, Runner], batch: Batch, calls: int, before: int) -> None:
            checker.after_round(runners, batch, calls, before)
            subject.auditor.after_round(runners, checker, calls, before)

        clock = clock_of(subject.orders[EAGER].device)(templates, program, bench, after_round)
        try:
            per_call = probe(clock, checker, bench, templates)
            for arm, standing in checker.standings.items():
                if standing.wrong:
                    self._templates.drop_wrong(arm)
            self._measure(clock, checker, per_call)
            if CANDIDATE in templates:
                with bench.phases("audit"):
                    subject.auditor.measured(templates[CANDIDATE], clock, checker, per_call, self.measured)
        finally:
            subject.auditor.verified(checker)
            clock.close()
            if checker.late is not None:
                checker.late.close()
        self._writer.answers(checker, templates)

    def _measure(self, clock: CpuClock, checker: Checker, per_call: Mapping[str, float]) -> None:
        """Measure the arms that are left, if any can be timed, and write their speeds."""
        subject, bench, allowance = self.subject, self._bench, self.subject.allowance
        judged = _judged(arm for arm, template in self._templates.ready.items() if not template.interpreted)
        if not judged:
            return
        timed = [EAGER, *judged, *([TWIN] if TWIN in self._templates.ready else [])]
        form = allowance.shape(max(per_call[arm] for arm in timed), clock.block_seconds, bench.layout.slots)
        clock.calls = form.calls
        clock.keep(timed)
        checker.expect_pairs(form.rounds, bench.phases.spent["verify"])
        subject.auditor.expect_pairs(form.rounds)
        earlier = subject.earlier if subject.earlier is not None and set(timed) <= set(subject.earlier.arms) else None
        if earlier is not None:
            earlier.arms = tuple(timed)
        seconds = None if allowance.seconds is None else allowance.seconds * len(timed) / 2
        self.measured, results = measure(
            clock,
            timed,
            form,
            replace(subject.stopping, seconds=seconds),
            bench.secret.stream("order of rounds"),
            earlier=earlier,
            ratios={AGAINST: (REFERENCE, CANDIDATE)} if REFERENCE in timed else {},
            more=Pace(bench.deadline, AUDIT_SECONDS + AUDIT_CALLS * per_call.get(CANDIDATE, 0.0)),
        )
        deciding = [name for name in self.measured.deciding if name != TWIN]
        decisions = [results[name].decision for name in deciding]
        self.unsettled = any(decision.worth_repeating for decision in decisions) or (
            AGAINST in deciding and earlier is None and results[AGAINST].decision.verdict in ("FASTER", "SLOWER")
        )
        for name, result in results.items():
            speed = speed_of(self.measured, name, result)
            speed.eager_device_us, speed.other_device_us = map(clock.device_us, self.measured.sides(name))
            self._writer.speed(name, speed)


def _judged(arms: Iterable[str]) -> list[str]:
    """Return those of ``arms`` that have results in the record. A reference has none without a candidate."""
    names = [arm for arm in arms if arm not in (EAGER, TWIN, FLOAT64)]
    return names if CANDIDATE in names else [arm for arm in names if arm != REFERENCE]
