"""Eager in the candidate's place: does a fault of the machine come without the candidate too?"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Effects, Template
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.devices import clock_of, start_template
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.machine.cores import device_locks, exclusive, pinned
from pytest_passbench.protocol import Order

PAIRS, ROUNDS, CALLS = 2, 4, 4
SPARE_FILES = 48  # for a candidate: compilers' pipes, compiled kernels on their way, the reference's template
#: Statuses of an arm whose process failed. With others it has said itself that it can't run the program.
PROCESS_FAILED = frozenset({"crash", "timeout", "integrity"})


def run(order: Order, arms: Mapping[str, Arm], bench: Bench) -> None:
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
            reports = [template.wait() for template in templates.values()]
        program = Effects(list(reports[0]["mutated"]), int(reports[0]["outputs"]))
        with exclusive(bench.locks), pinned(bench.cores.judge), _spare_files():
            _call(templates, program, bench, order.device)
    except ArmFailure as failure:
        raise_if_fault(EAGER, failure)
    except ArmFailed as failed:
        raise_if_fault(EAGER, failed.failure)
    finally:
        for arm in arms.values():
            arm.end_children()
        for template in templates.values():
            template.leave()
        bench.pages.close()


def raise_if_fault(arm: str, failure: ArmFailure) -> None:
    """Raise HarnessFault if the process of an arm failed in which no candidate's code runs."""
    if failure.status in PROCESS_FAILED:
        raise HarnessFault(f"{arm}: {failure.message}") from failure


@contextlib.contextmanager
def _spare_files() -> Iterator[None]:
    """Keep files open within this context, since eager needs fewer of the judge's than an honest candidate may."""
    with contextlib.ExitStack() as stack:
        for _ in range(SPARE_FILES):
            stack.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        yield


def _call(templates: Mapping[str, Template], program: Effects, bench: Bench, device: str) -> None:
    clock = clock_of(device)(templates, program, bench, _verify_nothing)
    clock.calls = min(CALLS, bench.layout.slots)
    try:
        for _ in range(PAIRS):
            clock.fresh()
            for _ in range(ROUNDS):
                for arm in templates:
                    clock.block(arm, clock.calls)
    finally:
        clock.close()


def _verify_nothing(_runners: Mapping[str, Runner], _batch: Batch, _calls: int, _before: int) -> None:
    return
