"""The runtime layers around one subgraph: what to look at when, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...report.record import Finding, Record
from ...settings import Settings
from ..aliasing import FRESH, owners
from ..arm import Arm
from ..clock import EAGER, CpuClock
from ..forks import blaming
from ..outputs import read_call
from . import evidence, plausibility, timing
from .blocks import CANDIDATE, Blocks
from .layers import chosen, note, pairs_of_blocks, violation

if TYPE_CHECKING:
    from ..checker import Checker
    from ..subject import Subject


class Auditor:
    """One subgraph's findings. Nothing here raises for what a candidate does but ArmFailed, in a block."""

    def __init__(self, settings: Settings) -> None:
        self.layers = chosen(settings)
        self.findings: list[Finding] = []
        self._settings = settings

    @property
    def watched(self) -> bool:
        """Whether the candidate's processes are to note what they do."""
        return bool(self.layers & {"load", "dispatch"})

    @property
    def violated(self) -> bool:
        """Whether there is a violation so far."""
        return any(finding.severity == "violation" for finding in self.findings)

    def built(self, report: Mapping[str, Any], record: Record, arm: Arm) -> None:
        """The candidate's program is there: what was done on the way, and what was left behind."""
        if "load" in self.layers:
            self.findings += evidence.from_events(report.get("events"))
        if "dispatch" in self.layers:
            computed = [f"aten::{name}" for item in record.passes for name in item.computed]
            self.findings += [
                violation("dispatch", "args-compute", f"replacement_args computes: {found.message}")
                for found in evidence.from_operators(computed, self._settings.policy)
            ]
        if "clock" in self.layers:
            self.findings += timing.strays(arm)

    def measured(self, subject: Subject, clock: CpuClock, checker: Checker, per_call: Mapping[str, float]) -> None:
        """The candidate was measured, or at least called. Raises ArmFailed."""
        if CANDIDATE not in subject.templates or not self.layers:
            return
        subject.record.null_from = checker.null_from
        if CANDIDATE in clock.runners:
            self._timed(subject, clock)
            self._physics(subject, clock)
            self._noted(clock)
        clock.leave_only(EAGER)
        self._blocks(subject, clock, checker, per_call)

    def _timed(self, subject: Subject, clock: CpuClock) -> None:
        if "clock" not in self.layers:
            return
        self.findings += timing.strays(subject.arms[CANDIDATE]) + timing.excess(clock, CANDIDATE)
        self.findings += timing.others(clock, CANDIDATE)
        if subject.measured is not None:
            self.findings += timing.first_call(clock, CANDIDATE, clock.calls)

    def _physics(self, subject: Subject, clock: CpuClock) -> None:
        if "plausibility" not in self.layers or subject.measured is None:
            return
        with blaming(EAGER):
            outputs = read_call(clock.runners[EAGER], 0)
            owned = owners(clock.runners[EAGER], subject.layout, outputs, 0)
        size = plausibility.written(outputs, owned, FRESH)
        seconds = subject.measured.per_call(CANDIDATE)
        self.findings += plausibility.floor(size, seconds, len(subject.cores.arms))
        self.findings += plausibility.null_answer(subject.record.null_from, self._settings.tolerance)

    def _noted(self, clock: CpuClock) -> None:
        if "load" in self.layers:
            with blaming(CANDIDATE):
                self.findings += evidence.from_events(evidence.read(clock.runners[CANDIDATE]).get("events"))

    def _blocks(
        self, subject: Subject, clock: CpuClock, checker: Checker, per_call: Mapping[str, float]
    ) -> None:
        standing = checker.standings.get(CANDIDATE)
        if not self.layers & {"dispatch", "outputs", "load"} or standing is None:
            return
        blocks = Blocks(
            subject.templates[CANDIDATE], clock.runners[EAGER], clock.calls, clock.program, subject.pages,
            subject.inputs, subject.cores, subject.awake, subject.rng, self._settings.policy,
            self._settings.tolerance, self.layers, standing,
        )  # fmt: skip
        for _ in range(pairs_of_blocks(self._settings)):
            if not self.violated:
                self.findings += blocks.run(max(per_call.values()))

    def note(self, record: Record) -> None:
        """Put what was found into the record."""
        note(record, self.findings)
