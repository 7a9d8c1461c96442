"""The reference of a head to head run (``--passbench-against``): another candidate, read and built like the first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import RAN, ArmResult, Record
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault, fault_line, is_fault
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.judge.reading.readings import Readings

UNNEEDED = "not measured: there was no candidate to hold against it"


@dataclass(frozen=True)
class Reference:
    """The reference of a run, with readers of its own: neither it nor the candidate sees the other's files."""

    candidate: Candidate
    readings: Readings

    def read(self, case: Case, last: bool) -> tuple[Planner, tuple[dict[str, Any], ...]] | ArmResult:
        """Return the reference's planner and passes for a case, or what speaks against running them.

        Raises HarnessFault for a failure that may be the machine's; in the ``last`` attempt it is the reference's.
        """
        reference_case = replace(case, candidate=self.candidate)
        fault = reference_case.fault()
        if fault is not None:
            missing = ArmResult(fault.status, fault.phase, "the reference has no passes for this task")
            return missing if fault.status == "pass_miss" else fault
        try:
            planner = self.readings.planner(self.candidate, reference_case.passes)
            return planner, self.readings.passes(self.candidate, reference_case.passes)
        except ArmFailure as failure:
            if is_fault(failure) and not last:
                raise HarnessFault(fault_line(failure)) from failure
            return ArmResult(failure.status, failure.phase, printable(failure.message, LINES))

    def after(self, record: Record) -> None:
        """Complete a record once its subgraph is judged; end a reader that gave no answer."""
        against = record.against
        if against is None:
            return
        if record.arm.speed is None:
            against.speed = None
        arm = against.arm
        if arm.status == RAN and arm.speed is None and not arm.speed_note:
            arm.speed_note = UNNEEDED
        if arm.status in ("crash", "timeout", "integrity") and arm.phase in ("wrapper", "plan", "load"):
            self.readings.forget()
