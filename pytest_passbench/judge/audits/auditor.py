"""The runtime layers around one subgraph: what to look at when, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_passbench.core.record import Finding, Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.forks import blaming
from pytest_passbench.judge.audits import clock_evidence as timing
from pytest_passbench.judge.audits import plausibility
from pytest_passbench.judge.audits.blocks import CANDIDATE, Blocks
from pytest_passbench.judge.audits.layers import chosen, note, pairs_of_blocks, violation
from pytest_passbench.judge.measure.cpu_clock import EAGER, CpuClock
from pytest_passbench.judge.verify.aliasing import FRESH, owners
from pytest_passbench.judge.verify.outputs import read_call

if TYPE_CHECKING:
    from pytest_passbench.judge.subject import Subject
    from pytest_passbench.judge.verify.checker import Checker

#: Operators that ``replacement_args`` may put into a graph: they move or describe data.
ALLOWED = frozenset({
    "view", "reshape", "expand", "expand_as", "permute", "transpose", "t", "unsqueeze", "squeeze", "flatten",
    "unflatten", "narrow", "select", "movedim", "swapaxes", "chunk", "split", "unbind", "detach", "broadcast_to",
    "view_as", "contiguous", "clone", "to", "getitem", "as_strided",
})  # fmt: skip


class Auditor:
    """One subgraph's findings. Nothing here raises for what a candidate does but ArmFailed, in a block."""

    def __init__(self, settings: Settings) -> None:
        self.layers = chosen(settings)
        self.findings: list[Finding] = []
        self._settings = settings

    @property
    def violated(self) -> bool:
        """Whether there is a violation so far."""
        return any(finding.severity == "violation" for finding in self.findings)

    def built(self, record: Record, arm: Arm) -> None:
        """The candidate's program is there: look at what was done on the way, and what was left behind."""
        if self._settings.policy != "open":
            computed = {name for item in record.passes for name in item.computed} - ALLOWED
            if computed:
                said = f"replacement_args computes: {', '.join(sorted(computed))}"
                self.findings.append(violation("plan", "args-compute", said))
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

    def _blocks(
        self, subject: Subject, clock: CpuClock, checker: Checker, per_call: Mapping[str, float]
    ) -> None:
        standing = checker.standings.get(CANDIDATE)
        if "outputs" not in self.layers or standing is None:
            return
        blocks = Blocks(
            subject.templates[CANDIDATE], clock.runners[EAGER], clock.calls, clock.program, subject.pages,
            subject.inputs, subject.cores, subject.awake, subject.secret.stream("audit"), self._settings.tolerance,
            standing, self._settings.audit == "paranoid",
        )  # fmt: skip
        pairs = pairs_of_blocks(self._settings)
        for number in range(1, pairs + 1):
            if not self.violated:
                self.findings += blocks.run(max(per_call.values()), beyond=number == pairs)

    def note(self, record: Record) -> None:
        """Put what was found into the record."""
        note(record, self.findings)
