"""A compiler's process, from its start to its end: nothing of it is left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from pytest_passbench.judge.builder.refusals import LimitReached


def run(command: list[str], source: bytes, environment: dict[str, str], seconds: float) -> tuple[int, bytes, bytes]:
    """Return exit code, output, and what was said on standard error. Raises :class:`LimitReached` if it is late."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True, cwd="/"
    ) as process:
        try:
            data, said = process.communicate(source, timeout=seconds)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # behind strong walls all others die with the first
            if isinstance(error, subprocess.TimeoutExpired):
                raise LimitReached(f"compiling took longer than {seconds:g} s") from None
            raise
    return process.returncode, data, said
