"""The backend of one machine: a judge in a process of its own, which is started again if it is lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from pytest_passbench.api.serving import DONE
from pytest_passbench.api.work import Call, Judged, Report
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import IMPORTED_FROM
from pytest_passbench.core.settings import Settings

_START = "import sys; sys.path.insert(0, {!r}); from pytest_passbench.api.serving import main; main()"
END_SECONDS = 10.0  # for the process to end its sandboxes, when it is not in a call


class Local:
    """A judge's process on this machine. It starts at once, in the background."""

    def __init__(self, settings: Settings, thorough: bool) -> None:
        self._given = settings, thorough
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Connection | None = None
        self._greeted = False
        self._start()

    def _start(self) -> tuple[subprocess.Popen[bytes], Connection]:
        mine, theirs = Pipe()
        with theirs:
            command = [sys.executable, "-P", "-c", _START.format(str(IMPORTED_FROM))]
            process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl+C is the caller's, who ends this process then
            )
        self._process, self._channel, self._greeted = process, mine, False
        with contextlib.suppress(OSError):  # it has ended: the first answer is missing, too
            mine.send(self._given)
        return process, mine

    def judge(self, call: Call) -> Iterator[Report]:
        """Yield the reports of a call. A process that is lost is replaced once, and judges the rest."""
        left, lost = call, False
        while True:
            try:
                for report in self._reports(left):
                    yield report
                    if isinstance(report, Judged):
                        left = _from(call, report.record.task)
                return
            except (EOFError, OSError) as error:
                said = self._how_it_ended()
                if lost:
                    remedy = "look for a lack of memory; `passbench doctor` says what else may be wrong"
                    raise UserError(f"the judge's process was lost twice: {said}", remedy=remedy) from error
                lost = True

    def _reports(self, call: Call) -> Iterator[Report]:
        if self._channel is None:
            self._start()
        channel = self._channel
        assert channel is not None
        if not self._greeted:
            _check(channel.recv())
            self._greeted = True
        channel.send(call)
        while (said := channel.recv()) is not DONE:
            yield _check(said)

    def _how_it_ended(self) -> str:
        process = self._process
        self.stop()
        if process is None or not process.returncode:
            return "it ended without a word"
        code = process.returncode
        return f"it ended by {signal.Signals(-code).name}" if code < 0 else f"it ended with {code}"

    def stop(self) -> None:
        """End the judge's process and its sandboxes at once."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            self._process.poll()
            self._process.kill()
            self._process.wait()
        self._process = self._channel = None

    def close(self) -> None:
        """Let the process end its sandboxes, and wait for that."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        self.stop()


def _from(call: Call, task: str) -> Call:
    """Return the rest of a call, from a task on."""
    ids = [item.id for item in call.tasks]
    return replace(call, tasks=call.tasks[ids.index(task) :])


def _check(said: Any) -> Any:
    if isinstance(said, UserError):
        raise said
    return said
