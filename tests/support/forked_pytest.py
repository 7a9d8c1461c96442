"""Runs of pytest in forks of this process: a new interpreter would import torch again, which takes seconds."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

SECONDS = 60  # that a run may take


class ForkedPytest:
    """``pytest ARGS`` here, in a process and a session of its own. Its output goes to files in ``folder``."""

    def __init__(self, folder: Path, *args: str) -> None:
        self._begin, self._args = time.monotonic(), args
        self._paths = [folder / name for name in ("stdout.txt", "stderr.txt")]
        self._code: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become_pytest(self._paths, args)

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs. The code is negative if a signal ended it."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def result(self) -> pytest.RunResult:
        """Wait for the end and return what it printed. Raises TimeoutError."""
        try:
            while (code := self.poll()) is None:
                if time.monotonic() - self._begin > SECONDS:
                    raise TimeoutError(f"pytest {' '.join(self._args)} took more than {SECONDS} s")
                time.sleep(0.01)
        finally:
            if self._code is None:
                os.killpg(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
        out, err = (path.read_text().splitlines() for path in self._paths)
        return pytest.RunResult(code, out, err, time.monotonic() - self._begin)


def _become_pytest(paths: Sequence[Path], args: Sequence[str]) -> NoReturn:
    """Run ``pytest ARGS`` with its output in the files ``paths``, and end this process."""
    code = 1
    try:
        os.setsid()
        descriptors = [os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY) for path in paths]
        for target, source in enumerate([os.open(os.devnull, os.O_RDONLY), *descriptors]):
            os.dup2(source, target)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        sys.__stdout__, sys.__stderr__ = sys.stdout, sys.stderr  # pytest's usage errors go there
        for name in [name for name in os.environ if name.startswith("PYTEST_")]:
            del os.environ[name]  # the outer run's
        sys.argv = ["pytest", *args]
        code = int(pytest.main([*args]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)
