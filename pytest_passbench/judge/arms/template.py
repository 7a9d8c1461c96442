"""A process that holds one arm's program for one subgraph, from outside; measured runners are forked from it."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms import processes, replies
from pytest_passbench.judge.arms.arm import OUTPUT_LIMIT, Arm
from pytest_passbench.judge.arms.failures import ArmFailure, ending
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.wire import hear, peer, socket_pair
from pytest_passbench.protocol import ProtocolError, send

MOST_REQUESTS = 256  # of launch plans, for one program


@dataclass(frozen=True)
class Effects:
    """What eager's template says of a subgraph: inputs changed in place (indices), number of outputs."""

    mutated: list[int]
    outputs: int


class Answer(Protocol):
    """A launch plan with its kernels, as it goes to a template."""

    @property
    def message(self) -> dict[str, Any]:
        """What is sent, JSON-ready."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found about the plan."""

    def descriptors(self) -> tuple[int, ...]:
        """Return a new descriptor of each library, for the caller to close."""


class Answering(Protocol):
    """Who answers a template's requests for launch plans."""

    def answer(self, data: Any, capability: int | None) -> Answer:
        """Return the answer for the CUDA device of this capability, if there is one. Raises ArmFailure."""


class Template:
    """A process that holds one arm's program for one subgraph, ready to be forked from."""

    def __init__(self, arm: Arm, channel: socket.socket, log: Any, number: int) -> None:
        """``number`` is the process's in its sandbox, as the zygote says that forked it."""
        self.arm, self._channel, self._log, self._number = arm, channel, log, number
        self.pid = 0
        self.cores = os.sched_getaffinity(0)
        self.report: dict[str, Any] = {}
        self.findings: list[Finding] = []

    def wait(self, planner: Answering | None = None) -> dict[str, Any]:
        """Wait for the program to be built, answering its requests for launch plans. Returns its report.

        Raises ArmFailure.
        """
        self._channel.settimeout(self.arm.settings.timeout)
        try:
            self.pid = peer(self._channel)
            if processes.inner(self.pid) != self._number:  # its parent does not tell: orphans become the zygote's too
                raise ArmFailure("integrity", "build", "another process than the template answered")
            self.report = self._built(planner)
        except TimeoutError as error:
            limit = self.arm.settings.timeout
            raise ArmFailure("timeout", "build", f"not built within {limit:g} s") from error
        except (ProtocolError, Gone) as error:
            raise ArmFailure("crash", "build", self._how_it_ended()) from error
        if self.report["status"] != "ready":
            raise ArmFailure(self.report["status"], self.report["phase"][:40], self.report["message"][-12_000:])
        self.arm.end_strays(self.pid)
        self._settle()
        return self.report

    def _built(self, planner: Answering | None) -> dict[str, Any]:
        deadline = time.monotonic() + self.arm.settings.timeout
        for _ in range(MOST_REQUESTS):
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            self._channel.settimeout(left)
            said: dict[str, Any] = hear(self._channel, replies.BUILT, "build")
            if said["status"] != "wanted":
                return said
            if planner is None:
                break
            answer = planner.answer(said["request"], said.get("capability"))
            descriptors = answer.descriptors()
            try:
                send(self._channel, answer.message, descriptors)
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            self.findings += [finding for finding in answer.findings if finding not in self.findings]
        raise ArmFailure("integrity", "build", "asks for launch plans without end, or has no passes to ask for")

    def _settle(self) -> None:
        """Wait for its stop: from now on it works only when it is asked for a runner. Raises ArmFailure."""
        try:
            self._wait_stopped()
            found = processes.threads(self.pid)
        except Gone as error:
            raise ArmFailure("crash", "build", self._how_it_ended()) from error
        if len(found) > 1 and not self._may_have_threads:
            raise ArmFailure("integrity", "build", f"{len(found) - 1} threads are left behind in the process")

    def _how_it_ended(self) -> str:
        time.sleep(0.01)
        signals = [number for _pid, number in self.arm.reap() if number]
        return ending(signals[-1] if signals else 0, "the process that builds the candidate's program")

    def pin(self, core: int) -> None:
        """Have it fork on ``core``: a core for each template keeps none waiting."""
        self.cores = {core}
        with contextlib.suppress(ProcessLookupError):  # that it is gone will be told by whoever asks it next
            os.sched_setaffinity(self.pid, self.cores)

    #: Whether its process may have more than one thread when it is built.
    _may_have_threads = False

    @property
    def rehearses(self) -> bool:
        """Whether its runners can run a block where they are forked. Not with several threads: they would have to
        share that core, where one that waits for another in a loop keeps it from running."""
        return self.arm.settings.threads == 1

    @property
    def resting(self) -> list[int]:
        """The processes that do nothing unless they are asked for a runner, or for another template."""
        return [self.arm.zygote, self.pid]

    def start_fork(
        self, program: Effects, calls: int, place: int, rehearse: bool = False, audit: bool = False
    ) -> Fork:
        """Order a runner; :meth:`Fork.begin` has it forked. Raises ArmFailure.

        ``place`` is a random number that says where in memory it is to run. With ``rehearse`` it runs a block
        before it tells that it is there, if it is one that :attr:`rehearses`.
        With ``audit``, one whose plans get memory full of NaN; to the kernels it looks like any other.
        """
        mine, theirs = socket_pair()
        order = {
            "op": "fork",
            **asdict(program),
            "calls": calls,
            "place": place,
            "threads": self.arm.settings.threads,
            "rehearse": rehearse and self.rehearses,
            "audit": audit,
        }
        with self.forking(mine):
            send(self._channel, order, (theirs.fileno(),))
        theirs.close()
        return Fork(self, mine)

    def forked(self) -> None:
        """Wait until the runner is there, and stop, all of it. Raises ArmFailure, Gone."""
        hear(self._channel, replies.FORKED, "fork")
        self._wait_stopped()

    def _wait_stopped(self) -> None:
        """Wait until all of it is stopped: it stops itself after each answer. Raises Gone if it does not."""
        processes.wait_stopped(self.pid)

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
        except ArmFailure:
            channel.close()
            raise

    def runner_signal(self) -> int:
        """The signal that ended this template's last runner, or 0."""
        try:
            processes.go_on(self.pid)
            send(self._channel, {"op": "reap"})
            message = hear(self._channel, replies.ENDED, "run")
            self._wait_stopped()
        except (ProtocolError, TimeoutError, Gone):
            return 0
        signals = [number for _pid, number in message["ended"] if number]
        return signals[-1] if signals else 0

    def output(self) -> str:
        """What the arm printed, capped, control characters made visible."""
        self._log.seek(0)
        data = self._log.read(OUTPUT_LIMIT + 1)
        text = data[:OUTPUT_LIMIT].decode("utf-8", "replace")
        return printable(text, LINES) + (" […]" if len(data) > OUTPUT_LIMIT else "")

    def leave(self) -> None:
        """Hang up; the process ends by itself, if nobody ends it."""
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

    def begin(self) -> None:
        """Let the template fork; several can do that at once. Raises ArmFailure."""
        with self._template.forking(self.channel):
            processes.go_on(self._template.pid)

    def wait(self, core: frozenset[int]) -> Runner:
        """The runner, stopped. Raises ArmFailure."""
        with self._template.forking(self.channel):
            self._template.forked()
            return Runner(self._template, self.channel, core)
