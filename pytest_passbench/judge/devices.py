"""The parts of judging that differ by device: the process with a program, and the clock of its blocks."""

from __future__ import annotations

from pytest_passbench.core.device import is_cuda
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.inputs.pages import MAX_DEVICE_SLOTS, MAX_SLOTS
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.protocol import Layout, Order


def start_template(arm: Arm, order: Order, layout: Layout, pages_fd: int) -> Template:
    """Return a template that builds ``order`` in the background. ``pages_fd``: input pages. Raises ArmFailure."""
    message = {"op": "template", "order": order.to_data(), "layout": layout.to_data(), "kept": False}
    if is_cuda(arm.settings.device):
        from pytest_passbench.judge.arms.cuda import start_on_device

        return start_on_device(arm, order.arm, message, pages_fd)
    channel, log, number = arm.fork(message, (pages_fd,))
    return Template(arm, channel, log, number)


def max_slots(device: str) -> int:
    """Return the greatest number of calls in a block on this device."""
    return MAX_DEVICE_SLOTS if is_cuda(device) else MAX_SLOTS


def clock_of(device: str) -> type[CpuClock]:
    """Return the class of the clock for blocks on this device."""
    if not is_cuda(device):
        return CpuClock
    from pytest_passbench.judge.measure.cuda_clock import CudaClock

    return CudaClock
