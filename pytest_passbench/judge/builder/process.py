"""Runs a compiler's process, and ends all its processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from pytest_passbench.judge.builder.refusals import LIMIT, CompileFailed


def run(
    command: list[str], source: bytes, environment: dict[str, str], limit: float, patience: float
) -> tuple[int, bytes, bytes]:
    """Run a compiler with ``source`` on its standard input. Return exit code, output, and standard error.

    Raises CompileFailed if it takes longer than the ``limit`` of all compilers (seconds), TimeoutError if it takes
    longer than the caller's ``patience``: it may still compile, so it is tried again when it is asked for.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True, cwd="/"
    ) as process:
        try:
            data, output = process.communicate(source, timeout=min(limit, patience))
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # all processes of bubblewrap's sandbox end with the first
            if isinstance(error, subprocess.TimeoutExpired):
                if patience < limit:
                    raise TimeoutError("the kernel is not compiled") from None
                raise CompileFailed(f"compiling took longer than {limit:g} s", rule=LIMIT) from None
            raise
    return process.returncode, data, output
