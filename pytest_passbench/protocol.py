"""What judge and runner say to each other: the only module that both sides share.

Two forms. *Control* messages (build this, fork a runner) are length-prefixed JSON, with file descriptors beside
them where needed. *Block* messages (go, done) have a fixed layout; what a block produced lies in the runner's
memory, in tables whose addresses the runner announced, and the judge reads it there while the runner is stopped.
Nothing is ever unpickled.
"""

from __future__ import annotations

import array
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

READ = "read"  # in place of a pipeline: a sandbox for readers
MAX_DESCRIPTORS = 32  # beside one message
LIMIT = 1 << 22  # bytes of one control message; more is not a message of ours
LENGTH = struct.Struct("<I")  # of a control message, before it

NONCE_BYTES = 16
DEPTHS = 16  # of the stack, at which a block may run
GO = struct.Struct("<16sIII")  # nonce, calls, flags, depth
DONE = struct.Struct("<16sII")  # nonce, calls made, outcome
FLAG_EMPTY = 1  # run the block with a call that does nothing: what the harness itself costs
FLAG_PREPARE = 2  # put the inputs of so many calls on the device
FLAG_COLLECT = 4  # bring what call number ``calls`` left on the device to the host
OUTCOME_OK, OUTCOME_RAISED = 0, 1

#: One output of one call: address, index into the table of forms.
ENTRY = struct.Struct("<QQ")
MAX_OUTPUTS = 64
#: A form: kind, dtype, device, number of dimensions; then sizes and strides in elements.
MAX_DIMS = 12
FORM = struct.Struct(f"<4q{2 * MAX_DIMS}q")
MAX_FORMS = 64
KIND_TENSOR, KIND_OTHER_TYPE, KIND_SCALAR, KIND_COUNT = 0, 1, 2, 3
TEXT_BYTES = 1 << 15

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "complex32", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "quint8", "qint8", "qint32",
)  # fmt: skip
DEVICES = ("cpu", "cuda", "meta")


class ProtocolError(Exception):
    """The other side is gone, or said something that is not a message."""


@dataclass(frozen=True)
class Layout:
    """Where the inputs of each call lie in the shared pages.

    ``slots`` calls, ``stride`` bytes apart; input ``i`` of a slot begins ``offsets[i]`` bytes into it and is
    contiguous with ``shapes[i]`` and ``dtypes[i]``.
    """

    slots: int
    stride: int
    offsets: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes of all slots together."""
        return self.slots * self.stride

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready builtins."""
        return {
            "slots": self.slots,
            "stride": self.stride,
            "offsets": list(self.offsets),
            "shapes": [list(shape) for shape in self.shapes],
            "dtypes": list(self.dtypes),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Layout:
        """Reads what :meth:`to_json` wrote."""
        shapes = tuple(tuple(shape) for shape in data["shapes"])
        return cls(data["slots"], data["stride"], tuple(data["offsets"]), shapes, tuple(data["dtypes"]))


@dataclass(frozen=True)
class Order:
    """The judge's order: which arm, how, on which graph. JSON-ready builtins only."""

    arm: str  # "candidate", "eager", or a baseline's name
    source: str
    origin: str
    device: str
    pipeline: str = "dynamo"
    passes: tuple[dict[str, Any], ...] = ()  # as data (``rewrite.passes.Pass``)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Order:
        """Reads the form in which the judge sends it."""
        return cls(**{**data, "passes": tuple(data["passes"])})


def send(channel: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a control message, with descriptors. Raises ProtocolError where nobody listens any more."""
    body = json.dumps(message).encode()
    data = LENGTH.pack(len(body)) + body
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    try:
        sent = channel.sendmsg([data], rights)
        channel.sendall(data[sent:])
    except OSError as error:
        raise ProtocolError(f"sending failed: {error}") from error


def receive(channel: socket.socket, max_fds: int = MAX_DESCRIPTORS) -> tuple[dict[str, Any], list[int]]:
    """Receive a control message and its descriptors.

    Raises ProtocolError at end of file or on what is not a JSON object, TimeoutError when the channel's time-out
    passes.
    """
    fds: list[int] = []
    head = _exactly(channel, LENGTH.size, fds, max_fds)
    (length,) = LENGTH.unpack(head)
    if length > LIMIT:
        raise ProtocolError(f"a message of {length} bytes")
    try:
        message = json.loads(_exactly(channel, length, fds, max_fds))
    except ValueError as error:
        raise ProtocolError("not a message") from error
    if not isinstance(message, dict):
        raise ProtocolError("not a message")
    return message, fds


def _exactly(channel: socket.socket, count: int, fds: list[int], max_fds: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            data, ancillary, _flags, _address = channel.recvmsg(
                count - len(parts), socket.CMSG_SPACE(4 * max_fds)
            )
        except TimeoutError:
            raise
        except OSError as error:
            raise ProtocolError(f"receiving failed: {error}") from error
        fds.extend(_descriptors(ancillary))
        if not data:
            raise ProtocolError("the other side is gone")
        parts += data
    return bytes(parts)


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    found = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return list(found)
