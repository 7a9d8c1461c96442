"""The judge's handles on the untrusted side: an arm (sandbox and zygote), its template, its measured runners.

Every failure of the other side comes out as :class:`ArmFailure` with the status that goes into the record.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..protocol import (
    DONE,
    FLAG_EMPTY,
    GO,
    NONCE_BYTES,
    OUTCOME_RAISED,
    TEXT_BYTES,
    Layout,
    Plan,
    ProtocolError,
    receive,
    send,
)
from . import priority, processes, sandbox
from .processes import Gone
from .watch import Watch

START_LIMIT = 120.0  # seconds for a zygote to import what it needs
OUTPUT_LIMIT = 8192  # bytes of an arm's own output that go into a record
FILE_BYTES = 256 << 20
PROCESSES = 2048
MOST_ATTEMPTS = 100  # to end all processes of a sandbox, a millisecond apart
_SO_RCVTIMEO_FORM = struct.Struct("@ll")


class ArmFailure(Exception):
    """An arm failed on a subgraph: ``status`` as in the record, the phase, a message."""

    def __init__(self, status: str, phase: str, message: str) -> None:
        self.status, self.phase, self.message = status, phase, message
        super().__init__(f"{status} in {phase}: {message}")


@dataclass(frozen=True)
class BlockTime:
    """One block: wall seconds by the judge's clock, CPU seconds of the runner."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Program:
    """What eager's template says of a subgraph: inputs changed in place (indices), number of outputs."""

    mutated: list[int]
    outputs: int


@dataclass(frozen=True)
class ArmSettings:
    """What a sandbox is started with."""

    name: str
    device: str
    threads: int
    pipeline: str
    candidate: Path | None
    walls: sandbox.Walls
    timeout: float


class Arm:
    """One sandbox with its zygote. Starts at once, in the background; :meth:`ready` waits for it."""

    def __init__(self, settings: ArmSettings) -> None:
        self.settings = settings
        self.versions: dict[str, str] = {}
        self._channel, theirs = _socket_pair()
        self._status_read, status_write = os.pipe()
        strong = settings.walls.strong
        #: Where an arm behind weak walls may write: its alone, and removed with it.
        self._scratch = None if strong else tempfile.TemporaryDirectory(prefix="passbench-")
        command = self._command(theirs.fileno(), status_write)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the arm
        self._process = subprocess.Popen(
            command,
            pass_fds=(theirs.fileno(), status_write),
            stdin=subprocess.DEVNULL,
            stdout=self._errors,
            stderr=self._errors,
            env=self._environment(),
            start_new_session=True,
        )
        os.close(status_write)
        theirs.close()
        self.zygote = 0
        self._own: set[int] = set()

    def _environment(self) -> dict[str, str]:
        own = {} if self._scratch is None else {"HOME": self._scratch.name, "TMPDIR": self._scratch.name}
        return sandbox.environment(self.settings.threads, self.settings.device, own)

    def _command(self, channel: int, status: int) -> list[str]:
        wants = {
            "arm": self.settings.name,
            "pipeline": self.settings.pipeline,
            "triton": self.settings.candidate is not None,
            "interpret": not self.settings.device.startswith("cuda"),
        }
        if self._scratch is not None:
            devices = self.settings.device.startswith("cuda")
            scratch = Path(self._scratch.name)
            wants["paths"] = sandbox.weak_paths(self.settings.candidate, scratch, devices)
        parent = str(Path(__file__).resolve().parent.parent.parent)
        start = (
            f"import sys; sys.path.insert(0, {parent!r}); from pytest_passbench.runner.zygote import main; main()"
        )
        program = [sys.executable, "-P", "-c", start, str(channel), json.dumps(wants)]
        line = sandbox.command(
            program, self.settings.walls, self.settings.candidate, self.settings.device.startswith("cuda")
        )
        if self.settings.walls.strong:
            line[1:1] = ["--json-status-fd", str(status)]
        return line

    def ready(self) -> None:
        """Wait until the zygote has imported what it needs.

        Raises UserError: no candidate has run yet, so it is this machine's or this installation's fault.
        """
        if self.zygote:
            return
        self._channel.settimeout(START_LIMIT)
        try:
            self.zygote = _peer(self._channel)
            hello = _hear(self._channel)
        except (ProtocolError, TimeoutError) as error:
            raise UserError(
                f"the sandbox of the arm {self.settings.name!r} did not start: {self._said()}",
                remedy="`passbench doctor` says what this machine lacks",
            ) from error
        self.versions = hello["versions"]

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-OUTPUT_LIMIT:].decode("utf-8", "replace").strip() or "no message"

    def start_template(self, plan: Plan, layout: Layout, pages_fd: int) -> Template:
        """Have a template forked for ``plan``; it builds in the background. Raises ArmFailure."""
        self.ready()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - the template's, closed by it
        mine, theirs = _socket_pair()
        limits = {"memory": self._memory(), "file_bytes": FILE_BYTES, "processes": PROCESSES}
        limits["network"] = self.settings.walls.strong
        order = {"op": "template", "plan": asdict(plan), "layout": layout.to_json(), "limits": limits}
        try:
            send(self._channel, order, (theirs.fileno(), pages_fd, log.fileno()))
            _hear(self._channel)
        except (ProtocolError, TimeoutError) as error:
            raise ArmFailure("crash", "fork", "the zygote is gone") from error
        finally:
            theirs.close()
        if self.settings.device.startswith("cuda"):
            from .cuda import CudaTemplate

            return CudaTemplate(self, mine, log)
        return Template(self, mine, log)

    def _memory(self) -> int:
        """Bytes of address space: CUDA reserves far more than it uses."""
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(physical * (64 if self.settings.device.startswith("cuda") else 0.6))

    def everything_inside(self) -> list[int]:
        """All processes of the sandbox but the zygote (host process ids)."""
        root = self._process.pid
        walls_own = {root, self.zygote, processes_parent(self.zygote)}
        inside = [pid for pid in processes.descendants(root) if pid not in walls_own]
        return [pid for pid in inside if processes.alive(pid)]

    def end_strays(self, template: int) -> None:
        """End what else runs in the sandbox once a template is built: compilers, and whatever a pass started.

        Raises ArmFailure where that goes on making processes.
        """
        self._own.add(template)
        for _ in range(MOST_ATTEMPTS):
            strays = self.strays()
            if not strays:
                return
            for pid in strays:
                processes.kill(pid)
            time.sleep(0.001)
        raise ArmFailure("integrity", "build", "the candidate goes on starting processes after it is built")

    def note_runner(self, pid: int) -> None:
        """Take a runner for one of ours. Raises ArmFailure where anything runs beside it that is not."""
        self._own.add(pid)
        if self.strays():
            raise ArmFailure("integrity", "fork", "a process that the candidate started still runs beside its runner")

    def strays(self) -> list[int]:
        """Processes of a candidate's sandbox that are neither templates nor runners: they are never stopped."""
        if self.settings.candidate is None:
            return []
        return [pid for pid in self.everything_inside() if pid not in self._own]

    def end_children(self) -> None:
        """Kill whatever runs in the sandbox besides the zygote, and let the zygote bury it."""
        for _ in range(MOST_ATTEMPTS):
            inside = self.everything_inside()
            if not inside:
                break
            for pid in inside:
                processes.kill(pid)
            time.sleep(0.001)
        self._own.clear()
        self.reap()

    def reap(self) -> list[list[int]]:
        """Templates that ended: pid inside, signal. Empty where the zygote is gone too."""
        try:
            send(self._channel, {"op": "reap"})
            message = _hear(self._channel)
        except (ProtocolError, TimeoutError):
            return []
        return list(message.get("ended", []))

    @property
    def alive(self) -> bool:
        """Whether the sandbox still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the sandbox and everything in it."""
        if not self.settings.walls.strong:
            for pid in self.everything_inside():
                processes.kill(pid)
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()
        os.close(self._status_read)
        if self._scratch is not None:
            self._scratch.cleanup()


def processes_parent(pid: int) -> int:
    """The parent of ``pid``, or 0 where it is gone."""
    try:
        return processes.parent(pid)
    except Gone:
        return 0


class Template:
    """A process that holds one arm's program for one subgraph, ready to be forked from."""

    def __init__(self, arm: Arm, channel: socket.socket, log: Any) -> None:
        self.arm, self._channel, self._log = arm, channel, log
        self.pid = 0
        self.report: dict[str, Any] = {}

    def wait(self) -> dict[str, Any]:
        """Wait for the program to be built; returns its report. Raises ArmFailure."""
        self._channel.settimeout(self.arm.settings.timeout)
        try:
            self.pid = _peer(self._channel)
            self.report = _hear(self._channel)
        except TimeoutError as error:
            limit = self.arm.settings.timeout
            raise ArmFailure("timeout", "build", f"not built within {limit:g} s") from error
        except ProtocolError as error:
            raise ArmFailure("crash", "build", self._how_it_ended()) from error
        if processes_parent(self.pid) != self.arm.zygote:
            raise ArmFailure("integrity", "build", "another process than the template answered")
        if self.report.get("status") != "ready":
            raise ArmFailure(
                _known_status(self.report.get("status")),
                str(self.report.get("phase", ""))[:40],
                str(self.report.get("message", ""))[-12_000:],
            )
        self.arm.end_strays(self.pid)
        return self.report

    def _how_it_ended(self) -> str:
        time.sleep(0.01)
        signals = [number for _pid, number in self.arm.reap() if number]
        return ending(signals[-1] if signals else 0, "the process that builds the candidate's program")

    def fork(self, program: Program, calls: int, core: frozenset[int], audit: bool = False) -> Runner:
        """A runner for blocks of up to ``calls`` calls, stopped. Raises ArmFailure."""
        return self.start_fork(program, calls, audit).wait(core)

    def start_fork(self, program: Program, calls: int, audit: bool = False) -> Fork:
        """Have a runner forked; several templates can do that at once. Raises ArmFailure.

        With ``audit``, one that poisons freed memory and notes operators; to the candidate it looks like any other.
        """
        mine, theirs = _socket_pair()
        order = {
            "op": "fork",
            "mutated": program.mutated,
            "outputs": program.outputs,
            "calls": calls,
            "threads": self.arm.settings.threads,
            "audit": audit,
        }
        with self.forking(mine):
            processes.go_on(self.pid)
            send(self._channel, order, (theirs.fileno(),))
        theirs.close()
        return Fork(self, mine)

    def forked(self) -> None:
        """Wait until the runner is there, and stop. Raises ArmFailure."""
        _hear(self._channel)
        processes.stop(self.pid)

    @contextlib.contextmanager
    def forking(self, channel: socket.socket) -> Iterator[None]:
        """Say of whatever goes wrong meanwhile how it ended; closes the runner's channel then."""
        try:
            yield
        except (ProtocolError, Gone) as error:
            channel.close()
            raise ArmFailure("crash", "fork", self._how_it_ended()) from error
        except TimeoutError as error:
            channel.close()
            raise ArmFailure("timeout", "fork", "the runner did not start in time") from error

    def runner_signal(self) -> int:
        """The signal that ended this template's last runner, or 0."""
        try:
            processes.go_on(self.pid)
            send(self._channel, {"op": "reap"})
            message = _hear(self._channel)
            processes.stop(self.pid)
        except (ProtocolError, TimeoutError, Gone):
            return 0
        signals = [number for _pid, number in message.get("ended", []) if number]
        return signals[-1] if signals else 0

    def output(self) -> str:
        """What the arm printed, capped, control characters made visible."""
        self._log.seek(0)
        data = self._log.read(OUTPUT_LIMIT + 1)
        text = data[:OUTPUT_LIMIT].decode("utf-8", "replace")
        return printable(text) + (" […]" if len(data) > OUTPUT_LIMIT else "")

    def leave(self) -> None:
        """Hang up; the process ends by itself. For one that shares its sandbox with another template."""
        self._channel.close()
        self._log.close()

    def close(self) -> None:
        """End the template and its runners."""
        self._channel.close()
        self._log.close()
        if self.arm.alive:
            self.arm.end_children()


class Fork:
    """A runner on its way."""

    def __init__(self, template: Template, channel: socket.socket) -> None:
        self._template, self.channel = template, channel

    def wait(self, core: frozenset[int]) -> Runner:
        """The runner, stopped. Raises ArmFailure."""
        with self._template.forking(self.channel):
            self._template.forked()
            return Runner(self._template, self.channel, core)


class Runner:
    """A measured process. Stopped, except during :meth:`block`."""

    def __init__(self, template: Template, channel: socket.socket, core: frozenset[int]) -> None:
        self.template, self._channel = template, channel
        channel.settimeout(template.arm.settings.timeout)
        self.pid = _peer(channel)
        if not self._expected():
            raise ArmFailure("integrity", "fork", "another process than the runner answered")
        self.hello = _hear(channel)
        processes.stop(self.pid)
        self.watch = Watch(self.pid)
        self.watch.wait_stopped()
        os.sched_setaffinity(self.pid, core)
        priority.prefer(self.pid)
        self._clock = processes.cpu_clock(self.pid)
        #: Whether the judge waits for answers without going to sleep: where it has a core to itself. Waking up
        #: takes as long as a short call, and while it sleeps, others on its core disturb the arm's caches.
        self.polling = core.isdisjoint(os.sched_getaffinity(0))
        self._limit(template.arm.settings.timeout)
        try:
            template.arm.note_runner(self.pid)
        except ArmFailure:
            self.close()
            raise

    def _expected(self) -> bool:
        """Whether the process that answered is the one that the template forked."""
        return processes_parent(self.pid) == self.template.pid

    def _limit(self, seconds: float) -> None:
        # A blocking socket with the kernel's own time-out: one system call less than Python's, in every block.
        self._channel.settimeout(None)
        form = _SO_RCVTIMEO_FORM.pack(int(seconds), int(seconds % 1 * 1e6))
        self._channel.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, form)

    def block(self, calls: int, empty: bool = False) -> BlockTime:
        """Run a block and stop the clock once the stop is on its way. Raises ArmFailure."""
        return self._step(calls, FLAG_EMPTY if empty else 0)

    def _step(self, calls: int, flags: int) -> BlockTime:
        pid, channel, clock = self.pid, self._channel, self._clock
        nonce = os.urandom(NONCE_BYTES)
        go = GO.pack(nonce, calls, flags)
        try:
            cpu = processes.cpu_seconds(clock)
            begin = time.perf_counter_ns()
            channel.send(go)
            os.kill(pid, signal.SIGCONT)
            answer = self._poll() if self.polling else channel.recv(DONE.size)
            os.kill(pid, signal.SIGSTOP)
            end = time.perf_counter_ns()
            self.watch.wait_stopped()
            cpu = processes.cpu_seconds(clock) - cpu
        except BlockingIOError as error:
            limit = self.template.arm.settings.timeout
            raise ArmFailure("timeout", "run", f"a block of {calls} calls took more than {limit:g} s") from error
        except (OSError, Gone) as error:
            raise self._ended() from error
        self._check(answer, nonce, calls)
        return BlockTime((end - begin) * 1e-9, cpu)

    def _poll(self) -> bytes:
        """Ask for the answer until it is there, as long as the socket's own time-out."""
        receive, deadline = self._channel.recv, time.monotonic() + self.template.arm.settings.timeout
        while True:
            try:
                return receive(DONE.size, socket.MSG_DONTWAIT)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise

    def _check(self, answer: bytes, nonce: bytes, calls: int) -> None:
        if len(answer) != DONE.size:
            raise self._ended()
        echoed, made, outcome = DONE.unpack(answer)
        if echoed != nonce or made != calls:
            raise ArmFailure("integrity", "run", "the runner's answer is not to the judge's question")
        if outcome == OUTCOME_RAISED:
            raise ArmFailure("runtime_fail", "run", self._text())

    def _text(self) -> str:
        data = processes.read_memory(self.pid, int(self.hello["text"]), TEXT_BYTES)
        return printable(bytes(data).split(b"\0", 1)[0].decode("utf-8", "replace"))

    def _ended(self) -> ArmFailure:
        time.sleep(0.01)
        message = ending(self.template.runner_signal(), "the runner")
        return ArmFailure("crash", "run", message)

    def fetch(self, _call: int) -> list[int] | None:
        """Where copies of a call's outputs lie on the host; None where the outputs themselves do."""
        return None

    def input_bytes(self, layout: Layout, slot: int, index: int, size: int) -> bytearray:
        """What a call's input holds now. Raises ArmFailure."""
        return self.memory(int(self.hello["pages"]) + slot * layout.stride + layout.offsets[index], size)

    def memory(self, address: int, size: int) -> bytearray:
        """Memory of the stopped runner. Raises ArmFailure where it has none there."""
        try:
            return processes.read_memory(self.pid, address, size)
        except Gone as error:
            raise ArmFailure("crash", "read", str(error)) from error

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self.watch.close()
        processes.kill(self.pid)


def ending(number: int, who: str) -> str:
    """How a process ended, in words."""
    if not number:
        return f"{who} ended by itself (exit) without an answer"
    name = signal.Signals(number).name
    hint = " (out of memory, or killed from outside)" if number == signal.SIGKILL else ""
    return f"{who} was killed by {name}{hint}"


def printable(text: str) -> str:
    """Control characters made visible, so that a candidate can't write to anyone's terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def _known_status(status: object) -> str:
    return str(status) if status in ("compile_fail", "runtime_fail") else "crash"


def _hear(channel: socket.socket) -> dict[str, Any]:
    """A control message; descriptors that come with it are dropped by the kernel, unopened."""
    message, _none = receive(channel, max_fds=0)
    return message


def _socket_pair() -> tuple[socket.socket, socket.socket]:
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return mine, theirs


def _peer(channel: socket.socket) -> int:
    """The process that sent the message now waiting, as the kernel says (seen from our own namespace)."""
    data, ancillary, _flags, _address = channel.recvmsg(1, socket.CMSG_SPACE(12), socket.MSG_PEEK)
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            return int(struct.unpack("3i", body[:12])[0])
    raise ProtocolError("the other side is gone" if not data else "a message without a sender")
