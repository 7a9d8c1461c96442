"""The judge's handles for arms on a CUDA device: one process per arm builds the program of a subgraph and runs it.

The judge itself makes no context. It times a block with its own clock, and the device is idle at both ends.
"""

from __future__ import annotations

import array
import contextlib
import math
import os
import socket
import struct
from dataclasses import replace
from typing import Any

from pytest_passbench.core.device import is_cuda
from pytest_passbench.judge.arms import processes, replies
from pytest_passbench.judge.arms.arm import Arm, Parked
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.runner import BlockTime, Runner, place
from pytest_passbench.judge.arms.template import Answering, Fork, ForkOrder, Template
from pytest_passbench.judge.arms.wire import hear
from pytest_passbench.judge.machine.process import no_longer, prefer
from pytest_passbench.protocol import (
    FLAG_COLLECT,
    FLAG_DESCRIBE,
    FLAG_DEVICE_TIME,
    FLAG_POISON,
    FLAG_PREPARE,
    Layout,
    Order,
    ProtocolError,
    send,
)

_CREDENTIALS_BYTES = 12  # of the sender, which the kernel adds
START_SECONDS, WRITE_SECONDS = 60.0, 30.0  # for the keeper to start, and to copy inputs
PHASE = "device"  # the phase of a keeper's failures
_DOUBLE = struct.Struct("<d")


class Keeper:
    """The inputs of a subgraph in memory of the device, behind the file ``descriptor``.

    ``turn`` numbers the inputs in the pages while it is known that they do not change, and is None otherwise. They
    are copied to the device unless those of this turn are there already.
    """

    def __init__(self, arm: Arm, layout: Layout, pages_fd: int) -> None:
        """Start the process in eager's sandbox. Raises ArmFailure if the device cannot share memory."""
        message = {"op": "keeper", "device": arm.settings.device, "layout": layout.to_data()}
        self._stride, self._there = layout.stride, (0, 0)
        self.turn: int | None = None
        self._channel, self._log, _number = arm.fork(message, (pages_fd,))
        self._channel.settimeout(START_SECONDS)
        try:
            self.descriptor = self._received()
        except (ProtocolError, TimeoutError, OSError) as error:
            self._close_channel()
            raise ArmFailure("crash", PHASE, f"no memory of the device is shared: {error}") from error
        except ArmFailure:
            self._close_channel()
            raise

    def _received(self) -> int:
        """Return the memory's descriptor. Raises ArmFailure if the answer has none."""
        # The descriptor comes with the first byte. The rest of the message is read as any other.
        room = socket.CMSG_SPACE(_CREDENTIALS_BYTES) + socket.CMSG_SPACE(array.array("i").itemsize)
        _data, ancillary, _flags, _address = self._channel.recvmsg(1, room, socket.MSG_PEEK)
        descriptors = array.array("i")
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
        try:
            answer = hear(self._channel, replies.KEEPER, PHASE)
            if answer["status"] != "ready" or len(descriptors) != 1:
                raise ArmFailure("crash", PHASE, answer.get("message", "no memory came with the keeper's answer"))
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return descriptors[0]

    def put(self, calls: int) -> None:
        """Have the inputs of ``calls`` calls copied to the device, unless they are known to be there.

        Raises HarnessFault if that fails, since no candidate's code runs in the keeper.
        """
        if self._there_for(calls):
            return
        self._channel.settimeout(WRITE_SECONDS)
        try:
            send(self._channel, {"bytes": calls * self._stride})
            hear(self._channel, replies.INPUTS_WRITTEN, PHASE)
        except (ProtocolError, TimeoutError, ArmFailure) as error:
            raise HarnessFault(f"the inputs cannot be copied to the device: {error}") from error
        self._there = (self.turn or 0, calls)

    def _there_for(self, calls: int) -> bool:
        turn, there = self._there
        return self.turn is not None and turn == self.turn and there >= calls

    def close(self) -> None:
        """End the process. The memory stays until the last runner that has mapped it has ended."""
        os.close(self.descriptor)
        self._close_channel()

    def _close_channel(self) -> None:
        self._channel.close()
        self._log.close()


def start_template(arm: Arm, order: Order, layout: Layout, pages_fd: int) -> Template:
    """Return a template that builds ``order`` in the background. ``pages_fd``: input pages. Raises ArmFailure.

    On a device, a sandbox without code of a candidate may have a process parked for this arm's program since the
    subgraph before. That process then becomes the template.
    """
    on_device = is_cuda(arm.settings.device)
    stays = on_device and not arm.settings.judged
    message = {"op": "template", "order": order.to_data(), "layout": layout.to_data(), "kept": stays}
    waiting = arm.parked.pop(order.arm, None) if stays else None
    if waiting is not None:
        try:
            send(waiting.channel, message, (pages_fd,))
            return CudaTemplate(arm, waiting.channel, waiting.log, waiting.number, order.arm, waiting.pid)
        except (ProtocolError, TimeoutError):
            waiting.close()
            arm.lasting.discard(waiting.pid)
    process = arm.fork(message, (pages_fd,))
    return CudaTemplate(arm, *process, order.arm if stays else "") if on_device else Template(arm, *process)


class CudaTemplate(Template):
    """A template that becomes the runner at the first fork order, and remains the runner for the whole subgraph.

    ``program`` names the program of a process of the harness's own. Such a process is parked after its subgraph, and
    works on the next one. A process with a candidate's code has no such name, and ends.
    """

    runner: CudaRunner | None = None
    keeper: Keeper | None = None
    rehearses = False
    _may_have_threads = True  # the driver starts some

    def __init__(
        self, arm: Arm, channel: socket.socket, log: Any, number: int, program: str = "", pid: int = 0
    ) -> None:
        super().__init__(arm, channel, log, number)
        self._program, self.pid = program, pid

    def wait(self, planner: Answering | None = None) -> dict[str, Any]:
        """Wait until the program is built, as for any template. Raises ArmFailure.

        From then on, a process of the harness's own lives on when the subgraph's other processes are ended.
        """
        report = super().wait(planner)
        if self._program:
            self.arm.lasting.add(self.pid)
        return report

    def start_fork(self, order: ForkOrder) -> Fork:
        """Return the runner on its way. The first call decides how many calls a block may have.

        After an order with ``audit`` the runner stays poisoned, so such an order must be the last.
        """
        if self.runner is not None:
            return _ExistingRunner(self, self.runner, order.audit)
        return _Turning(self, super().start_fork(replace(order, idle=None)))

    def keep_inputs(self, keeper: Keeper) -> None:
        """Have the runner read its inputs from the keeper's memory."""
        self.keeper, self.shared = keeper, (keeper.descriptor,)

    def pin(self, core: int) -> None:
        """Have the process become the runner on ``core``. Once it is the runner, it stays on the arms' cores."""
        if self.runner is None:
            super().pin(core)

    @property
    def resting(self) -> list[int]:
        """The zygote alone, since the template is the process that is measured."""
        return [self.arm.zygote]

    def forked(self) -> None:
        """Do nothing: no process was forked, so no answer comes."""

    def runner_signal(self) -> int:
        """Return the signal that ended it, or 0."""
        return self.arm.reap()

    def leave(self) -> None:
        """Park the process if it will serve again. Else close the channel; the process then ends by itself."""
        runner, self.runner = self.runner, None
        if runner is not None and self.pid in self.arm.lasting and runner.sound:
            runner.release(frozenset(os.sched_getaffinity(0)))
            self.arm.parked[self._program] = Parked(self._channel, self._log, self._number, self.pid)
            return
        self._end(runner)
        super().leave()

    def close(self) -> None:
        runner, self.runner = self.runner, None
        self._end(runner)
        super().close()

    def _end(self, runner: CudaRunner | None) -> None:
        if runner is not None:
            runner.end()
        if self.pid in self.arm.lasting:
            self.arm.lasting.discard(self.pid)
            processes.kill(self.pid)


class _Turning(Fork):
    """A template that is about to become the runner."""

    def __init__(self, template: CudaTemplate, fork: Fork) -> None:
        super().__init__(template, fork.channel)
        self._cuda = template

    def wait(self, core: frozenset[int]) -> Runner:
        with self._cuda.forking(self.channel):
            self._cuda.runner = CudaRunner(self._cuda, self.channel, core)
        self._cuda.runner.keeper = self._cuda.keeper
        self._cuda.cores = set(core)
        return self._cuda.runner


class _ExistingRunner(Fork):
    """A runner that already exists."""

    def __init__(self, template: Template, runner: CudaRunner, poisoned: bool) -> None:
        super().__init__(template, runner._channel)
        self._runner, self._poisoned = runner, poisoned

    def begin(self) -> None:
        """Do nothing: no order was sent."""

    def wait(self, _core: frozenset[int]) -> Runner:
        if self._poisoned:
            self._runner.poison()
        return self._runner


class CudaRunner(Runner):
    """A runner whose inputs and outputs lie on the device.

    It copies inputs, describes outputs and poisons memory in steps that are not timed.
    """

    hello_form = replies.CUDA_RUNNER
    first_only = True
    keeper: Keeper | None = None
    _settled = frozenset[int]()

    def settle_threads(self, core: frozenset[int]) -> None:
        """Give the first thread the arms' cores and real-time priority. The others are the driver's.

        They get the judge's cores, so that none wakes up on a core of the measured thread. A thread that the first
        one starts later inherits its cores and its priority, so it is settled after the block.
        """
        others = frozenset(os.sched_getaffinity(0)) - core or core
        for thread in self.watch.threads - self._settled:
            first = thread == self.pid
            place(thread, core if first else others)
            if first:
                prefer(thread)
            else:
                no_longer(thread)
        self._settled, self._cores = self.watch.threads, core

    def block(self, calls: int, empty: bool = False, depth: int = 0) -> BlockTime:
        """Have the runner copy the inputs to the device, run a block, and describe its outputs. Raises ArmFailure."""
        if not empty:
            if self.keeper is not None:
                self.keeper.put(calls)
            self._step(calls, FLAG_PREPARE)
        duration = super().block(calls, empty, depth)
        if not empty:
            self._step(calls, FLAG_DESCRIBE)
        if self.watch.threads != self._settled:
            self.settle_threads(self._cores)
        return duration

    def poison(self) -> None:
        """Have the program's plans allocate memory full of drawn contents from now on. Raises ArmFailure."""
        self._step(0, FLAG_POISON)

    def device_seconds(self, calls: int) -> float:
        """Return the device's own seconds for ``calls`` calls on the inputs that it has. Raises ArmFailure.

        The runner states them, so they are evidence only. A statement that cannot be true counts as 0. The device
        does not wait for the process meanwhile.
        """
        self._step(calls, FLAG_DEVICE_TIME)
        (seconds,) = _DOUBLE.unpack(self.memory(self.hello["device_seconds"], _DOUBLE.size))
        return float(seconds) if math.isfinite(seconds) and seconds > 0 else 0.0

    def fetch(self, call: int) -> list[int] | None:
        """Have a call's outputs and inputs copied to the host. Return the outputs' addresses. Raises ArmFailure."""
        self._step(call, FLAG_COLLECT)
        width = self.hello["width"]
        return list(struct.unpack(f"<{width}Q", self.memory(self.hello["copies"], 8 * width)))

    def input_bytes(self, layout: Layout, _slot: int, index: int, place: range) -> bytearray:
        """Return bytes of an input of the call that was last fetched, as they were then. Raises ArmFailure."""
        return self.memory(self.hello["input_copy"] + layout.offsets[index] + place.start, len(place))

    def written(self, _layout: Layout, _slot: int, _index: int, _size: int) -> None:
        """Return None: the kernel does not know which parts of a device's memory were written to."""

    def close(self, _core: int | None = None) -> None:
        """Do nothing: the runner serves all pairs of its subgraph."""

    @property
    def sound(self) -> bool:
        """True if the process is stopped, as it is when its last step has ended well."""
        return processes.stopped(self.pid) and processes.alive(self.pid)

    def release(self, cores: frozenset[int]) -> None:
        """Close the channel, and let the process go on as an ordinary one on ``cores``."""
        for thread in self.watch.threads:
            no_longer(thread)
            place(thread, cores)
        self._channel.close()
        self.watch.close()
        with contextlib.suppress(Gone):
            processes.go_on(self.pid)

    def end(self) -> None:
        super().close()
