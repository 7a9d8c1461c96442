"""The judge's ends of the channels to a sandbox: who speaks is the kernel's word, and nothing is taken but text."""

from __future__ import annotations

import socket
import struct
from typing import Any

from ..protocol import ProtocolError, receive


def hear(channel: socket.socket) -> dict[str, Any]:
    """A control message; descriptors that come with it are dropped by the kernel, unopened."""
    message, _none = receive(channel, max_fds=0)
    return message


def socket_pair() -> tuple[socket.socket, socket.socket]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return mine, theirs


def peer(channel: socket.socket) -> int:
    """The process that sent the message now waiting, as the kernel says (seen from our own namespace)."""
    data, ancillary, _flags, _address = channel.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("3i", body[:12])[0])
    raise ProtocolError("the other side is gone" if not data else "a message without a sender")
