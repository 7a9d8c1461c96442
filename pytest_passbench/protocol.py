"""The messages between judge and runner, which both sides share.

*Control* messages (build this, fork a runner) are JSON with a length before it, and may come with file descriptors.
*Block* messages (go, done) have a fixed layout. The outputs of a block lie in the runner's memory. The runner has
announced the addresses of tables that describe them. The judge reads tables and outputs while the runner is stopped.
No message is ever unpickled.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from pytest_passbench.core.typed import Data

READ = "read"  # stands in place of a pipeline for a sandbox of readers
BASELINE = "-baseline"  # ends the name of a baseline; its sandbox has that in place of a pipeline
MAX_DESCRIPTORS = 32  # beside one message
MAX_MESSAGE_BYTES = 1 << 22  # of a control message; a longer one is refused
LENGTH = struct.Struct("<I")  # the bytes of a control message; sent before it

NONCE_BYTES = 16
DEPTHS = 16  # number of depths of the stack at which a block may run
GO = struct.Struct("<16sIII")  # nonce, calls, flags, depth
DONE = struct.Struct("<16sII")  # nonce, calls made, outcome
FLAG_EMPTY = 1  # run the block with a call that does nothing, to time the harness itself
FLAG_PREPARE = 2  # copy the inputs of ``calls`` calls to the device
FLAG_COLLECT = 4  # copy the outputs of call number ``calls`` from the device to the host
FLAG_DESCRIBE = 8  # describe the outputs of ``calls`` calls on the device in the tables
FLAG_POISON = 16  # fill each allocation of the program's plans from now on
FLAG_NATIVE = 64  # with FLAG_EMPTY: the empty block of arms whose blocks the engine makes
FLAG_DEVICE_TIME = 32  # make ``calls`` calls while the device is held back, to time it alone
OUTCOME_OK, OUTCOME_RAISED = 0, 1

#: An output of a call: its address, and its index in the table of forms.
ENTRY = struct.Struct("<QQ")
MAX_OUTPUTS = 64
#: A form: kind, dtype, device and number of dimensions. Sizes and strides in elements follow.
MAX_DIMS = 12
FORM = struct.Struct(f"<4q{2 * MAX_DIMS}q")
MAX_FORMS = 64
KIND_TENSOR, KIND_OTHER_TYPE, KIND_SCALAR, KIND_COUNT = 0, 1, 2, 3
TEXT_BYTES = 1 << 15


class TraceHead(NamedTuple):
    """The first 64-bit numbers of the shared page of a traced call. All are 0 at first.

    ``plan`` and ``launch`` (in the plan) number the launch that began last, from 1 on, and ``running`` is 1 until it
    ends. ``memory`` is the memory (from 1 on) that it wrote beyond, and ``distance`` the bytes behind its end or, if
    negative, before its start. The rest is about a signal: ``access`` is 1 for a read of ``address``, 2 for a write.
    """

    plan: int
    launch: int
    running: int
    memory: int
    distance: int
    signal: int
    code: int
    address: int
    access: int


class TraceRow(NamedTuple):
    """The numbers of a memory that a traced launch works on. They follow the head, a row for each memory.

    ``source``, a place in :data:`TRACE_SOURCES`, and ``number`` name it in the plan. It lies from ``start`` to
    ``end``, between guards that begin at ``guard_start`` and end at ``guard_end``.
    """

    source: int
    number: int
    guard_start: int
    start: int
    end: int
    guard_end: int


TRACE_SOURCES = ("argument", "buffer", "table")
MAX_TRACED = 256
TRACE_HEAD, TRACE_ROW = len(TraceHead._fields), len(TraceRow._fields)
TRACE_BYTES = 8 * (TRACE_HEAD + MAX_TRACED * TRACE_ROW)

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "complex32", "uint16", "uint32", "uint64",
    "float8_e4m3fn", "float8_e5m2", "quint8", "qint8", "qint32",
)  # fmt: skip
DEVICES = ("cpu", "cuda", "meta")


class ProtocolError(Exception):
    """The other side is gone, or sent something that is not a message."""


@contextmanager
def to_the_end() -> Iterator[None]:
    """End this process after the context, whatever happens in it. So no fork goes on with its parent's work.

    An exception is printed, because the judge shows what a process printed last. No exception is printed when the
    judge hangs up.
    """
    try:
        with suppress(ProtocolError, ConnectionError, SystemExit):
            yield
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


@dataclass(frozen=True)
class Layout(Data):
    """The places of the inputs of each call in the shared pages.

    There are ``slots`` slots, one per call, ``stride`` bytes apart. Input ``i`` begins ``offsets[i]`` bytes into its
    slot. It is contiguous, of shape ``shapes[i]`` and of dtype ``dtypes[i]`` (torch's name).
    """

    slots: int
    stride: int
    offsets: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @property
    def size(self) -> int:
        """The bytes of all slots together."""
        return self.slots * self.stride


@dataclass(frozen=True)
class Order(Data):
    """The judge's order to build a program: the arm, its pipeline and its graph. All fields are JSON-ready."""

    arm: str  # "candidate", "eager", "float64", "roundings", or a baseline's name
    source: str
    origin: str
    device: str
    pipeline: str = "dynamo"
    passes: tuple[dict[str, Any], ...] = ()  # as data (``rewrite.passes.Pass``)


def send(channel: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a control message with file descriptors.

    Raises ProtocolError if the other side has hung up, TimeoutError if it does not read within the channel's
    time-out.
    """
    body = json.dumps(message).encode()
    data = LENGTH.pack(len(body)) + body
    try:
        sent = socket.send_fds(channel, [data], fds)
        if sent < len(data):  # if all was sent, the other side may be gone already, and sending nothing would fail
            channel.sendall(data[sent:])
    except TimeoutError:
        raise
    except OSError as error:
        raise ProtocolError(f"sending failed: {error}") from error


def receive(channel: socket.socket, max_fds: int = MAX_DESCRIPTORS) -> tuple[dict[str, Any], list[int]]:
    """Return a control message and the file descriptors beside it.

    Raises ProtocolError at end of file and for anything but a JSON object of at most :data:`MAX_MESSAGE_BYTES`.
    Raises TimeoutError if the channel's time-out passes.
    """
    fds: list[int] = []
    (length,) = LENGTH.unpack(read_exactly(channel, LENGTH.size, fds, max_fds))
    if length > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a message of {length} bytes")
    try:
        message = json.loads(read_exactly(channel, length, fds, max_fds))
    except ValueError as error:
        raise ProtocolError("not a message") from error
    if not isinstance(message, dict):
        raise ProtocolError("not a message")
    return message, fds


def read_exactly(
    channel: socket.socket, count: int, fds: list[int], max_fds: int, deadline: float | None = None
) -> bytes:
    """Return ``count`` bytes. They may arrive one at a time, but not after ``deadline`` (of time.monotonic).

    Up to ``max_fds`` file descriptors that come with them are added to ``fds``. The kernel drops others, unopened.
    Raises ProtocolError if the other side is gone, TimeoutError.
    """
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the message took too long")
            channel.settimeout(left)
        try:
            if max_fds:
                data, descriptors, _flags, _address = socket.recv_fds(channel, count - len(parts), max_fds)
                fds += descriptors
            else:
                data = channel.recv(count - len(parts))
        except TimeoutError:
            raise
        except OSError as error:
            raise ProtocolError(f"receiving failed: {error}") from error
        if not data:
            raise ProtocolError("the other side is gone")
        parts += data
    return bytes(parts)
