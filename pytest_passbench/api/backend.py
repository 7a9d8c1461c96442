"""A call's work as the evaluator hands it to a backend, what a backend reports, and the backend of one machine.

The backend of one machine is a judge in its own process, which is started again if it dies. The caller's process may
train a model, and its threads would hold the interpreter while the judge measures time. If one of them had started a
sandbox, the sandbox would end with the thread. :func:`main` is the judge's process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol, cast

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import IMPORTED_FROM
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.measure.noise import merged
from pytest_passbench.run.judging import judge_all, make_judge
from pytest_passbench.run.ledger import Ledger
from pytest_passbench.run.merge import common

if TYPE_CHECKING:
    from pytest_passbench.judge.session import Session

_START = "import sys; sys.path.insert(0, {!r}); from pytest_passbench.api.backend import main; main()"
END_SECONDS = 10.0  # for the process to end its sandboxes, when it is not in a call
LOST_SECONDS = 1.0  # for a process to end after it has closed its connection
DONE = None
"""The message after the last report of a call."""


@dataclass(frozen=True)
class EvaluatorCall:
    """A call: its secret, its tasks, and its candidates. All tasks are judged for all candidates."""

    seed: bytes
    tasks: Sequence[Task]
    candidates: Sequence[Candidate]

    @property
    def subgraphs(self) -> int:
        """The number of subgraphs to be judged, at most: a record may leave some out."""
        return sum(len(task.subgraphs) for task in self.tasks) * len(self.candidates)


@dataclass(frozen=True)
class MachineReport:
    """A report of the judge ``worker`` on its machine: its ``environment``, and the noise measured so far."""

    worker: str
    environment: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)


Report = Record | MachineReport
"""A report on a call. A record is that of a judged subgraph, and a later one of the same subgraph replaces it."""


class Backend(Protocol):
    """A place where an evaluator's calls are judged. Calls come one at a time, from any thread."""

    def judge(self, call: EvaluatorCall) -> Generator[Report]:
        """Yield the reports of a call. Raises UserError if judging is impossible.

        MachineReports come between the records, so that a call that is cut short has some. The last one of each
        worker counts. If the consumer closes this early, all processes end at once, and the next call starts others.
        """

    def close(self) -> None:
        """End all processes, and wait for that."""


def start_judge(settings: Settings, thorough: bool, worker: int = 0) -> Session:
    """Return a judge for one call after the other, in the process that is to own its sandboxes.

    They start in the background. Raises UserError if this machine can't judge.
    """
    judge = cast("Session", make_judge(settings, b"", worker))  # the other judge is that of trusted runs
    judge.repeats = thorough
    judge.start()
    return judge


def report_on_machine(judge: Session, worker: str = "") -> MachineReport:
    """Return the report of a judge on its machine."""
    return MachineReport(worker, judge.environment(), judge.noise())


def take(
    backend: Backend, ledger: Ledger, tasks: Sequence[Task], on_record: Callable[[Record], None] | None = None
) -> None:
    """Have the ledger's candidates judged, and add the reports to it. An exception of ``on_record`` ends the call."""
    machines: dict[str, MachineReport] = {}
    call = EvaluatorCall(ledger.seed, tasks, ledger.candidates)
    try:
        with closing(backend.judge(call)) as reports:
            for report in reports:
                if isinstance(report, MachineReport):
                    machines[report.worker] = report
                    continue
                ledger.add(report)
                if on_record is not None:
                    on_record(report)
    finally:
        ledger.environment = common([machine.environment for machine in machines.values()]) if machines else {}
        ledger.noise = merged([machine.noise for machine in machines.values()])


class Local:
    """A judge's process on this machine. It starts at once, in the background."""

    def __init__(self, settings: Settings, thorough: bool) -> None:
        self._arguments = settings, thorough
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Connection | None = None
        self._greeted = False
        self._start()

    def _start(self) -> None:
        parent_end, child_end = Pipe()
        with child_end:
            command = [sys.executable, "-P", "-c", _START.format(str(IMPORTED_FROM))]
            process = subprocess.Popen(
                [*command, str(child_end.fileno()), str(os.getpid())],
                pass_fds=(child_end.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl+C reaches the caller alone, which then ends this process
            )
        self._process, self._channel, self._greeted = process, parent_end, False
        with contextlib.suppress(OSError):  # if the process has ended, its first answer is missing too
            parent_end.send(self._arguments)

    def judge(self, call: EvaluatorCall) -> Generator[Report]:
        """Yield the reports of a call. A process that is lost is replaced once. The new one judges the rest."""
        left, lost = call, False
        while True:
            try:
                with contextlib.closing(self._reports(left)) as reports:
                    for report in reports:
                        yield report
                        if isinstance(report, Record):
                            begun = [item.id for item in call.tasks].index(report.task)
                            left = replace(call, tasks=call.tasks[begun:])
                return
            except (EOFError, OSError) as error:
                ending = _ending(self._stop(LOST_SECONDS))
                if lost:
                    remedy = "look for a lack of memory; `passbench doctor` says what else may be wrong"
                    raise UserError(f"the judge's process was lost twice: {ending}", remedy=remedy) from error
                lost = True

    def _reports(self, call: EvaluatorCall) -> Generator[Report]:
        """Yield the process's reports on a call. Raises EOFError or OSError if the process is lost."""
        if self._channel is None:
            self._start()
        channel = self._channel
        assert channel is not None
        try:
            if not self._greeted:
                _check(channel.recv())
                self._greeted = True
            channel.send(call)
            while (message := channel.recv()) is not DONE:
                yield _check(message)
        except UserError:  # it ends the call; before the greeting, the process has ended too
            if not self._greeted:
                self._stop()
            raise
        except (EOFError, OSError):
            raise
        except BaseException:  # its reports on this call must not be taken for those on the next one
            self._stop()
            raise

    def _stop(self, patience: float = 0.0) -> int:
        """End the process and its sandboxes unless it ends within ``patience`` seconds. Return its exit code."""
        process, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.close()
        if process is None:
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience)
        process.kill()
        return process.wait()

    def close(self) -> None:
        """Let the process end its sandboxes, and wait for that."""
        self._stop(END_SECONDS)


def _ending(code: int) -> str:
    if not code:
        return "it ended without a word"
    return f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"


def _check(message: Any) -> Any:
    if isinstance(message, UserError):
        raise message
    return message


def main() -> None:
    """Serve calls on the connection whose descriptor is the first argument, until the caller's process ends.

    The second argument is the process id of the caller's process. The first message has the settings.
    """
    channel = Connection(int(sys.argv[1]))
    _end_with(int(sys.argv[2]))
    with contextlib.suppress(EOFError, OSError):  # the caller has closed its end
        _serve_calls(channel)


def _serve_calls(channel: Connection) -> None:
    settings, thorough = channel.recv()
    try:
        judge = start_judge(settings, thorough)
    except UserError as error:
        channel.send(error)
        return
    with judge:
        channel.send(DONE)
        while True:
            _serve(channel, judge, channel.recv())


def _serve(channel: Connection, judge: Session, call: EvaluatorCall) -> None:
    try:
        judge.begin(call.seed)
        judge.expected = call.subgraphs
        for task in call.tasks:
            for record in judge_all(judge, [task], call.candidates, judge.settings):
                channel.send(record)
            channel.send(report_on_machine(judge))
    except UserError as error:
        channel.send(error)
    else:
        channel.send(DONE)


def _end_with(parent: int) -> None:
    """End this process when the caller's ends, however it ends: a thread waits for that and does nothing else.

    The kernel's signal for a parent's death would come when the *thread* ends that has started this process.
    """
    try:
        handle = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    if os.getppid() != parent:
        os._exit(1)

    def wait() -> None:
        select.select([handle], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="end with the caller").start()
