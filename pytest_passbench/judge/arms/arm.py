"""An arm: one sandbox with its zygote, and the templates that are forked in it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.paths import IMPORTED_FROM
from pytest_passbench.judge.arms import processes, replies, sandbox
from pytest_passbench.judge.arms.failures import KILLED, ArmFailure, ProcessLost, SandboxFailed, last_signal
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.wire import hear, peer, socket_pair
from pytest_passbench.judge.bench import Deadline
from pytest_passbench.judge.native_library import descriptor
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.protocol import READ, ProtocolError, send
from pytest_passbench.suite.limits import machine_bytes

START_TIMEOUT_SECONDS = 300.0  # for a zygote to import what it needs; TorchInductor compiles 25 s on a quiet core
ALIVE_MILLISECONDS = 500  # between two checks that a starting sandbox is alive
#: For a started zygote to answer, and the least if its candidate has less time left: an answer is little work.
ZYGOTE_SECONDS, LATE_ZYGOTE_SECONDS = 9.0, 1.0
END_SECONDS = 5.0  # for all processes of a sandbox to end once it is killed
MAX_FILE_BYTES = 256 << 20
MAX_MEMORY_SHARE = 0.6  # of the machine's memory, for a child's address space
MAX_PROCESSES = 2048
MAX_OUTPUT_BYTES = 8192  # of an arm's printed output that go into a record
NAME_WIDTH = 24  # characters: names on command lines are padded, since the length changes an arm's speed
MAX_ATTEMPTS = 100  # to end all processes of a sandbox, one millisecond apart


@dataclass(frozen=True)
class ArmSettings:
    """The settings that a sandbox is started with. ``timeout``: seconds for each answer, if there is no deadline."""

    name: str
    device: str
    threads: int
    pipeline: str
    walls: sandbox.Walls
    timeout: float
    judged: bool = False  # runs a candidate's kernels

    @property
    def on_device(self) -> bool:
        """True if its processes use a CUDA device. Readers never do: they record wrappers on the CPU."""
        return is_cuda(self.device) and self.pipeline != READ


@dataclass(frozen=True)
class Parked:
    """A process of the harness's own on a device, which waits for its next subgraph. ``number`` is its id inside."""

    channel: socket.socket
    log: IO[bytes]
    number: int
    pid: int

    def close(self) -> None:
        """Hang up. The process then ends by itself."""
        self.channel.close()
        self.log.close()


class Arm:
    """A sandbox with its zygote. It starts in the background at once; :meth:`ready` waits for it.

    ``deadline`` is that of the case whose candidate works in it. Without one, an answer may take ``timeout`` seconds.
    """

    deadline: Deadline | None = None

    def __init__(self, settings: ArmSettings) -> None:
        self.settings = settings
        self.zygote = 0
        #: The loss of the zygote, if something outside of the sandbox killed or stopped it.
        self.loss: ProcessLost | None = None
        self._ended = False  # True once the judge has ended it
        self._has_compiler = False
        self._processes: set[int] = set()
        #: Processes that stay when their case has ended. No code of a candidate's runs in their sandbox.
        self.lasting: set[int] = set()
        #: Those of them that wait for the next subgraph, by the name of their program.
        self.parked: dict[str, Parked] = {}
        with contextlib.ExitStack() as lasting, contextlib.ExitStack() as passing:
            self._channel, child_end = socket_pair()
            lasting.callback(self._channel.close)
            passing.callback(child_end.close)
            status_read, status_write = os.pipe()
            lasting.callback(os.close, status_read)
            passing.callback(os.close, status_write)
            #: The only folder that an arm without bubblewrap may write to. It is removed with the arm.
            self._scratch = None if settings.walls.strong else Scratch()
            if self._scratch is not None:
                lasting.callback(self._scratch.close)
            self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the arm
            lasting.callback(self._errors.close)
            send(self._channel, self._wants(), self._engine())
            self._process = subprocess.Popen(
                self._command(child_end.fileno(), status_write),
                pass_fds=(child_end.fileno(), status_write),
                stdin=subprocess.DEVNULL,
                stdout=self._errors,
                stderr=self._errors,
                env=self._environment(),
                start_new_session=True,
            )
            self._files = lasting.pop_all()

    def _environment(self) -> dict[str, str]:
        extra = {} if self._scratch is None else dict.fromkeys(("HOME", "TMPDIR"), str(self._scratch.path))
        if self.settings.pipeline == READ:
            extra["TRITON_INTERPRET"] = ""  # launches are recorded, not interpreted
        return sandbox.environment(self.settings.threads, self.settings.device, extra)

    def _wants(self) -> dict[str, Any]:
        """Return the zygote's first message. Eager's is the same as the candidate's.

        The modules in a process and their addresses make a program some per cent faster or slower. The command line
        lies above the stack and would move it, so the message goes through the channel.
        """
        wants: dict[str, Any] = {"pipeline": self.settings.pipeline, "device": self.settings.on_device}
        if self._scratch is not None:
            wants["paths"] = sandbox.weak_paths(self._scratch.path, self.settings.on_device)
        return wants

    def _engine(self) -> tuple[int, ...]:
        """Return the descriptors for the zygote's first message: the engine's library, if programs run on the CPU."""
        if self.settings.on_device or self.settings.pipeline == READ:
            return ()
        library = descriptor()
        return () if library is None else (library,)

    def _command(self, channel: int, status: int) -> list[str]:
        parent = str(IMPORTED_FROM)
        start = f"import sys; sys.path.insert(0, {parent!r}); from pytest_passbench.runner.zygote import main; main()"
        program = [sandbox.interpreter(), "-P", "-c", start, f"{channel:08}", f"{self.settings.name:{NAME_WIDTH}}"]
        reads = self.settings.pipeline == READ
        line = sandbox.command(program, self.settings.walls, self.settings.on_device, reads)
        if self.settings.walls.strong:
            line[1:1] = ["--json-status-fd", str(status)]
        return line

    def ready(self) -> None:
        """Wait until the zygote has imported its modules. Raises SandboxFailed if it does not come up."""
        if self.zygote:
            return
        self._channel.settimeout(START_TIMEOUT_SECONDS)
        try:
            self._await_first_message()
            self.zygote = peer(self._channel)
            hear(self._channel, replies.ZYGOTE, "start")
            if not self.alive:  # the zygote left bubblewrap's group before it asked to die with bubblewrap
                processes.kill(self.zygote)
                raise ProtocolError("bubblewrap was killed while it started")
        except (ProtocolError, TimeoutError, ArmFailure) as error:
            self._errors.seek(0)
            message = self._errors.read()[-MAX_OUTPUT_BYTES:].decode("utf-8", "replace").strip() or str(error)
            raise SandboxFailed(
                f"the sandbox of the arm {self.settings.name!r} did not start: {message}",
                remedy="`passbench doctor` says what this machine lacks",
            ) from error

    def _await_first_message(self) -> None:
        """Wait until the zygote has sent something, or its end of the channel is closed. Raises TimeoutError.

        If bubblewrap is killed between its fork and its child's release, the child waits forever and holds the
        channel open. The child is still in bubblewrap's group then, so :meth:`_kill` ends it.
        """
        messages, deadline = select.poll(), time.monotonic() + START_TIMEOUT_SECONDS
        messages.register(self._channel, select.POLLIN)
        while not messages.poll(ALIVE_MILLISECONDS):
            if not self.alive:
                self._kill()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer within {START_TIMEOUT_SECONDS:g} s")

    def show(self, files: IO[bytes]) -> str | None:
        """Replace the files of the candidate before by those in an archive, ``files``. Return their folder inside.

        All that the readers of the candidate before have written is removed. Return None if that fails: the sandbox
        is of no further use then. Raises SandboxFailed if the sandbox did not start.
        """
        self.ready()
        scratch = "" if self._scratch is None else str(self._scratch.path)
        folder = scratch + sandbox.CANDIDATE_FOLDER
        files.seek(0)  # the zygote's descriptor shares this offset
        try:
            mounted = self._ask({"op": "show", "folder": folder}, (files.fileno(),), replies.MOUNTED)["shown"]
        except ArmFailure:
            return None
        return folder if mounted else None

    def patience(self, phase: str, what: str = "no answer") -> float:
        """Return the seconds that the next answer may take. Raises :meth:`late` if none are left."""
        if self.deadline is None:
            return self.settings.timeout
        left = self.deadline.left()
        if left <= 0:
            raise self.late(phase, what)
        return left

    def late(self, phase: str, what: str = "no answer") -> ArmFailure:
        """Return the failure to answer in time. ``what`` begins its message."""
        if self.deadline is None:
            return ArmFailure("timeout", phase, f"{what} within {self.settings.timeout:g} s")
        limit = self.deadline.limit
        return ArmFailure("timeout", phase, f"{what} within the {limit:g} s that a candidate has for a subgraph")

    @contextlib.contextmanager
    def answering(self, phase: str, how_ended: Callable[[], str], what: str = "no answer") -> Iterator[None]:
        """Raise ArmFailure if a process of the sandbox does not answer in time, or ends, within this context.

        ``how_ended`` returns the message about a process that has ended. ``what`` begins that about a late one.
        """
        try:
            yield
        except TimeoutError as error:
            raise self.late(phase, what) from error
        except (ProtocolError, Gone) as error:
            message = how_ended()  # it may also find out that the zygote was lost
            raise ArmFailure("crash", phase, message) from self.loss or error

    def import_compiler(self) -> None:
        """Have torch's compiler imported once, for readers of region passes. Raises ArmFailure, SandboxFailed."""
        self.ready()
        if not self._has_compiler:
            self._ask({"op": "compiler"}, (), replies.IMPORTED, START_TIMEOUT_SECONDS)
            self._has_compiler = True

    def _ask(
        self, message: dict[str, Any], descriptors: tuple[int, ...], schema: Any, seconds: float | None = None
    ) -> Any:
        """Return the zygote's answer to a message. It may take ``seconds``, by default a little of the deadline.

        Raises ArmFailure if no answer comes, or if its form is wrong. The zygote can't be trusted any more then, so
        its sandbox is ended.
        """
        left = ZYGOTE_SECONDS if self.deadline is None else self.deadline.left()
        self._channel.settimeout(seconds or min(ZYGOTE_SECONDS, max(LATE_ZYGOTE_SECONDS, left)))
        try:
            send(self._channel, message, descriptors)
            return hear(self._channel, schema, "fork")
        except (ProtocolError, TimeoutError) as error:
            self.loss = self.loss or self._lost()
            self.destroy()
            raise ArmFailure("crash", "fork", "the zygote is gone") from self.loss or error
        except ArmFailure:
            self.destroy()
            raise

    def _lost(self) -> ProcessLost | None:
        """Return the loss of a zygote that does not answer, if it was killed or stopped from outside.

        Behind strong walls it is process 1, which nothing in its sandbox can kill or stop. In a sandbox with a device
        /proc is writable, so root in it could have the kernel end the zygote when memory is short. Bubblewrap's exit
        code has the signal. A zygote that ends by itself, or that the judge has ended, is not lost.
        """
        if self._ended or self.settings.on_device or not self.settings.walls.strong:
            return None
        how = ""
        if processes.alive(self.zygote) and processes.stopped(self.zygote):
            how = "stopped"
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                how = "killed" if self._process.wait(END_SECONDS) in KILLED else ""
        return ProcessLost(f"the first process of the sandbox {self.settings.name!r} was {how} from outside "
                           "(the machine may be out of memory)") if how else None  # fmt: skip

    def _kill(self) -> None:
        """Kill the sandbox's outer process and its group.

        While bubblewrap starts, its child does not die with it yet. The group's number is that of the outer process.
        That process is not reaped yet, so no other group can have the number.
        """
        if self._process.returncode is None:
            processes.kill_group(self._process.pid)

    def fork(
        self, message: dict[str, Any], descriptors: tuple[int, ...] = ()
    ) -> tuple[socket.socket, IO[bytes], int]:
        """Have the zygote fork a child that works on an order. ``descriptors`` are sent along with the order.

        Return the judge's end of the child's channel, the file with what it prints, and its process id inside
        the sandbox. Raises ArmFailure if the zygote does not answer, SandboxFailed if the sandbox did not start.
        """
        self.ready()
        limits = self._limits()
        with contextlib.ExitStack() as lasting:
            parent_end, child_end = socket_pair()
            lasting.callback(parent_end.close)
            with child_end:
                log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the caller
                lasting.callback(log.close)
                sent = child_end.fileno(), *descriptors, log.fileno()
                number = int(self._ask({**message, "limits": limits}, sent, replies.FORKED)["forked"])
            lasting.pop_all()
        return parent_end, log, number

    def _limits(self) -> dict[str, Any]:
        """Return the limits of a child. On a device, its address space and the size of its files are not limited.

        CUDA reserves addresses for all memory of the machine and of its devices, and maps files of such sizes.
        """
        device, weak = self.settings.on_device, self._scratch is not None
        return {
            "memory": None if device else int(machine_bytes() * MAX_MEMORY_SHARE),
            "file_bytes": None if device else MAX_FILE_BYTES,
            "processes": MAX_PROCESSES,
            "network": self.settings.walls.strong,
            "driver": device,
            "named_below": self._wants()["paths"]["write"] if device and weak else None,
        }

    def everything_inside(self) -> list[int]:
        """Return the process ids, as the host sees them, of all processes of the sandbox but the zygote."""
        root = self._process.pid
        walls_own = {root, self.zygote, processes.parent_if_any(self.zygote)}
        inside = [pid for pid in processes.descendants(root) if pid not in walls_own]
        return [pid for pid in inside if processes.alive(pid)]

    def outer(self, number: int) -> int | None:
        """Return the host's id of the zygote's child with that id inside; None if the kernel does not list it."""
        for pid in processes.descendants(self.zygote):
            with contextlib.suppress(Gone):
                if processes.inner(pid) == number:
                    return pid
        return None

    def end_strays(self, template: int) -> None:
        """End other processes of the sandbox, such as compilers. Raises ArmFailure if new ones keep appearing."""
        self._processes.add(template)
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
        self._processes.add(pid)
        if self.strays():
            raise ArmFailure("integrity", "fork", "a process that the candidate started still runs beside its runner")

    def strays(self) -> list[int]:
        """Return a judged sandbox's processes that are neither templates nor runners. The judge never stops them."""
        if not self.settings.judged:
            return []
        return [pid for pid in self.everything_inside() if pid not in self._processes]

    def end_children(self) -> None:
        """Kill all processes of the sandbox but the zygote and lasting ones, wait for that, and have them reaped."""
        if not self.zygote:
            return
        if not self.lasting and self.everything_inside():
            self.signal_all(signal.SIGKILL)
        for _ in range(MAX_ATTEMPTS):
            if not self.kill_children():
                break
            time.sleep(0.001)
        self._processes.clear()
        self.reap()

    def signal_all(self, number: signal.Signals) -> None:
        """Have the zygote signal all others, if bubblewrap is used. End its sandbox if it does not answer."""
        with contextlib.suppress(ArmFailure):
            self._ask({"op": "signal", "number": int(number)}, (), replies.SIGNALLED)

    def kill_children(self) -> bool:
        """Kill all processes of the sandbox but the zygote and lasting ones. Return True if there were any."""
        inside = [pid for pid in self.everything_inside() if pid not in self.lasting] if self.zygote else []
        for pid in inside:
            processes.kill(pid)
        return bool(inside)

    def destroy(self) -> None:
        """End the sandbox at once. All its processes end with its first one, however many they are.

        No further message may find it alive.
        """
        self._let_none_last()
        self._ended = True
        if self.zygote:
            processes.kill(self.zygote)
        self._kill()
        self.kill_children()
        self._process.wait()

    def _let_none_last(self) -> None:
        while self.parked:
            self.parked.popitem()[1].close()
        self.lasting.clear()

    def reap(self) -> int:
        """Have templates that ended reaped. Return the signal that ended one, the last of them, or 0.

        If the zygote does not answer, :attr:`loss` says whether it was lost.
        """
        with contextlib.suppress(ArmFailure):
            return last_signal(self._ask({"op": "reap"}, (), replies.ENDED))
        return 0

    @property
    def alive(self) -> bool:
        """True if the sandbox still runs. Its outer process is not reaped, see :meth:`_kill`."""
        return self._process.returncode is None and processes.alive(self._process.pid)

    def close(self) -> None:
        """End the sandbox and everything in it, wait for that, and close its files."""
        self._let_none_last()
        if not self.settings.walls.strong:
            for pid in self.everything_inside():
                processes.kill(pid)
        self._channel.close()
        self._kill()
        self._process.wait()
        # The kernel lets process 1 end after all others: their memory is free then.
        deadline = time.monotonic() + END_SECONDS
        while self.zygote and processes.alive(self.zygote) and time.monotonic() < deadline:
            time.sleep(0.001)
        self._files.close()
