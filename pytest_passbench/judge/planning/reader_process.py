"""The judge's handle for a reader: the process that imports a candidate's passes and records their wrappers.

A reader is not trusted. Its answers are checked for their form, and then serve as data only.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.layout import PassDir
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import ArmResult
from pytest_passbench.core.rejected import Rejected, plan_refused
from pytest_passbench.judge.arms import processes, replies
from pytest_passbench.judge.arms.arm import MAX_OUTPUT_BYTES, Arm
from pytest_passbench.judge.arms.failures import ArmFailure, ending
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.wire import hear
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import LaunchPlan, Request
from pytest_passbench.protocol import ProtocolError, send

READING = ("load", "plan", "wrapper")  # the phases of a record in which a reader works
RECORDINGS = 2  # of each wrapper's call, which must agree
MAX_PROCESSES = 64  # of a candidate while its passes are read
MAX_MEMORY_BYTES = 4 << 30  # of all of them together
LOADING_SECONDS = 10.0  # of CPU time, to load passes if no case's deadline holds
MIN_SECONDS = 0.01  # to receive an answer whose first bytes came just before the deadline
POLL_SECONDS = 0.25  # between two checks of the processes' number, memory and time
FREEZE_POLL_SECONDS = 1e-4  # between two looks whether they have stopped
FREEZE_TIMEOUT_SECONDS = 1.0  # for all processes of a sandbox to stop. A process that waits in vfork never stops
#: Rules whose breach is a violation. Other refusals are failures: the wrapper does something that no plan can hold.
VIOLATIONS = frozenset({"torch-op", "regions"})


@dataclass(frozen=True)
class LibrarySource:
    """The text of a C++ library, loaded at ``file`` and ``line`` (empty and 0 if not in the pass directory)."""

    source: str
    flags: tuple[str, ...]
    openmp: bool
    file: str
    line: int


def start_reader(arm: Arm, folder: str, passes: PassDir) -> ReaderProcess:
    """Have a reader forked for a pass directory, which is ``folder`` in the sandbox. Raises ArmFailure."""
    if "region" in passes.kinds:
        arm.import_compiler()
    inductor = "inductor" in passes.kinds
    message = {"op": "reader", "folder": folder, "stems": list(passes.stems), "inductor": inductor}
    channel, log, number = arm.fork(message)
    return ReaderProcess(arm, channel, log, folder, passes, arm.outer(number))


class ReaderProcess:
    """A process with the modules of a pass directory. It starts in the background; :meth:`passes` waits for it."""

    def __init__(
        self, arm: Arm, channel: socket.socket, log: Any, folder: str, passes: PassDir, pid: int | None
    ) -> None:
        """Take over a forked process. ``folder`` has the ``passes`` inside. ``pid`` is the host's id, if known."""
        self.arm, self._channel, self._log, self._folder, self._passes = arm, channel, log, folder, passes
        self._pid = pid
        self._reports: list[dict[str, Any]] | None = None
        self._imported = self._printed = 0  # bytes printed while the modules were loaded, and so far
        self._frozen = False

    def passes(self) -> list[dict[str, Any]]:
        """Return the passes as data, in order. Raises ArmFailure if they cannot be loaded."""
        if self._reports is None:
            answer = self._hear(replies.READ, "load")
            if answer["status"] != "ready":
                raise ArmFailure("compile_fail", "load", self._outside(answer["message"]))
            # Passes are disqualified by their names, so a reader must not choose the names.
            if tuple(item["name"] for item in answer["passes"]) != self._passes.stems:
                raise ArmFailure("integrity", "load", "the passes that were read are not those of the candidate")
            self._reports = [
                {**item, "place": named(item.get("place", ""), self._passes.path)} for item in answer["passes"]
            ]
            self._imported = self._printed = os.fstat(self._log.fileno()).st_size
        return self._reports

    def kernels(self) -> tuple[list[LibrarySource], list[str]]:
        """Return the C++ libraries of the modules, and the references to their Triton kernels. Raises ArmFailure.

        Kernels that no plan uses are among them.
        """
        self._send({"op": "kernels"}, "load")
        answer = self._hear(replies.KERNELS, "load")
        libraries = [LibrarySource(source, tuple(flags), *rest) for source, flags, *rest in answer["libraries"]]
        return libraries, answer["triton"]

    def regions(self, name: str, graph: str, here: bool) -> list[list[str]]:
        """Return the regions of a graph that a pass says it supports. Raises ArmFailure if it fails.

        The pass runs in the process itself if ``here``, else in a fork, where it finds no state of earlier calls.
        """
        self._send({"op": "regions", "name": name, "graph": graph, "here": here}, "plan")
        ((kind, content),) = self._hear(replies.REGIONS, "plan").items()
        if kind != "regions":
            raise self._failed(name, kind, content)
        regions: list[list[str]] = content
        return regions

    def record(self, request: Request, policy: str) -> LaunchPlan | str:
        """Return the plan of a wrapper's call, on which all recordings agree.

        For a region, return the reason instead if the wrapper leaves it to eager. Raises Rejected if the call has no
        valid plan or the recordings differ, ArmFailure if the wrapper raises or the process fails.
        """
        seeds = [secrets.randbits(62) for _ in range(RECORDINGS)]
        self._send({"op": "record", "request": request.to_data(), "policy": policy, "seeds": seeds}, "plan")
        answers: list[dict[str, Any]] = []
        while len(answers) < RECORDINGS and all("plan" in answer for answer in answers):
            answers.append(self._hear(replies.RECORDED, "plan"))  # an unread one would be taken for a later answer
        if "left" in answers[-1] and request.region:
            return printable(self._outside(answers[-1]["left"]))
        first, *others = (self._plan(request, answer) for answer in answers)
        for other in others:
            if other.to_data() != first.to_data():  # compared as data, since NaN does not equal itself
                raise plan_refused("differs", f"recorded twice, differs {_difference(first, other)}")
        return first

    def _plan(self, request: Request, answer: dict[str, Any]) -> LaunchPlan:
        ((kind, content),) = answer.items()
        if kind in ("raised", "ended"):
            raise self._failed(request.name, kind, content)
        if kind == "refused":
            raise Rejected("plan", **{**content, "message": self._outside(content["message"])})
        try:
            return parse.plan(content, request.tensors)
        except Rejected as error:
            if error.layer == "plan":
                raise
            message = f"was recorded as an invalid launch plan: {error}"
            raise plan_refused("plan", message) from error

    def _failed(self, name: str, kind: str, content: Any) -> ArmFailure:
        """Return the failure of a pass whose code raised or ended its process."""
        if kind == "raised":
            return ArmFailure("runtime_fail", "wrapper", f"pass {name}: {self._outside(content)}")
        return ArmFailure("crash", "wrapper", ending(content, f"the process that runs pass {name}"))

    def _outside(self, message: str) -> str:
        """Return a message with the paths of files as the user knows them."""
        return message.replace(f"{self._folder}/", f"{self._passes.path}/")

    def freeze(self) -> None:
        """Stop all processes of the sandbox until the next order, so that they take no time from timed blocks.

        Two listings must show the same processes, all stopped. A single one can miss a process that forks a child and
        ends. A sandbox that does not come to rest is ended.
        """
        self._frozen = True
        self.arm.signal_all(signal.SIGSTOP)
        deadline, before = time.monotonic() + FREEZE_TIMEOUT_SECONDS, set[int]()
        while time.monotonic() < deadline and len(before) <= MAX_PROCESSES:
            inside = set(self.arm.everything_inside())
            running = [pid for pid in inside if not processes.stopped(pid)]
            if not running and inside == before:
                return
            before = inside
            for pid in running:
                with contextlib.suppress(Gone):
                    processes.stop(pid)
            time.sleep(FREEZE_POLL_SECONDS)
        self.arm.destroy()

    def _send(self, message: dict[str, Any], phase: str) -> None:
        if self._frozen:
            for pid in self.arm.everything_inside():
                with contextlib.suppress(Gone):
                    processes.go_on(pid)
            self._frozen = False
        self._channel.settimeout(self.arm.patience(phase))
        try:
            send(self._channel, message)
        except TimeoutError as error:
            raise self.arm.late(phase) from error
        except ProtocolError as error:
            self.arm.reap()
            what = "the process that reads the passes is gone"
            raise ArmFailure("crash", "load", what) from self.arm.loss or error

    def _hear(self, schema: Any, phase: str) -> Any:
        deadline = time.monotonic() + self.arm.patience(phase)
        with self.arm.answering(phase, lambda: ending(self.arm.reap(), "the process that reads the passes")):
            self._wait(deadline, phase)
            self._channel.settimeout(max(deadline - time.monotonic(), MIN_SECONDS))
            return hear(self._channel, schema, phase)

    def _wait(self, deadline: float, phase: str) -> None:
        """Wait for an answer.

        Raises TimeoutError, ProtocolError if the reader has ended, ArmFailure if the sandbox takes too much. Another
        process may hold the channel open after the reader's end, so the reader itself is checked.
        """
        while not self._answers(POLL_SECONDS):
            if time.monotonic() > deadline:
                raise TimeoutError
            if self._pid is not None and not processes.alive(self._pid) and not self._answers(0):
                raise ProtocolError("the process has ended")
            self._check_use(phase)

    def _check_use(self, phase: str) -> None:
        """Raise ArmFailure, and end the sandbox, if its processes are too many, or take too much memory or time."""
        inside, excess, status = self.arm.everything_inside(), "", "crash"
        if len(inside) > MAX_PROCESSES:
            excess = f"started more than {MAX_PROCESSES} processes"
        elif processes.held_bytes(inside, MAX_MEMORY_BYTES) > MAX_MEMORY_BYTES:
            excess = f"took more than {MAX_MEMORY_BYTES >> 30} GiB of memory"
        elif phase == "load" and self.arm.deadline is None and processes.used_seconds(inside) > LOADING_SECONDS:
            excess, status = f"took more than {LOADING_SECONDS:g} s of the processor's time", "timeout"
        if excess:
            self.arm.destroy()
            raise ArmFailure(status, phase, f"{excess} while it was read")

    def _answers(self, seconds: float) -> bool:
        polled = select.poll()  # unlike select, for any number of open files
        polled.register(self._channel, select.POLLIN)
        return bool(polled.poll(seconds * 1000))

    def output(self) -> str:
        """Return the output of loading the modules and the output since the last call, capped and escaped."""
        size = os.fstat(self._log.fileno()).st_size
        parts = (0, self._imported), (min(self._printed, size), size)
        self._printed = size
        most = MAX_OUTPUT_BYTES
        data = b"".join(os.pread(self._log.fileno(), min(end - start, most), start) for start, end in parts)
        text = printable(self._outside(data[:most].decode("utf-8", "replace")), LINES)
        return text + (" […]" if sum(end - start for start, end in parts) > most else "")

    def close(self) -> None:
        self._channel.close()
        self._log.close()
        self.arm.end_children()


def is_without_answer(arm: ArmResult) -> bool:
    """Return True if a reader gave no usable answer, so that the caller must replace it."""
    return arm.status in ("crash", "timeout", "integrity") and arm.phase in READING


def _difference(first: LaunchPlan, other: LaunchPlan) -> str:
    pairs = enumerate(zip(first.steps, other.steps, strict=False), 1)
    number = next((number for number, (a, b) in pairs if a.to_data() != b.to_data()), None)
    if number is not None:
        return f"at step {number}"
    return "in the number of steps" if len(first.steps) != len(other.steps) else "in tables, kernels or results"


def named(file: str, folder: Path | str) -> str:
    """Return the path of a ``file`` of ``folder``. If either is empty, return ``file`` as it is."""
    return f"{folder}/{file}" if folder and file else file
