"""The judge's ends of the channels to a sandbox.

The kernel tells which process sent a message. Only messages of a known form are accepted.
"""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import Schema, read, refusal
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.protocol import LENGTH, MAX_MESSAGE_BYTES, ProtocolError, read_exactly


def hear(channel: socket.socket, schema: Schema, phase: str) -> Any:
    """Return a control message in the form of ``schema``, of up to the protocol's greatest number of bytes.

    The channel's time-out holds for the message as a whole. File descriptors that come with it are dropped by the
    kernel, unopened. Raises ArmFailure (``integrity`` in ``phase``) for a message of another form, ProtocolError if
    the other side is gone, TimeoutError.
    """
    timeout = channel.gettimeout()
    deadline = None if timeout is None else time.monotonic() + timeout
    try:
        (length,) = LENGTH.unpack(read_exactly(channel, LENGTH.size, [], 0, deadline))
        if length > MAX_MESSAGE_BYTES:
            raise refusal(f"has {length} bytes, more than {MAX_MESSAGE_BYTES}")
        return read(schema, read_exactly(channel, length, [], 0, deadline), MAX_MESSAGE_BYTES)
    except Rejected as rejected:
        message = f"sent a message that is not one of the harness's: {rejected}"
        raise ArmFailure("integrity", phase, message) from rejected
    finally:
        channel.settimeout(timeout)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return the judge's end, on which the kernel names the sender of each message, and the other end."""
    parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    parent_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return parent_end, child_end


def peer(channel: socket.socket) -> int:
    """Return the id of the process that sent the waiting message, as the kernel states it for the judge's namespace.

    Raises ProtocolError if the other side is gone, TimeoutError.
    """
    try:
        data, ancillary, _flags, _address = channel.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    except TimeoutError:
        raise
    except OSError as error:  # it ended before it had read all messages
        raise ProtocolError(f"receiving failed: {error}") from error
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("3i", body[:12])[0])
    raise ProtocolError("the other side is gone" if not data else "a message without a sender")
