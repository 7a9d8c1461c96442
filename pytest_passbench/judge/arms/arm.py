"""An arm: one sandbox with its zygote, and the templates that are forked in it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import IMPORTED_FROM
from pytest_passbench.judge.arms import processes, replies, sandbox
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.wire import hear, peer, socket_pair
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.protocol import READ, ProtocolError, send

START_TIMEOUT_SECONDS = 120.0  # for a zygote to import what it needs
MAX_FILE_BYTES = 256 << 20
MAX_PROCESSES = 2048
MAX_OUTPUT_BYTES = 8192  # of an arm's printed output that go into a record
NAME_WIDTH = 24  # characters: names on command lines are padded, since the length changes an arm's speed
MAX_ATTEMPTS = 100  # to end all processes of a sandbox, one millisecond apart


@dataclass(frozen=True)
class ArmSettings:
    """The settings that a sandbox is started with. ``timeout`` is in seconds, for each answer."""

    name: str
    device: str
    threads: int
    pipeline: str
    walls: sandbox.Walls
    timeout: float
    candidate: Path | None = None  # the folder to be read, in a reader's sandbox
    judged: bool = False  # runs a candidate's kernels


class Arm:
    """A sandbox with its zygote. It starts in the background at once; :meth:`ready` waits for it."""

    def __init__(self, settings: ArmSettings) -> None:
        self.settings = settings
        self.versions: dict[str, str] = {}
        self._channel, theirs = socket_pair()
        self._status_read, status_write = os.pipe()
        strong = settings.walls.strong
        #: The only folder that an arm without bubblewrap may write to. It is removed with the arm.
        self._scratch = None if strong else Scratch()
        send(self._channel, self._wants())
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
        own = {} if self._scratch is None else dict.fromkeys(("HOME", "TMPDIR"), str(self._scratch.path))
        if self.settings.pipeline == READ:
            own["TRITON_INTERPRET"] = ""  # launches are recorded, not interpreted
        return sandbox.environment(self.settings.threads, self.settings.device, own)

    def _wants(self) -> dict[str, Any]:
        """Return the zygote's first message. Eager's is the same as the candidate's.

        The modules in a process and their addresses make a program some per cent faster or slower. The command line
        lies above the stack and would move it, so this goes through the channel.
        """
        wants: dict[str, Any] = {"pipeline": self.settings.pipeline}
        if self._scratch is not None:
            devices = is_cuda(self.settings.device)
            wants["paths"] = sandbox.weak_paths(self.settings.candidate, self._scratch.path, devices)
        return wants

    def _command(self, channel: int, status: int) -> list[str]:
        parent = str(IMPORTED_FROM)
        start = f"import sys; sys.path.insert(0, {parent!r}); from pytest_passbench.runner.zygote import main; main()"
        program = [sys.executable, "-P", "-c", start, f"{channel:08}", f"{self.settings.name:{NAME_WIDTH}}"]
        line = sandbox.command(program, self.settings.walls, self.settings.candidate, is_cuda(self.settings.device))
        if self.settings.walls.strong:
            line[1:1] = ["--json-status-fd", str(status)]
        return line

    def ready(self) -> None:
        """Wait until the zygote has imported its modules.

        Raises UserError if it fails: no candidate has run yet, so the machine or the installation is at fault.
        """
        if self.zygote:
            return
        self._channel.settimeout(START_TIMEOUT_SECONDS)
        try:
            self.zygote = peer(self._channel)
            hello = hear(self._channel, replies.ZYGOTE, "start")
        except (ProtocolError, TimeoutError, ArmFailure) as error:
            self._errors.seek(0)
            said = self._errors.read()[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace").strip() or "no message"
            raise UserError(
                f"the sandbox of the arm {self.settings.name!r} did not start: {said}",
                remedy="`passbench doctor` says what this machine lacks",
            ) from error
        self.versions = hello["versions"]

    def fork(
        self, message: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> tuple[socket.socket, IO[bytes], int]:
        """Have the zygote fork a child that works on an order. ``descriptors`` are sent along with the order.

        Return the judge's end of the child's channel, the file with what it prints, and its process id inside
        the sandbox. Raises ArmFailure if the zygote does not answer, UserError if the sandbox did not start.
        """
        self.ready()
        log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
        mine, theirs = socket_pair()
        limits = {"memory": self._memory(), "file_bytes": MAX_FILE_BYTES, "processes": MAX_PROCESSES}
        limits["network"] = self.settings.walls.strong
        try:
            send(self._channel, {**message, "limits": limits}, (theirs.fileno(), *descriptors, log.fileno()))
            number = int(hear(self._channel, replies.FORKED, "fork")["forked"])
        except (ProtocolError, TimeoutError) as error:
            raise ArmFailure("crash", "fork", "the zygote is gone") from error
        finally:
            theirs.close()
        return mine, log, number

    def _memory(self) -> int:
        """Return the limit of a child's address space in bytes. CUDA reserves far more than it uses."""
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(physical * (64 if is_cuda(self.settings.device) else 0.6))

    def everything_inside(self) -> list[int]:
        """Return the process ids, as the host sees them, of all processes of the sandbox but the zygote."""
        root = self._process.pid
        walls_own = {root, self.zygote, processes.parent_if_any(self.zygote)}
        inside = [pid for pid in processes.descendants(root) if pid not in walls_own]
        return [pid for pid in inside if processes.alive(pid)]

    def end_strays(self, template: int) -> None:
        """End the other processes of the sandbox once a template is built, such as compilers.

        Raises ArmFailure if new processes keep appearing.
        """
        self._own.add(template)
        for _ in range(MAX_ATTEMPTS):
            strays = self.strays()
            if not strays:
                return
            for pid in strays:
                processes.kill(pid)
            time.sleep(0.001)
        raise ArmFailure("integrity", "build", "the candidate goes on starting processes after it is built")

    def note_runner(self, pid: int) -> None:
        """Register a runner as the harness's own. Raises ArmFailure if any unknown process runs beside it."""
        self._own.add(pid)
        if self.strays():
            raise ArmFailure("integrity", "fork", "a process that the candidate started still runs beside its runner")

    def strays(self) -> list[int]:
        """Return the processes of a candidate's sandbox that are neither templates nor runners.

        They matter because the judge never stops them.
        """
        if not self.settings.judged:
            return []
        return [pid for pid in self.everything_inside() if pid not in self._own]

    def end_children(self) -> None:
        """Kill all processes of the sandbox but the zygote, wait until they end, and have the zygote reap them."""
        if not self.zygote:
            return
        if self.everything_inside():
            self.signal_all(signal.SIGKILL)
        for _ in range(MAX_ATTEMPTS):
            if not self.kill_children():
                break
            time.sleep(0.001)
        self._own.clear()
        self.reap()

    def signal_all(self, number: signal.Signals) -> None:
        """Have the zygote send a signal to all other processes of the sandbox, if bubblewrap is used.

        A zygote that gives a wrong answer can't be trusted any more: its sandbox is ended.
        """
        try:
            send(self._channel, {"op": "signal", "number": int(number)})
            hear(self._channel, replies.SIGNALLED, "fork")
        except (ProtocolError, TimeoutError):
            return
        except ArmFailure:
            self._process.kill()

    def kill_children(self) -> bool:
        """Kill all processes of the sandbox but the zygote. Return True if there were any."""
        inside = self.everything_inside() if self.zygote else []
        for pid in inside:
            processes.kill(pid)
        return bool(inside)

    def destroy(self) -> None:
        """End the sandbox at once. All its processes end with its first one, however many they are."""
        if self.zygote:
            processes.kill(self.zygote)
        self._process.kill()
        self.kill_children()

    def reap(self) -> list[list[int]]:
        """Return ``[process id inside, signal]`` of each template that ended. Empty if the zygote is gone too.

        A zygote that gives a wrong answer can't be trusted any more: its sandbox is ended.
        """
        try:
            send(self._channel, {"op": "reap"})
            message = hear(self._channel, replies.ENDED, "fork")
        except (ProtocolError, TimeoutError):
            return []
        except ArmFailure:
            self._process.kill()
            return []
        return list(message["ended"])

    @property
    def alive(self) -> bool:
        """True if the sandbox still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the sandbox and everything in it, and close its files."""
        if not self.settings.walls.strong:
            for pid in self.everything_inside():
                processes.kill(pid)
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._errors.close()
        os.close(self._status_read)
        if self._scratch is not None:
            self._scratch.close()
