"""Judges a case again if a fault ends the first attempt.

Eager is then run in the candidate's place: a fault that comes there too is the harness's.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import HARNESS_FAIL, ArmResult, Record
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.cuda import start_template
from pytest_passbench.judge.arms.failures import (
    FAULTS,
    ArmFailure,
    HarnessFault,
    fault_line,
    is_fault,
    is_loss,
    raise_if_fault,
)
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.bench import Bench, Deadline, Stopwatch
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.machine.cores import device_locks, exclusive, pinned
from pytest_passbench.judge.measure.cuda_clock import clock_of
from pytest_passbench.judge.planning.reader_process import READING
from pytest_passbench.judge.trial import Trial
from pytest_passbench.protocol import Order

PAIRS, ROUNDS, CALLS = 2, 4, 4
SPARE_FILES = 48  # that a candidate may need and eager does not: compilers' pipes, kernels, the reference's template
#: A function that judges a case, given True if it is the last attempt. Raises ArmFailure or one of FAULTS.
Judging = Callable[[bool], tuple[Record, Trial | None]]


def run_eager(order: Order, arms: Mapping[str, Arm], bench: Bench) -> None:
    """Build eager's program in all of ``arms``, and call it in fresh processes, as for a measurement.

    Raises one of :data:`~pytest_passbench.judge.arms.failures.FAULTS` if that fails. A graph that eager refuses is no
    fault.
    """
    templates: dict[str, Template] = {}
    try:
        bench.inputs.write(bench.inputs.draw(1), bench.pages)
        with exclusive(device_locks(bench.locks)):
            for name, arm in arms.items():
                templates[name] = start_template(arm, order, bench.layout, bench.pages.fd)
            for template in templates.values():
                template.wait()
        with exclusive(bench.locks), pinned(bench.cores.judge), _spare_files():
            _call(templates, bench, order.device)
    except (ArmFailure, ArmFailed) as error:
        raise_if_fault(EAGER, error.failure if isinstance(error, ArmFailed) else error)
    finally:
        for arm in arms.values():
            arm.end_children()
        for template in templates.values():
            template.leave()
        bench.pages.close()


@contextlib.contextmanager
def _spare_files() -> Iterator[None]:
    """Keep files open within this context, since an honest candidate may need :data:`SPARE_FILES` more than eager."""
    with contextlib.ExitStack() as stack:
        for _ in range(SPARE_FILES):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        yield


def _call(templates: Mapping[str, Template], bench: Bench, device: str) -> None:
    """Run blocks of all arms as a measurement does, and verify no output."""
    clock = clock_of(device)(templates, templates[EAGER].effects, bench, lambda *_round: None)
    clock.calls = min(CALLS, bench.layout.slots)
    try:
        for _ in range(PAIRS):
            clock.fresh()
            for _ in range(ROUNDS):
                for arm in templates:
                    clock.block(arm, clock.calls)
    finally:
        clock.close()


class Attempts:
    """The attempts at judging cases. The second attempt at a case is the last one."""

    def __init__(self, equipment: Equipment) -> None:
        self._equipment = equipment
        self._broken = False  # True if eager failed in the candidate's place: the next case begins with that test

    def judge(self, case: Case, judging: Judging) -> tuple[Record, Trial | None]:
        """Return the result of judging a case, or that of a second attempt if a fault ended the first.

        A fault is the harness's only if it also comes with eager in the candidate's place. One that comes with the
        candidate alone is the candidate's crash, so a candidate that causes a fault gains nothing by it. No candidate
        can cause the loss of one of the judge's own processes, so eager is not run after a loss.
        An attempt after a fault has new sandboxes; after a loss, only the lost sandbox is new.
        """
        fault_text = self._witness(case) if self._broken else ""
        self._broken = bool(fault_text)
        if fault_text:
            return _without_result(case, HARNESS_FAIL, fault_text), None
        lost = ""
        for last in (False, True):
            try:
                return self._read_alone(case, judging, last)
            except FAULTS as fault:
                fault_text = fault_line(fault)
                if is_loss(fault):
                    lost = fault_text
                    continue
            without = self._witness(case)
            if without:
                self._broken = True
                return _without_result(case, HARNESS_FAIL, without), None
        if lost:
            return _without_result(case, HARNESS_FAIL, lost), None
        message = f"this came twice with the candidate, and not with eager in its place: {fault_text}"
        return _without_result(case, "crash", message), None

    def _read_alone(self, case: Case, judging: Judging, last: bool) -> tuple[Record, Trial | None]:
        """Return the result of judging a case.

        If reading the passes crashes or takes too long in a sandbox that another candidate used, the case is judged
        again in a new sandbox.
        """
        record, trial = _attempt(case, judging, last)
        arm, readers = record.arm, self._equipment.readers
        if arm.status not in ("crash", "timeout") or arm.phase not in READING or not readers.is_used(case.candidate):
            return record, trial
        readers.renew(case.candidate, case.passes)
        return _attempt(case, judging, last)

    def _witness(self, case: Case) -> str:
        """Run eager in the candidate's place too, in new sandboxes. Return the fault that comes, or an empty string.

        The next attempt uses these sandboxes too, since no code of the candidate has run in them.
        """
        equipment, settings = self._equipment, self._equipment.settings
        try:
            equipment.close_sandboxes()
            reading, arms = equipment.readers.arm(), equipment.arms()
            for arm in (reading, *arms.values()):
                arm.ready()
            bench = equipment.bench(case, "witness", Stopwatch({}), Deadline(settings.timeout))
            order = case.orders(settings, [EAGER], ())[EAGER]
            run_eager(order, {name: arms[name] for name in (EAGER, CANDIDATE)}, bench)
        except FAULTS as fault:
            return fault_line(fault)
        return ""


def _attempt(case: Case, judging: Judging, last: bool) -> tuple[Record, Trial | None]:
    try:
        return judging(last)
    except ArmFailure as failure:  # its reader went while its arms started
        if is_fault(failure):
            raise HarnessFault(fault_line(failure)) from failure
        return _without_result(case, failure.status, printable(failure.message, LINES), failure.phase), None


def _without_result(case: Case, status: str, message: str, phase: str = "harness") -> Record:
    record = case.record()
    record.arm = ArmResult(status, phase, message)
    return record
