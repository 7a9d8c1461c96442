"""Attempts at judging a case, when faults end them: whose fault is a fault?"""

from __future__ import annotations

from collections.abc import Callable

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import HARNESS_FAIL, ArmResult, Record
from pytest_passbench.judge import witness
from pytest_passbench.judge.arms.failures import FAULTS, ArmFailure, fault_line
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.bench import Deadline, Stopwatch
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.reading.reader import READING
from pytest_passbench.judge.trial.trial import Trial

#: A function that judges a case, given True if it is the last attempt. Raises ArmFailure or one of FAULTS.
Judging = Callable[[bool], tuple[Record, Trial | None]]


class Attempts:
    """The attempts at judging cases. The second attempt at a case is the last one."""

    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self._broken = False  # the last subgraph could not be judged: the witness goes first

    def judge(self, case: Case, judging: Judging) -> tuple[Record, Trial | None]:
        """Return the result of judging a case, or that of a second attempt if a fault ended the first.

        A fault is the harness's only if it also comes with eager in the candidate's place. A candidate that could
        bring it about must gain nothing by it, so one that comes with the candidate alone is the candidate's crash.
        Each attempt has new processes.
        """
        said = self._witness(case) if self._broken else ""
        self._broken = bool(said)
        if said:
            return _without_result(case, HARNESS_FAIL, said), None
        for last in (False, True):
            try:
                return self._read_alone(case, judging, last)
            except FAULTS as fault:
                said = fault_line(fault)
            without = self._witness(case)
            if without:
                self._broken = True
                return _without_result(case, HARNESS_FAIL, without), None
        message = f"beside the candidate, twice, and not with eager in its place: {said}"
        return _without_result(case, "crash", message), None

    def _read_alone(self, case: Case, judging: Judging, last: bool) -> tuple[Record, Trial | None]:
        """Return the result of judging a case, which no earlier candidate has brought about in the readers' sandbox.

        A crash or a timeout while the passes are read counts if it comes in a sandbox that no other candidate used.
        """
        record, trial = _attempt(case, judging, last)
        arm, readings = record.arm, self._equipment.readings
        if arm.status not in ("crash", "timeout") or arm.phase not in READING or not readings.is_used(case.candidate):
            return record, trial
        readings.renew(case.candidate, case.passes)
        return _attempt(case, judging, last)

    def _witness(self, case: Case) -> str:
        """Run eager in the candidate's place too, in new sandboxes. Return the fault that comes, or an empty string.

        No code of the candidate runs. So the sandboxes serve the next attempt.
        """
        equipment, settings = self._equipment, self._equipment.settings
        try:
            equipment.close_sandboxes()
            reading, arms = equipment.readings.arm(), equipment.arms()
            for arm in (reading, *arms.values()):
                arm.ready()
            bench = equipment.bench(case, "witness", Stopwatch({}), Deadline(settings.timeout))
            order = case.orders(settings, [EAGER], ())[EAGER]
            witness.run(order, {name: arms[name] for name in (EAGER, CANDIDATE)}, bench)
        except FAULTS as fault:
            return fault_line(fault)
        return ""


def _attempt(case: Case, judging: Judging, last: bool) -> tuple[Record, Trial | None]:
    try:
        return judging(last)
    except ArmFailure as failure:  # its reader went while its arms started
        return _without_result(case, failure.status, printable(failure.message, LINES), failure.phase), None


def _without_result(case: Case, status: str, message: str, phase: str = "harness") -> Record:
    record = case.record()
    record.arm = ArmResult(status, phase, message)
    return record
