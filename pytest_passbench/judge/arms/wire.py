"""The judge's ends of the channels to a sandbox: who speaks is the kernel's word, and nothing is taken but messages
of a known form."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.messages import BadMessage, Schema, parse
from pytest_passbench.protocol import LENGTH, MAX_MESSAGE_BYTES, ProtocolError


def hear(channel: socket.socket, schema: Schema, phase: str, limit: int = MAX_MESSAGE_BYTES) -> Any:
    """A control message of up to ``limit`` bytes in the form of ``schema``, within the channel's time-out as a whole.

    Descriptors that come with it are dropped by the kernel, unopened. Raises ArmFailure (``integrity`` in ``phase``)
    for anything else that is said, ProtocolError where the other side is gone, TimeoutError.
    """
    try:
        return parse(schema, _body(channel, limit), limit)
    except BadMessage as bad:
        raise ArmFailure("integrity", phase, f"sent a message that is not one of the harness's: {bad}") from bad


def _body(channel: socket.socket, limit: int) -> bytes:
    patience = channel.gettimeout()
    deadline = None if patience is None else time.monotonic() + patience
    try:
        (length,) = LENGTH.unpack(_exactly(channel, LENGTH.size, deadline))
        if length > limit:
            raise BadMessage("", f"has {length} bytes, more than {limit}")
        return _exactly(channel, length, deadline)
    finally:
        channel.settimeout(patience)


def _exactly(channel: socket.socket, count: int, deadline: float | None) -> bytes:
    """So many bytes. They may come one at a time, but no longer than until the deadline."""
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the message took too long")
            channel.settimeout(left)
        try:
            data = channel.recv(count - len(parts))
        except TimeoutError:
            raise
        except OSError as error:
            raise ProtocolError(f"receiving failed: {error}") from error
        if not data:
            raise ProtocolError("the other side is gone")
        parts += data
    return bytes(parts)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Ours, which tells who speaks, and theirs."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return mine, theirs


def peer(channel: socket.socket) -> int:
    """The process that sent the message now waiting, as the kernel says (seen from our own namespace).

    Raises ProtocolError where the other side is gone, TimeoutError.
    """
    try:
        data, ancillary, _flags, _address = channel.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    except TimeoutError:
        raise
    except OSError as error:  # it ended before it had read all that it was sent
        raise ProtocolError(f"receiving failed: {error}") from error
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("3i", body[:12])[0])
    raise ProtocolError("the other side is gone" if not data else "a message without a sender")
