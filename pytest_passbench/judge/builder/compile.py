"""Runs the C++ compiler in a sandbox of its own: text in, library out.

The sandbox has no file of the candidate, no home directory and no network. Its working folder is empty. The compiler
writes to a temporary folder of limited size, which vanishes with it. The library comes back through a pipe. Without
bubblewrap, the compiler runs with the same limits and environment in a new empty folder.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

from pytest_passbench.judge.arms import processes, sandbox
from pytest_passbench.judge.arms.failures import KILLED, ProcessLost, SandboxFailed
from pytest_passbench.judge.builder.compile_errors import (
    LIMIT,
    MAX_ERRORS,
    CompileFailed,
    limit_reached,
    linker_errors,
    source_errors,
    unshown,
)
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.kernels import toolchain

TIMEOUT_SECONDS = 60
_POLL_SECONDS = 0.5  # between two checks whether the compiler was killed, since its pipes may still be open
MAX_MEMORY_BYTES = 2 << 30  # of each of the compiler's processes
SCRATCH_BYTES = 96 << 20
_MAX_FILE_BYTES = 24 << 20  # a quarter of the folder, so that the compiler's messages have room
MAX_LIBRARY_BYTES = 16 << 20
_MAX_MESSAGE_BYTES = 64 << 10
LOST = "the compiler was killed from outside (the machine may be out of memory)"
# Without start files, the toolchain adds no storage and no code that runs at load. Any such part is the kernel's.
# relro and now: the loader makes relocated tables and the table of functions read-only. separate-code: code and data
# share no page. sysv: symbols can be counted. __dso_handle: a static object can be linked, and the check then refuses
# it by its name.
_LINK = (
    *("-pipe", "-nostartfiles", "-Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code,-z,text"),
    "-Wl,--hash-style=sysv,--defsym=__dso_handle=0",
)
#: A compiler driver's first words if one of its programs was killed from outside. A message about the text begins
#: with a place in it. The limits that the script sets end a program by other signals.
_LOST = re.compile(r"\S+: fatal error: ((Killed|Terminated) signal terminated program|ld terminated with signal 9) ")
_STARTED = "S"  # on standard error, before anything of the candidate's is read
# The shell sets the limits. Setting them in Python between fork and exec would copy the judge's process.
_SCRIPT = f"""
printf {_STARTED} >&2
ulimit -c 0; ulimit -v {MAX_MEMORY_BYTES >> 10}; ulimit -f {_MAX_FILE_BYTES >> 9}
ulimit -S -t {TIMEOUT_SECONDS}; ulimit -H -t {TIMEOUT_SECONDS + 5}
printf %s "$2" > "$1/link"; mkdir "$1/empty"; cd "$1/empty"; folder=$1; shift 2
"$@" -Wl,-T,"$folder/link" -o "$folder/library" 2> "$folder/said"; code=$?
head -c {_MAX_MESSAGE_BYTES} "$folder/said" >&2
[ $code = 0 ] && head -c {MAX_LIBRARY_BYTES + 1} "$folder/library"
exit $code
"""


def run_compiler(
    command: list[str],
    source: bytes,
    environment: dict[str, str],
    limit: float,
    patience: float,
    walls: sandbox.Walls,
) -> tuple[int, bytes, bytes]:
    """Run a compiler with ``source`` on its standard input. Return exit code, output, and standard error.

    Raises CompileFailed if it takes longer than the ``limit`` of all compilers (seconds), TimeoutError if it takes
    longer than the caller's ``patience``: the text may still compile, so a later call tries it again. Raises
    ProcessLost if it was killed or stopped from outside: behind strong ``walls`` a candidate cannot do that.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, start_new_session=True, cwd="/"
    ) as process:
        try:
            data, output = _communicate(process, source, min(limit, patience))
        except BaseException as error:
            killed = process.poll() in KILLED  # before this function kills it
            inside = processes.descendants(process.pid)
            stopped = any(processes.alive(pid) and processes.stopped(pid) for pid in inside)
            processes.kill_group(process.pid)  # all processes of bubblewrap's sandbox end with the first
            if isinstance(error, subprocess.TimeoutExpired):
                if killed:
                    raise (ProcessLost(LOST) if walls.strong else CompileFailed(LOST)) from None
                if stopped and walls.strong:
                    raise ProcessLost("the compiler was stopped from outside") from None
                if patience < limit:
                    raise TimeoutError("the kernel is not compiled") from None
                raise CompileFailed(f"compiling took longer than {limit:g} s", rule=LIMIT) from None
            raise
    if process.returncode in KILLED and walls.strong:
        raise ProcessLost(LOST)
    return process.returncode, data, output


def _communicate(process: subprocess.Popen[bytes], source: bytes, seconds: float) -> tuple[bytes, bytes]:
    """Return standard output and standard error of a process that reads ``source``.

    Raises TimeoutExpired after these seconds, and soon after the process was killed. Bubblewrap, if killed while it
    starts, leaves a child that holds its pipes.
    """
    end = time.monotonic() + seconds
    unsent: bytes | None = source
    while True:
        try:
            return process.communicate(unsent, timeout=min(_POLL_SECONDS, max(0.0, end - time.monotonic())))
        except subprocess.TimeoutExpired:
            if process.poll() in KILLED or time.monotonic() >= end:
                raise
            unsent = None  # the first call began to send it, and the next ones go on


def arguments(options: tuple[str, ...]) -> tuple[str, ...]:
    """Return the compiler's options: ``options`` and the builder's own. They are part of the cache's key."""
    return (*options, *_LINK)


def run(
    source: str, options: tuple[str, ...], functions: Iterable[str], walls: sandbox.Walls, patience: float = math.inf
) -> bytes:
    """Compile ``source`` and return the library. It exports only ``functions``.

    Raises CompileFailed if the text does not compile, or if that takes too much time, memory or room. Raises
    TimeoutError if it takes longer than the caller's ``patience`` in seconds, SandboxFailed if no compiler was run,
    ProcessLost if it was killed or stopped from outside.
    """
    compiler = toolchain.compiler()
    call = [compiler, *arguments(options), f"-I{toolchain.INCLUDE}", "-x", "c++", "-"]
    folder_context = contextlib.nullcontext(Path("/tmp")) if walls.strong else Scratch()
    with folder_context as folder:
        scratch = str(folder)
        program = ["/bin/sh", "-c", _SCRIPT, "sh", scratch, _link_script(functions), *call]
        readable = [toolchain.INCLUDE, Path(compiler).parent.parent]  # passbench.h, and a compiler outside of /usr
        command = sandbox.tool_command(program, walls, readable, SCRATCH_BYTES)
        path = os.environ.get("PATH", os.defpath)
        environment = {"PATH": path, "LC_ALL": "C", "TMPDIR": scratch, "HOME": "/nowhere"}
        code, data, output = run_compiler(command, source.encode(), environment, TIMEOUT_SECONDS, patience, walls)
    text = output.decode(errors="replace")
    if not text.startswith(_STARTED):
        raise SandboxFailed(f"the sandbox of the compiler did not start: {text.strip() or f'it ended with {code}'}")
    if walls.strong and _LOST.match(text.removeprefix(_STARTED)):
        raise ProcessLost(LOST)
    if code or not data:
        raise _failure(code, text.removeprefix(_STARTED), source)
    if len(data) > MAX_LIBRARY_BYTES:
        raise CompileFailed(f"the compiled kernel is larger than {MAX_LIBRARY_BYTES >> 20} MiB", rule=LIMIT)
    return data


def _link_script(functions: Iterable[str]) -> str:
    """Return a linker script that exports only ``functions``, and makes the exception handler's pointer read-only."""
    exports = "".join(f' "{name}";' for name in functions)
    return (
        "SECTIONS { .data.rel.ro.personality : { *(.data.rel.local.DW.ref.*) } } INSERT AFTER .data.rel.ro;\n"
        f"VERSION {{ {{ {'global:' + exports if exports else ''} local: *; }}; }}\n"
    )


def _failure(code: int, output: str, source: str) -> CompileFailed:
    """Return the compiler's failure: a limit, or its errors."""
    limit = limit_reached(output)
    if limit is not None:
        return limit
    if not output.strip():
        return CompileFailed(f"the compiler ended with {code} and said nothing", source)
    errors = source_errors(output)
    lines = [f"kernel:{error.line}:{error.column}: error: {error.message}" for error in errors]
    lines = lines or list(linker_errors(output)) or output.replace("<stdin>", "kernel").strip().splitlines()
    return CompileFailed("\n".join([*lines[:MAX_ERRORS], *unshown(len(lines))]), source, errors)
