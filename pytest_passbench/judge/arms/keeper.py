"""The judge's handle for the process that keeps a subgraph's inputs on a device (``runner.cuda.keeper``)."""

from __future__ import annotations

import array
import os
import socket

from pytest_passbench.judge.arms import replies
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.faults import HarnessFault
from pytest_passbench.judge.arms.wire import hear
from pytest_passbench.protocol import Layout, ProtocolError, send

_CREDENTIALS_BYTES = 12  # of the sender, which the kernel adds
START_SECONDS, WRITE_SECONDS = 60.0, 30.0
PHASE = "device"  # the phase of its failures


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
        """Have the inputs of ``calls`` calls copied to the device, if they are not there.

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
