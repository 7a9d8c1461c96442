"""One run of the compiler, in a sandbox of its own: text in, library out, and nothing of a candidate's in reach.

Neither the candidate's files nor a home directory nor the network are there, the working folder is empty, and what
the compiler writes lies in a limited temporary folder that is gone with it; the library comes back through a pipe.
Where bubblewrap does not work the compiler runs with the same limits and environment, in a new empty folder.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.builder import process
from pytest_passbench.judge.builder.refusals import CompileFailed, LimitReached, limit_reached
from pytest_passbench.kernels import toolchain

TIMEOUT_SECONDS = 60
MAX_MEMORY_BYTES = 2 << 30  # of each process of the compiler
SCRATCH_BYTES = 96 << 20
_MAX_FILE_BYTES = 24 << 20  # no file fills the folder, so that there is room for what the compiler says
MAX_LIBRARY_BYTES = 16 << 20
_MAX_MESSAGE_BYTES = 64 << 10
# Without start files nothing runs at load and no storage is the toolchain's own: any that is left is the kernel's.
# The loader makes relocated tables and the table of functions read-only (relro, now); code lies apart from
# data (separate-code); symbols can be counted (sysv); __dso_handle lets a static object be linked, to be refused
# with its name.
_LINK = (
    *("-pipe", "-nostartfiles", "-Wl,-z,relro,-z,now,-z,noexecstack,-z,separate-code,-z,text"),
    "-Wl,--hash-style=sysv,--defsym=__dso_handle=0",
)
# Limits are set in the shell, since code between fork and exec costs a process as large as the judge a copy.
_SCRIPT = f"""
ulimit -c 0; ulimit -t {TIMEOUT_SECONDS}; ulimit -v {MAX_MEMORY_BYTES >> 10}; ulimit -f {_MAX_FILE_BYTES >> 9}
printf %s "$2" > "$1/link"; mkdir "$1/empty"; cd "$1/empty"; folder=$1; shift 2
"$@" -Wl,-T,"$folder/link" -o "$folder/library" 2> "$folder/said"; code=$?
head -c {_MAX_MESSAGE_BYTES} "$folder/said" >&2
[ $code = 0 ] && head -c {MAX_LIBRARY_BYTES + 1} "$folder/library"
exit $code
"""


def arguments(options: tuple[str, ...]) -> tuple[str, ...]:
    """The compiler's whole command line but for its name and output: ``options`` and those of the builder."""
    return (*options, *_LINK)


def run(source: str, options: tuple[str, ...], functions: Iterable[str], walls: sandbox.Walls) -> bytes:
    """The library that the compiler makes of ``source``, of which only ``functions`` can be seen from outside.

    Raises :class:`CompileFailed`, or :class:`LimitReached` for a source that takes too much.
    """
    compiler = toolchain.compiler()
    call = [compiler, *arguments(options), f"-I{toolchain.INCLUDE}", "-x", "c++", "-"]
    own = contextlib.nullcontext("/tmp") if walls.strong else tempfile.TemporaryDirectory(prefix="passbench-build-")
    with own as scratch:
        program = ["/bin/sh", "-c", _SCRIPT, "sh", scratch, _link_script(functions), *call]
        command = sandbox.tool_command(program, walls, _needed(compiler), SCRATCH_BYTES)
        code, data, said = process.run(command, source.encode(), _environment(scratch), TIMEOUT_SECONDS)
    if code or not data:
        raise _failure(code, said.decode(errors="replace"))
    if len(data) > MAX_LIBRARY_BYTES:
        raise LimitReached(f"the compiled kernel is larger than {MAX_LIBRARY_BYTES >> 20} MiB")
    return data


def _link_script(functions: Iterable[str]) -> str:
    """Only ``functions`` are seen from outside; the pointer to the handler of exceptions is made read-only."""
    shown = "".join(f' "{name}";' for name in functions)
    return (
        "SECTIONS { .data.rel.ro.personality : { *(.data.rel.local.DW.ref.*) } } INSERT AFTER .data.rel.ro;\n"
        f"VERSION {{ {{ {'global:' + shown if shown else ''} local: *; }}; }}\n"
    )


def _needed(compiler: str) -> list[Path]:
    """Folders that a compiler outside of the system's own needs, and passbench.h."""
    return [toolchain.INCLUDE, Path(compiler).parent.parent]


def _environment(scratch: str) -> dict[str, str]:
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": scratch, "HOME": "/nowhere"}


def _failure(code: int, said: str) -> CompileFailed:
    """What went wrong, the compiler's first error first."""
    limit = limit_reached(said)
    if limit is not None:
        return limit
    return CompileFailed(_first_error(said) if said.strip() else f"the compiler ended with {code} and said nothing")


def _first_error(said: str) -> str:
    """The compiler's message from its first error on."""
    lines = said.replace("<stdin>", "kernel").strip().splitlines()
    first = next((i for i, line in enumerate(lines) if re.search(r"\b(error|undefined reference)\b", line)), 0)
    return "\n".join(lines[first : first + 40])
