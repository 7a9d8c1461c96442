"""The judge's handle for a measured process, which is stopped except while a block runs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.schema import ADDRESS_END
from pytest_passbench.judge.arms import processes, replies
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure, ending
from pytest_passbench.judge.arms.processes import Gone, own_pages
from pytest_passbench.judge.arms.watch import STOP_SECONDS, Watch
from pytest_passbench.judge.arms.wire import hear, peer
from pytest_passbench.judge.machine.process import no_longer, prefer
from pytest_passbench.protocol import (
    DONE,
    FLAG_EMPTY,
    FLAG_NATIVE,
    GO,
    NONCE_BYTES,
    OUTCOME_RAISED,
    TEXT_BYTES,
    Layout,
)
from pytest_passbench.timing.rounds import MAX_NEW_PAGES

LATE = "the runner did not start"
LATE_STOP_SECONDS = 0.5
"""For a runner to stop if its candidate has no time left."""
_SO_RCVTIMEO_FORM = struct.Struct("@ll")


class Parent(Protocol):
    """The process that a runner was forked from."""

    arm: Arm
    pid: int

    def runner_signal(self) -> int:
        """Return the signal that ended its last runner, or 0."""


@dataclass(frozen=True)
class BlockTime:
    """The cost of a block: wall seconds by the judge's clock, the runner's CPU seconds, pages newly touched."""

    wall: float
    cpu: float
    touched: int

    @property
    def warm(self) -> bool:
        """True if the process had (nearly) all its memory before the block."""
        return self.touched <= MAX_NEW_PAGES


class Runner:
    """A measured process. It is stopped, except during :meth:`block`."""

    hello_form = replies.RUNNER
    #: True if only the process's first thread runs the program.
    first_only = False

    def __init__(self, template: Parent, channel: socket.socket, core: frozenset[int]) -> None:
        self.template, self._channel = template, channel
        channel.settimeout(template.arm.patience("fork", LATE))
        self.pid = peer(channel)
        if processes.parent(self.pid) != template.pid:
            raise ArmFailure("integrity", "fork", "another process than the runner answered")
        self.hello = hear(channel, self.hello_form, "fork")
        if self.hello["status"] != "ready":
            raise ArmFailure(self.hello["status"], self.hello["phase"][:40], self.hello["message"][-12_000:])
        place(self.pid, core)  # before the stop, so that it stops there and not on the judge's core
        processes.stop(self.pid)
        self.watch = Watch(self.pid, self.first_only)
        self.watch.wait_stopped()
        self.settle_threads(core)
        self._clock, self._memory = processes.cpu_clock(self.pid), self.watch.memory()
        #: True if the judge polls for answers instead of sleeping. It does so if it has a core to itself. Waking up
        #: takes as long as a short call, and other processes on the judge's core would disturb the arm's caches.
        self.polling = core.isdisjoint(os.sched_getaffinity(0))
        self._channel.settimeout(None)
        try:
            template.arm.note_runner(self.pid)
        except ArmFailure:
            self.close()
            raise

    def settle_threads(self, core: frozenset[int]) -> None:
        """Give all threads the cores ``core`` and real-time priority. Raises Gone."""
        for thread in processes.threads(self.pid):
            place(thread, core)
            prefer(thread)

    def _limit(self, seconds: float) -> None:
        # A blocking socket with the kernel's time-out needs one system call less in the timed part than Python's
        # time-out. The kernel takes 0 as no time-out.
        form = _SO_RCVTIMEO_FORM.pack(int(seconds), max(1, int(seconds % 1 * 1e6)))
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, form)

    def block(self, calls: int, empty: bool = False, depth: int = 0) -> BlockTime:
        """Run a block of ``calls`` calls, and return its times. Raises ArmFailure.

        The clock ends right after SIGSTOP is sent. ``depth`` is the index of a stack depth (``protocol.DEPTHS``).
        """
        return self._step(calls, FLAG_EMPTY if empty else 0, depth)

    def engine_empty_block(self, calls: int, depth: int) -> BlockTime:
        """Run the empty block of arms whose calls the engine makes, even if Python makes this arm's calls."""
        return self._step(calls, FLAG_EMPTY | FLAG_NATIVE, depth)

    def _step(self, calls: int, flags: int, depth: int = 0) -> BlockTime:
        pid, channel, clock = self.pid, self._channel, self._clock
        nonce = os.urandom(NONCE_BYTES)
        go = GO.pack(nonce, calls, flags, depth)
        patience = self._patience(calls)
        if not self.polling:
            self._limit(patience)
        with self._running(calls):
            cpu = processes.cpu_seconds(clock)
            begin = time.perf_counter_ns()
            channel.send(go)
            os.kill(pid, signal.SIGCONT)
            answer = self._poll(patience) if self.polling else channel.recv(DONE.size)
            os.kill(pid, signal.SIGSTOP)
            end = time.perf_counter_ns()
            self._wait_stopped(patience)
            cpu = processes.cpu_seconds(clock) - cpu
            before, self._memory = self._memory, self.watch.memory()
        self._check(answer, nonce, calls)
        touched = max(now - then for now, then in zip(self._memory, before, strict=True))
        return BlockTime((end - begin) * 1e-9, cpu, touched)

    def stopped_at(self, calls: int, depth: int, seconds: float) -> list[int]:
        """Run a block, and stop it once, ``seconds`` after its begin.

        Return the addresses of the instructions that came next, the first thread's first. There are none if the block
        ended before the stop, or if the kernel does not tell. Raises ArmFailure.
        """
        addresses, nonce, patience = list[int](), os.urandom(NONCE_BYTES), self._patience(calls)
        with self._running(calls):
            self._channel.send(GO.pack(nonce, calls, 0, depth))
            os.kill(self.pid, signal.SIGCONT)
            answer = self._answer(seconds)
            self._stop(patience)
            if answer is None and (answer := self._answer(0.0)) is None:  # it sends nothing while it is stopped
                addresses = self.watch.instructions()
                os.kill(self.pid, signal.SIGCONT)
                if (answer := self._answer(patience)) is None:
                    raise BlockingIOError
                self._stop(patience)
            self._memory = self.watch.memory()
        self._check(answer, nonce, calls)
        return addresses

    def _patience(self, calls: int) -> float:
        return self.template.arm.patience("run", self._late(calls))

    @staticmethod
    def _late(calls: int) -> str:
        return f"a block of {counted(calls, 'call')} did not end"

    @contextlib.contextmanager
    def _running(self, calls: int) -> Iterator[None]:
        """Turn the errors of a block of ``calls`` calls into ArmFailure."""
        try:
            yield
        except BlockingIOError as error:
            raise self.template.arm.late("run", self._late(calls)) from error
        except (OSError, Gone) as error:
            raise self._ended() from error

    def _stop(self, patience: float) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self._wait_stopped(patience)

    def _wait_stopped(self, patience: float) -> None:
        self.watch.stop_threads()
        self.watch.wait_stopped(min(STOP_SECONDS, patience + LATE_STOP_SECONDS))

    def _answer(self, seconds: float) -> bytes | None:
        """Return the answer if it comes within ``seconds``."""
        try:
            if self.polling:
                return self._poll(seconds)
            self._limit(seconds)
            return self._channel.recv(DONE.size)
        except BlockingIOError:
            return None

    def _poll(self, patience: float) -> bytes:
        """Poll for the answer. Raises BlockingIOError after ``patience`` seconds."""
        receive, deadline = self._channel.recv, time.monotonic() + patience
        while True:
            try:
                return receive(DONE.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise

    def _check(self, answer: bytes, nonce: bytes, calls: int) -> None:
        if len(answer) != DONE.size:
            raise self._ended()
        echoed, calls_made, outcome = DONE.unpack(answer)
        if echoed != nonce or calls_made != calls:
            raise ArmFailure("integrity", "run", "the runner's answer is not to the judge's question")
        if outcome == OUTCOME_RAISED:
            data = processes.read_memory(self.pid, self.hello["text"], TEXT_BYTES)
            text = printable(bytes(data).split(b"\0", 1)[0].decode("utf-8", "replace"), LINES)
            raise ArmFailure("runtime_fail", "run", text)

    def _ended(self) -> ArmFailure:
        time.sleep(0.01)
        return ArmFailure("crash", "run", ending(self.template.runner_signal(), "the runner"))

    def fetch(self, _call: int) -> list[int] | None:
        """Return the addresses of copies of a call's outputs; None if the outputs themselves are on the host."""
        return None

    def input_bytes(self, layout: Layout, slot: int, index: int, place: range) -> bytearray:
        """Return the present contents of the bytes ``place`` of a call's input. Raises ArmFailure."""
        return self.memory(self._input(layout, slot, index) + place.start, len(place))

    def written(self, layout: Layout, slot: int, index: int, size: int) -> list[range] | None:
        """Return the ranges of an input of ``size`` bytes that it may have written to; None if that is unknown."""
        return own_pages(self.pid, self._input(layout, slot, index), size)

    def _input(self, layout: Layout, slot: int, index: int) -> int:
        return int(self.hello["pages"]) + slot * layout.stride + layout.offsets[index]

    def memory(self, address: int, size: int) -> bytearray:
        """Return ``size`` bytes of the stopped runner's memory. Raises ArmFailure if they can't be read."""
        if not 0 <= address <= address + size < ADDRESS_END:
            raise ArmFailure("integrity", "read", f"gave {address} as an address, which no memory can have")
        try:
            return processes.read_memory(self.pid, address, size)
        except Gone as error:
            raise ArmFailure("crash", "read", str(error)) from error

    def overwrite(self, address: int, data: bytes) -> None:
        """Write ``data`` to the stopped runner's memory. Raises ArmFailure if it can't be written."""
        try:
            processes.write_memory(self.pid, address, data)
        except Gone as error:
            raise ArmFailure("crash", "read", str(error)) from error

    def close(self, core: int | None = None) -> None:
        """Kill the process. It ends in the background, on ``core`` if one is given, else on the arms' cores."""
        self._channel.close()
        self.watch.close()
        no_longer(self.pid)
        if core is not None:
            place(self.pid, frozenset({core}))
        processes.kill(self.pid)


def place(thread: int, cores: frozenset[int]) -> None:
    """Pin a thread to cores. If it is gone, the next message to its process fails and reports that."""
    with contextlib.suppress(ProcessLookupError):
        os.sched_setaffinity(thread, cores)
