"""One subgraph through all stations: build, probe, measure, record."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..protocol import Layout, Plan
from ..report.record import Arm as ArmRecord
from ..report.record import PassReport, Record, Speed
from ..score.ladder import NEVER
from ..timing.looks import Stopping
from ..timing.rounds import shape
from ..timing.session import Arms, Result, measure
from .arm import Arm, ArmFailure, Program, Template, printable
from .checker import Checker
from .clock import EAGER, ArmFailed, CpuClock
from .cores import Cores, exclusive, pinned
from .inputs import Inputs
from .pages import Pages

CANDIDATE = "candidate"
PROBE_CALLS = 2
VERIFIED_PER_PAIR = 1.5


@dataclass
class Subject:
    """What is judged: plans per arm on one subgraph, its inputs, and where the arms run."""

    record: Record
    plans: Mapping[str, Plan]
    arms: Mapping[str, Arm]
    layout: Layout
    pages: Pages
    inputs: Inputs
    cores: Cores
    locks: list[str]
    stopping: Stopping
    tolerance: int
    rng: random.Random
    templates: dict[str, Template] = field(default_factory=dict)
    measured: Arms | None = None

    def judge(self) -> Record:
        """Take the subgraph through. Never raises for what an arm does."""
        try:
            self._build()
            if EAGER in self.templates and len(self.templates) > 1:
                self._run()
        finally:
            self._close()
        return self.record

    def result(self, arm: str) -> ArmRecord:
        """The part of the record that is about ``arm``."""
        if arm == CANDIDATE:
            return self.record.arm
        return self.record.baselines.setdefault(arm, ArmRecord())

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.record.durations[name] = self.record.durations.get(name, 0.0) + time.perf_counter() - begin

    def _build(self) -> None:
        with self._phase("build"):
            self.inputs.write(self.inputs.draw(1), self.pages)
            started = {arm: self._start(arm) for arm in self.plans}
            for arm, template in started.items():
                if template is not None:
                    self._wait(arm, template)

    def _start(self, arm: str) -> Template | None:
        try:
            return self.arms[arm].start_template(self.plans[arm], self.layout, self.pages.fd)
        except ArmFailure as failure:
            self._failed(arm, failure)
            return None

    def _wait(self, arm: str, template: Template) -> None:
        try:
            report = template.wait()
        except ArmFailure as failure:
            self._failed(arm, failure, template)
            template.close()
            return
        if arm == CANDIDATE:
            self.record.passes = pass_reports(report.get("passes", []))
        if report.get("missed"):
            self._missed(template)
            return
        self.templates[arm] = template

    def _missed(self, template: Template) -> None:
        misses = [f"{p.name}: {p.miss}" for p in self.record.passes if p.miss]
        self._mark(self.record.arm, "pass_miss", "match", "; ".join(misses) or "no pass changed the graph")
        self.record.arm.output = template.output()
        template.close()

    def _failed(self, arm: str, failure: ArmFailure, template: Template | None = None) -> None:
        """Write a failure down where it belongs: eager's is the subgraph's own."""
        if arm == EAGER:
            self._mark(self.record.arm, "eager_fail", failure.phase, failure.message)
            return
        result = self.result(arm)
        self._mark(result, failure.status, failure.phase, failure.message)
        if template is not None:
            result.output = template.output()

    @staticmethod
    def _mark(result: ArmRecord, status: str, phase: str, message: str) -> None:
        result.status, result.phase, result.message = status, phase, printable(message)
        result.speed = None

    def _run(self) -> None:
        """Probe, then measure what is worth it; an arm that fails drops out and the others begin again."""
        while len(self.templates) > 1:
            try:
                with exclusive(self.locks), pinned(self.cores.judge):
                    self._probe_and_measure()
                return
            except ArmFailed as failed:
                template = self.templates.pop(failed.arm)
                self._failed(failed.arm, failed.failure, template)
                template.close()
                if failed.arm == EAGER:
                    return

    def _probe_and_measure(self) -> None:
        report = self.templates[EAGER].report
        program = Program(list(report["mutated"]), int(report["outputs"]))
        checker = Checker(self.inputs, program.mutated, self.tolerance, self.rng)
        clock = CpuClock(
            self.templates, program, self.pages, self.inputs, self.cores.arms, checker.after_round, self.rng
        )
        try:
            per_call = self._probe(clock)
            self._drop_wrong(checker)
            timed = [arm for arm in self.templates if not self._interpreted(arm)]
            if len(timed) > 1:
                self._measure(clock, checker, per_call, timed)
        finally:
            clock.close()
            self._note_clock(clock)
        self._note_standings(checker)

    def _probe(self, clock: CpuClock) -> dict[str, float]:
        """Seconds per call of every arm, from blocks that look like any other; their calls are verified."""
        with self._phase("probe"):
            clock.calls = 1
            clock.fresh()
            times: dict[str, float] = {}
            for _ in range(PROBE_CALLS):
                for arm in self.templates:
                    taken = clock.block(arm, 1).per_call
                    times[arm] = min(taken, times.get(arm, taken))
            return times

    def _interpreted(self, arm: str) -> bool:
        return bool(self.templates[arm].report.get("interpreted"))

    def _drop_wrong(self, checker: Checker) -> None:
        """An arm that is right at no t has no speed that would count."""
        for arm, standing in checker.standings.items():
            if standing.status != "correct" or NEVER in standing.correct_from:
                self.result(arm).speed_note = "not measured: the outputs are wrong"
                template = self.templates.pop(arm)
                self.result(arm).output = template.output()
                template.close()

    def _measure(self, clock: CpuClock, checker: Checker, per_call: dict[str, float], timed: list[str]) -> None:
        slowest = max(per_call[arm] for arm in timed)
        form = shape(slowest, arms=len(timed), max_calls=self.layout.slots)
        clock.calls = form.calls
        checker.share = min(1.0, VERIFIED_PER_PAIR / form.rounds)
        with self._phase("measure"):
            measured, results = measure(clock, timed, form, self.stopping, self.rng)
        self.measured = measured
        for arm, result in results.items():
            self.result(arm).speed = speed_of(measured, arm, result)

    def _note_clock(self, clock: CpuClock) -> None:
        for phase, seconds in clock.spent.items():
            self.record.durations[phase] = self.record.durations.get(phase, 0.0) + seconds

    def _note_standings(self, checker: Checker) -> None:
        self.record.null_from, self.record.dtypes = checker.null_from, checker.dtypes
        for arm, standing in checker.standings.items():
            result = self.result(arm)
            result.correct_from, result.worst = standing.correct_from, standing.worst
            if standing.status != "correct":
                self._mark(result, standing.status, "verify", standing.message)
            if arm in self.templates:
                result.output = self.templates[arm].output()
                if self._interpreted(arm):
                    result.speed_note = "not measured (Triton's interpreter)"

    def _close(self) -> None:
        for template in self.templates.values():
            template.close()
        self.pages.close()


def speed_of(measured: Arms, arm: str, result: Result) -> Speed:
    """An arm's speed as the record keeps it."""
    estimate = result.estimate
    return Speed(
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        verdict=result.decision.verdict,
        eager_us=measured.per_call(EAGER) * 1e6,
        other_us=measured.per_call(arm) * 1e6,
        pairs=[list(pair) for pair in measured.log_ratios(arm)],
    )


def pass_reports(items: Iterable[Mapping[str, Any]]) -> list[PassReport]:
    """What a candidate's runner says of its passes, capped and escaped: information, no verdict rests on it."""
    return [
        PassReport(
            name=printable(str(item.get("name", "")))[:200],
            matches=int(item.get("matches", 0)),
            operators=[printable(str(op))[:60] for op in item.get("operators", [])][:500],
            miss=printable(str(item.get("miss", "")))[:1000],
            computed=[printable(str(op))[:60] for op in item.get("computed", [])][:50],
        )
        for item in list(items)[:200]
    ]
