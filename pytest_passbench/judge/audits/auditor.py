"""The auditor of a subgraph: it runs the audit's layers at the right time and collects their findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pytest_passbench.core.record import Finding, Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.audits import evidence
from pytest_passbench.judge.audits.beyond import Beyond, BeyondRounds
from pytest_passbench.judge.audits.blocks import Blocks
from pytest_passbench.judge.audits.clock_floor import ClockFloor
from pytest_passbench.judge.audits.findings import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs.beyond import Range
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.judge.verify.memory import owners
from pytest_passbench.judge.verify.outputs import read_call
from pytest_passbench.timing.measurement import Arms

#: Operators that ``replacement_args`` may put into a graph, since they only move or describe data.
ALLOWED = frozenset({
    "view", "reshape", "expand", "expand_as", "permute", "transpose", "t", "unsqueeze", "squeeze", "flatten",
    "unflatten", "narrow", "select", "movedim", "swapaxes", "chunk", "split", "unbind", "detach", "broadcast_to",
    "view_as", "contiguous", "clone", "to", "getitem", "as_strided",
})  # fmt: skip
STANDARD_BLOCKS, PARANOID_BLOCKS = 1, 4
"""Pairs of extra blocks for each subgraph."""


class Auditor:
    """The audit of a subgraph, with its findings. Its methods raise ArmFailed if an arm fails in a block."""

    def __init__(self, settings: Settings, bench: Bench, arm: Arm, operators: int) -> None:
        """Set up for a subgraph that calls so many operators. ``arm`` is the candidate's."""
        self._on = settings.audit != "off"
        self.findings: list[Finding] = []
        self._settings, self._bench, self._arm = settings, bench, arm
        self._places: BeyondRounds | None = None
        self._operators = operators

    @property
    def violated(self) -> bool:
        """True if a violation was found so far."""
        return any(finding.severity == "violation" for finding in self.findings)

    def built(self, record: Record) -> None:
        """Check how the candidate's program was built, and look for processes that were left behind."""
        if self._settings.policy != "open":
            computed = {name for item in record.passes for name in item.computed} - ALLOWED
            if computed:
                message = f"replacement_args computes: {', '.join(sorted(computed))}"
                self.findings.append(violation("plan", "args-compute", message))
        if self._on:
            self.findings += evidence.strays(self._arm)

    def expect_pairs(self, rounds: int) -> None:
        """Draw the places of the calls beyond the recorded range. A pair has ``rounds`` rounds or more."""
        self._places = BeyondRounds(self._bench.secret.stream("beyond"), rounds, self._bench.inputs.ranges())

    def after_round(self, runners: Mapping[str, Runner], checker: Checker, calls: int, before: int) -> None:
        """Make calls beyond the recorded range, if some were drawn for this round. Raises ArmFailed.

        ``calls`` is the number of calls in a block, and ``before`` that of earlier rounds of the same pair.
        """
        if self._on and self._places is not None:
            self._call_beyond(runners, checker, calls, self._places.after(before))

    def untimed(self, runners: Mapping[str, Runner], checker: Checker) -> None:
        """Make the calls beyond the recorded range for a candidate that is not timed. Raises ArmFailed."""
        if self._on:
            self._call_beyond(runners, checker, 1, self._bench.inputs.ranges())

    def verified(self, checker: Checker) -> None:
        """Look for answers that were right in some verified calls of the candidate and far off in others."""
        standing = checker.standings.get(CANDIDATE)
        outputs = standing.stability.unstable if standing is not None and self._on else []
        if outputs and not self.violated:
            message = f"output {outputs[0]} is right in some verified calls and far off in others"
            self.findings.append(violation("outputs", "unstable", message))

    def measured(
        self,
        template: Template,
        clock: CpuClock,
        checker: Checker,
        per_call: Mapping[str, float],
        measured: Arms | None,
        remeasure: Callable[[], Arms | None],
    ) -> None:
        """Look at the candidate after its calls, and run the extra blocks. Raises ArmFailed.

        ``template`` is the candidate's. ``per_call`` has the seconds per call of every arm. ``measured`` are the
        timed rounds, if there were any. ``remeasure`` times new rounds in their place, and is called if these are
        below their floor.
        """
        if not self._on:
            return
        blocks, standing = None, checker.standings.get(CANDIDATE)
        if standing is not None:
            blocks = Blocks(clock, self._bench, standing)
        if CANDIDATE in clock.runners:
            findings = self._about_clock(clock, template, blocks, measured)
            if [finding.rule for finding in findings if finding.severity == "violation"] == ["floor"]:
                try:
                    measured = remeasure()
                    findings = self._about_clock(clock, template, blocks, measured, suspected=True)
                except ArmFailed as failure:
                    if failure.arm == CANDIDATE:  # it could fail to be rid of what was found
                        self.findings += findings
                    raise
            self.findings += findings
            if measured is not None:
                self._plausibility(clock, checker, measured)
        if self._places is not None:  # else nothing is timed, and :meth:`untimed` has made these calls
            self._call_beyond(clock.runners, checker, clock.calls, self._places.unasked)
        clock.leave_only(EAGER)
        for _ in range(PARANOID_BLOCKS if self._settings.audit == "paranoid" else STANDARD_BLOCKS):
            if blocks is not None and not self.violated:
                self.findings += blocks.run(max(per_call.values()))

    def _about_clock(
        self,
        clock: CpuClock,
        template: Template,
        blocks: Blocks | None,
        measured: Arms | None,
        suspected: bool = False,
    ) -> list[Finding]:
        findings = evidence.strays(self._arm) + evidence.excess(clock, CANDIDATE)
        findings += evidence.others(clock, CANDIDATE) + evidence.slowed(*clock.slowed_pairs())
        if measured is not None:
            findings += evidence.first_call(clock, CANDIDATE, clock.calls)
            floor = ClockFloor(clock, template, self._bench, blocks, measured, self._operators, suspected)
            findings += floor.findings()
        return findings

    def _plausibility(self, clock: CpuClock, checker: Checker, measured: Arms) -> None:
        with blaming(EAGER):
            outputs = read_call(clock.runners[EAGER], 0)
            size = evidence.written(outputs, owners(clock.runners[EAGER], self._bench.layout, outputs, 0))
        seconds = measured.per_call(CANDIDATE)
        rate = clock.fill_rate()
        if rate is None:
            rate = evidence.fill_rate() * len(self._bench.cores.arms)
        self.findings += evidence.bandwidth(size, seconds, rate)
        self.findings += evidence.null_answer(checker.null_from, self._settings.tolerance)

    def _call_beyond(
        self, runners: Mapping[str, Runner], checker: Checker, calls: int, ranges: Sequence[Range]
    ) -> None:
        """Call a pair's processes, whose memory is as usual, on inputs in ``ranges`` outside the recorded one."""
        standing = checker.standings.get(CANDIDATE)
        if ranges and standing is not None and CANDIDATE in runners and not self.violated:
            Beyond(self._bench, standing, calls, self._settings.audit == "paranoid").run(runners, ranges)
