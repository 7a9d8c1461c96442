"""Eager without the candidate: does it fail by itself, or only while a candidate's processes are there?"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.faults import HarnessFault
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Effects, Template
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.devices import clock_of, start_template
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.machine.cores import exclusive, pinned
from pytest_passbench.protocol import Order

PAIRS, BLOCKS, CALLS = 2, 8, 4
#: Statuses of an arm whose process failed. With others it has said itself that it can't run the program.
PROCESS_FAILED = frozenset({"crash", "timeout", "integrity"})


def run(order: Order, arm: Arm, bench: Bench, locks: list[str]) -> None:
    """Build eager's program, and call it in some blocks of fresh processes, as for a measurement.

    Raises one of :data:`~pytest_passbench.judge.arms.faults.FAULTS` if it fails. A graph that eager refuses is none.
    """
    template: Template | None = None
    try:
        bench.inputs.write(bench.inputs.draw(1), bench.pages)
        template = start_template(arm, order, bench.layout, bench.pages.fd)
        report = template.wait()
        program = Effects(list(report["mutated"]), int(report["outputs"]))
        with exclusive(locks), pinned(bench.cores.judge):
            _call(template, program, bench, order.device)
    except ArmFailure as failure:
        raise_if_fault(EAGER, failure)
    except ArmFailed as failed:
        raise_if_fault(EAGER, failed.failure)
    finally:
        arm.end_children()
        if template is not None:
            template.leave()
        bench.pages.close()


def raise_if_fault(arm: str, failure: ArmFailure) -> None:
    """Raise HarnessFault if the process of an arm failed in which no candidate's code runs."""
    if failure.status in PROCESS_FAILED:
        raise HarnessFault(f"{arm}: {failure.message}") from failure


def _call(template: Template, program: Effects, bench: Bench, device: str) -> None:
    clock = clock_of(device)({EAGER: template}, program, bench, _verify_nothing)
    clock.calls = min(CALLS, bench.layout.slots)
    try:
        for _ in range(PAIRS):
            clock.fresh()
            for _ in range(BLOCKS):
                clock.block(EAGER, clock.calls)
    finally:
        clock.close()


def _verify_nothing(_runners: Mapping[str, Runner], _batch: Batch, _calls: int, _before: int) -> None:
    return
