"""The judge's handle for a process with one arm's program for one subgraph. Measured runners are forked from it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.misses import NO_WORK, WRITES_NOTHING
from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms import processes, replies
from pytest_passbench.judge.arms.arm import MAX_OUTPUT_BYTES, Arm
from pytest_passbench.judge.arms.failures import ArmFailure, ending, last_signal
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.runner import LATE, Runner
from pytest_passbench.judge.arms.watch import wait_stopped
from pytest_passbench.judge.arms.wire import hear, peer, socket_pair
from pytest_passbench.judge.scratch import sealed
from pytest_passbench.protocol import TRACE_BYTES, ProtocolError, send

MAX_REQUESTS = 256  # for launch plans, by one program
REAP_SECONDS = 1.0  # for a template to say how its runner ended
TRACE_SECONDS = 10.0  # for the process that makes traced calls
_NOT_BUILT = "not built"


@dataclass(frozen=True)
class GraphEffects:
    """A subgraph's effects, as eager's template states them: inputs changed in place (indices), number of outputs."""

    mutated: list[int]
    outputs: int


@dataclass(frozen=True)
class ForkOrder:
    """An order of runners for blocks of up to ``calls`` calls, one for each arm.

    With ``rehearse`` a runner first runs a block on the present contents of the input pages, if its template
    :attr:`~Template.rehearses`. With ``audit`` its plans allocate memory full of drawn contents; apart from that,
    kernels can't tell it from other runners. With ``idle`` it launches no kernel, so no machine code of a candidate's
    ever runs in it. ``idle`` names the contents of the memory that kernels would have written. ``place`` is a random
    number that decides where in memory the runners work. All have the same, so two runners of one program are alike.
    """

    program: GraphEffects
    calls: int
    rehearse: bool = False
    audit: bool = False
    idle: str | None = None
    place: int = field(default_factory=lambda: secrets.randbits(32))


@dataclass(frozen=True)
class Mismatch:
    """A value that a plan returns with another dtype or shape than the operators that it replaces give.

    ``status`` is a record's, and ``message`` is a sentence. ``wider``: the shape is right, and the dtype has no fewer
    bytes.
    """

    status: str
    message: str
    wider: bool


@dataclass(frozen=True)
class Answer:
    """The answer to a template's request: the ``message`` with a launch plan, and its kernels ready to be loaded.

    ``compiled`` has the libraries, and after them the machine code of all Triton kernels in one piece, if any.
    ``untuned`` has the name of the pass if a launch has several configurations, and the first one will be taken.
    ``steps`` is the plan in words, a line per step. ``fruitful`` is True if a kernel writes bytes that it returns.
    ``plan`` is the plan as data; with a ``mismatch`` the message may have another in its place.
    """

    message: dict[str, Any]
    compiled: tuple[bytes, ...] = ()
    findings: tuple[Finding, ...] = ()
    untuned: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    fruitful: bool = True
    plan: dict[str, Any] = field(default_factory=dict)
    mismatch: Mismatch | None = None


class Answering(Protocol):
    """An object that answers a template's requests for launch plans."""

    def answer(self, data: Any, capability: int | None) -> Answer:
        """Return the answer to a request. ``capability`` is the CUDA device's, None on a CPU. Raises ArmFailure.

        The message is ``{"left": reason}`` if a region is left to eager.
        """

    def regions(self, name: str, graph: str) -> list[list[str]]:
        """Return the regions of a graph that a pass supports. Raises ArmFailure."""


class Template:
    """A process with one arm's program for one subgraph, which runners are forked from.

    It stops itself after each answer, and runs again only when it gets an order.
    """

    def __init__(self, arm: Arm, channel: socket.socket, log: Any, number: int) -> None:
        """Take over a forked process. ``number`` is its process id in the sandbox, as the zygote states it."""
        self.arm, self._channel, self._log, self._number = arm, channel, log, number
        self.pid = 0
        self.cores = os.sched_getaffinity(0)
        self.report: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.untuned: set[str] = set()  # names of passes
        self.plans: dict[str, tuple[str, ...]] = {}  # by pass, in words; of its first match
        self.planned: list[tuple[str, dict[str, Any]]] = []  # the name of the pass and the plan, for each request
        self._fruitful: set[str] = set()

    def wait(self, planner: Answering | None = None) -> dict[str, Any]:
        """Wait until the program is built, and answer its requests for launch plans. Return its report.

        Raises ArmFailure if the program can't be built, or if the process breaks a rule meanwhile.
        """
        self._channel.settimeout(self.arm.patience("build", _NOT_BUILT))
        with self.arm.answering("build", self._how_it_ended, _NOT_BUILT):
            self.pid = peer(self._channel)
            if processes.inner(self.pid) != self._number:  # its parent proves nothing: the zygote also adopts orphans
                raise ArmFailure("integrity", "build", "another process than the template answered")
            self.report = self._built(planner)
        if self.report["status"] != "ready":
            raise ArmFailure(self.report["status"], self.report["phase"][:40], self.report["message"][-12_000:])
        self.arm.end_strays(self.pid)
        self._settle()
        return self.report

    def _built(self, planner: Answering | None) -> dict[str, Any]:
        for _ in range(MAX_REQUESTS):
            self._channel.settimeout(self.arm.patience("build", _NOT_BUILT))
            built: dict[str, Any] = hear(self._channel, replies.BUILT, "build")
            if built["status"] not in ("wanted", "regions"):
                return built
            if planner is None:
                break
            if built["status"] == "regions":
                send(self._channel, {"regions": planner.regions(built["name"], built["graph"])})
                continue
            answer = planner.answer(built["request"], built.get("capability"))
            self._channel.settimeout(self.arm.patience("build", _NOT_BUILT))
            descriptors = tuple(map(sealed, answer.compiled))
            try:
                send(self._channel, answer.message, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            if "left" in answer.message:
                continue
            self.findings += [finding for finding in answer.findings if finding not in self.findings]
            self.untuned.update(answer.untuned)
            self.plans.setdefault(str(built["request"]["name"]), answer.steps)
            self.planned.append((str(built["request"]["name"]), answer.message.get("plan", {})))
            if answer.fruitful:
                self._fruitful.add(str(built["request"]["name"]))
        message = f"the process that builds the program asks for more than {MAX_REQUESTS} launch plans"
        raise ArmFailure("integrity", "build", f"{message}, or has no passes to ask for")

    def _settle(self) -> None:
        """Wait until the process has stopped itself. Raises ArmFailure if it ended, or has threads left."""
        with self.arm.answering("build", self._how_it_ended):
            wait_stopped(self.pid)
            threads = processes.threads(self.pid)
        if len(threads) > 1 and not self._may_have_threads:
            raise ArmFailure("integrity", "build", f"{len(threads) - 1} threads are left behind in the process")

    def _how_it_ended(self) -> str:
        time.sleep(0.01)
        subject = "the process that builds the program"
        if processes.alive(self.pid):
            return f"{subject} does not stop"
        return ending(self.arm.reap(), subject)

    def pin(self, core: int) -> None:
        """Have the template fork on ``core``. Templates on cores of their own do not wait for each other."""
        self.cores = {core}
        with contextlib.suppress(ProcessLookupError):  # if it is gone, the next message to it reports that
            os.sched_setaffinity(self.pid, self.cores)

    @property
    def effects(self) -> GraphEffects:
        """The subgraph's effects, as the program's report states them."""
        return GraphEffects(list(self.report["mutated"]), int(self.report["outputs"]))

    @property
    def uncounted(self) -> dict[str, str]:
        """The passes that matched without effect, with the reason why their matches do not count."""
        reasons = {name: WRITES_NOTHING for name in self.plans if name not in self._fruitful}
        return reasons | {name: NO_WORK for name in self.plans if name not in self.report["working"]}

    #: Descriptors that its runners get in addition.
    shared: tuple[int, ...] = ()
    #: True if the process may have more than one thread when its program is built.
    _may_have_threads = False

    @property
    def rehearses(self) -> bool:
        """True if its runners can run a block on the core where they are forked. Only runners of one thread can.

        Several threads would share that core. A thread that spins for another one would keep it from running.
        """
        return self.arm.settings.threads == 1

    @property
    def interpreted(self) -> bool:
        """True if Triton's interpreter runs the program's kernels, which says nothing of their speed."""
        return bool(self.report.get("interpreted"))

    def native(self, program: GraphEffects) -> bool:
        """True if the engine makes its blocks: without Python, and so with an empty block of another length.

        It does so only under the pipeline ``direct``, since another pipeline's cost is part of what is measured. No
        code of a candidate's had run in the process when it found out whether the engine can.
        """
        same = not program.mutated and self.report.get("outputs") == program.outputs
        return self.arm.settings.pipeline == "direct" and bool(self.report.get("native")) and same

    @property
    def idles(self) -> bool:
        """True if its runners can show how long the program takes without its kernels."""
        return bool(self.report.get("idles"))

    @property
    def resting(self) -> list[int]:
        """The process ids of the zygote and the template. They use no time unless they get an order."""
        return [self.arm.zygote, self.pid]

    def start_fork(self, order: ForkOrder) -> Fork:
        """Order a runner; :meth:`Fork.begin` has it forked. Raises ArmFailure."""
        parent_end, child_end = socket_pair()
        descriptors = child_end.fileno(), *self.shared
        message = {
            "op": "fork",
            **asdict(order.program),
            "calls": order.calls,
            "place": order.place,
            "threads": self.arm.settings.threads,
            "rehearse": order.rehearse and self.rehearses,
            "audit": order.audit,
            "idle": order.idle,
            "native": self.native(order.program),
        }
        with child_end, self.forking(parent_end):
            self._channel.settimeout(self.arm.patience("fork", LATE))
            send(self._channel, message, descriptors)
        return Fork(self, parent_end)

    def forked(self) -> None:
        """Wait until the runner is forked and the template has stopped again. Raises ArmFailure, Gone."""
        self._channel.settimeout(self.arm.patience("fork", LATE))
        hear(self._channel, replies.FORKED, "fork")
        wait_stopped(self.pid)

    @contextlib.contextmanager
    def forking(self, channel: socket.socket, forked: bool = False) -> Iterator[None]:
        """Turn errors within this context into ArmFailure, and close the runner's channel.

        The failure says how the process ended: the runner if it is ``forked``, else the template.
        """

        def how_ended() -> str:
            channel.close()
            return ending(self.runner_signal(), "the runner") if forked else self._how_it_ended()

        try:
            with self.arm.answering("fork", how_ended, LATE):
                yield
        except ArmFailure:
            channel.close()
            raise

    def runner_signal(self) -> int:
        """Return the signal that ended this template's last runner, or 0."""
        try:
            processes.go_on(self.pid)
            self._channel.settimeout(REAP_SECONDS)
            send(self._channel, {"op": "reap"})
            message = hear(self._channel, replies.ENDED, "run")
            wait_stopped(self.pid)
        except (ProtocolError, TimeoutError, Gone):
            return 0
        return last_signal(message)

    def trace(self, calls: int) -> bytes | None:
        """Have ``calls`` calls made in a process of their own that traces the launches of C++ kernels.

        Return the page that describes them (:data:`~pytest_passbench.protocol.TRACE_BYTES`), unchecked. Return None
        if the process does not start, or does not end within :data:`TRACE_SECONDS`.
        """
        page = os.memfd_create("trace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        parent_end, child_end = socket_pair()
        try:
            os.ftruncate(page, TRACE_BYTES)
            fcntl.fcntl(page, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            message = {"op": "trace", "threads": self.arm.settings.threads, "calls": calls}
            self._channel.settimeout(TRACE_SECONDS)
            send(self._channel, message, (child_end.fileno(), page))
            child_end.close()
            processes.go_on(self.pid)
            self.forked()
            parent_end.settimeout(TRACE_SECONDS)
            return None if parent_end.recv(1) else os.pread(page, TRACE_BYTES, 0)
        except (ProtocolError, Gone, OSError, ArmFailure):
            return None
        finally:
            child_end.close()
            parent_end.close()
            os.close(page)

    def output(self) -> str:
        """Return the first :data:`MAX_OUTPUT_BYTES` that the arm printed, with control characters escaped."""
        self._log.seek(0)
        data = self._log.read(MAX_OUTPUT_BYTES + 1)
        text = data[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
        return printable(text, LINES) + (" […]" if len(data) > MAX_OUTPUT_BYTES else "")

    def last(self) -> None:
        """Let the process live on after its case, and reap ended runners. It must not run a candidate's code."""
        self.arm.lasting.add(self.pid)
        self.runner_signal()

    @property
    def lasts(self) -> bool:
        """True if the process still lives after :meth:`last`, and has not been left."""
        return self.pid in self.arm.lasting and self.arm.alive and processes.alive(self.pid)

    def end(self) -> None:
        """End a process that was to live on."""
        if self.lasts:
            processes.kill(self.pid)
        self.leave()

    def leave(self) -> None:
        """Close the channel. The process then ends by itself, unless it is killed first."""
        self.arm.lasting.discard(self.pid)
        self._channel.close()
        self._log.close()

    def close(self) -> None:
        """End the template and its runners."""
        self.leave()
        if self.arm.alive:
            self.arm.end_children()


class Fork:
    """A runner that was ordered and is not ready yet."""

    def __init__(self, template: Template, channel: socket.socket) -> None:
        self._template, self.channel = template, channel

    def begin(self) -> None:
        """Let the template fork. Several templates can fork at the same time. Raises ArmFailure."""
        with self._template.forking(self.channel):
            processes.go_on(self._template.pid)

    def wait(self, core: frozenset[int]) -> Runner:
        """Wait for the runner and return it, stopped and pinned to the cores ``core``. Raises ArmFailure."""
        with self._template.forking(self.channel):
            self._template.forked()
        with self._template.forking(self.channel, forked=True):
            return Runner(self._template, self.channel, core)
