"""Commands run on bad input: each in a forked child with limits of memory and time, its output kept and judged."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS = 5.0
MEMORY = 1 << 30
LINES = 20
CHARACTERS = 4_000
"""The limits of one input: seconds, bytes of memory, and lines and characters of its message."""

GOOD = ("fine", "message")
_RAISED = 70  # the exit code of a child whose command raised
_KEPT = 1 << 20  # bytes of output that are looked at
_TRACEBACK = re.compile(
    r"Traceback \(most recent|INTERNALERROR|^E  +\w|\.py:\d+: (in \w|\w*(Error|Exception)\b)", re.M
)
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|bad_alloc|[Cc]an(no|')t allocate memory|not enough memory|DefaultCPUAllocator"
)
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2


@dataclass(frozen=True)
class Outcome:
    """How one command ended.

    ``verdict`` is fine, message, traceback, hang, too large, too long (its message) or crash.
    """

    verdict: str
    code: int
    seconds: float
    mebibytes: float
    out: str
    err: str

    @property
    def text(self) -> str:
        """Return all that the command printed."""
        return self.out + self.err


def warm_up(folder: Path) -> None:
    """Run the commands on good input in an empty folder, so that a child's time is that of its own input alone."""
    import torch

    from shared import good_inputs

    torch.set_num_threads(1)
    task, sample = good_inputs.write_task(folder), good_inputs.write_sample(folder)
    candidate, stored = good_inputs.write_candidate(folder), good_inputs.write_results(folder, good_inputs.results())
    with (folder / "said").open("w") as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        for action in ("list", "show", "validate", "check"):
            _run(["tasks", action, str(task)])
        _run(["tasks", "validate", str(sample)])
        _run(["verify", str(stored), f"--tasks={task}"])
        _run(["merge", str(folder / "out"), str(stored)])
        _run(["show", "--json", str(stored)])
        # The file is no log. Trying to read it imports Inspect, which takes longer than one input may.
        _run(["trajectories", str(stored), f"--out={folder / 'no trajectories'}"])
        _run(["pytest", "--passbench", f"--candidate={candidate}", str(task)])


def forked(argv: Sequence[str], folder: Path, seconds: float = SECONDS) -> Outcome:
    """Run ``passbench ARGV``, or pytest if the first word is "pytest", in ``folder``; return how it ended."""
    out, err = folder / ".stdout", folder / ".stderr"
    before, started = _sizes(), time.monotonic()
    child = os.fork()
    if child == 0:
        _child(argv, folder, out, err, before[0])
    descriptor = os.pidfd_open(child)
    ended, _, _ = select.select([descriptor], [], [], seconds)
    taken = time.monotonic() - started
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with all processes that it has started
    os.close(descriptor)
    _, status, usage = os.wait4(child, 0)
    grown = max(0.0, usage.ru_maxrss / 1024 - before[1] / (1 << 20))
    code = os.waitstatus_to_exitcode(status)
    texts = _kept(out), _kept(err)
    verdict = _verdict(argv, bool(ended), code, grown, *texts)
    return Outcome(verdict, code, taken, grown, *texts)


def _child(argv: Sequence[str], folder: Path, out: Path, err: Path, size: int) -> None:
    code = _RAISED
    try:
        os.setpgid(0, 0)
        for target, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.chdir(folder)
        _obey_permissions()
        resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = _run(list(argv))
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # an exception of the command is what this looks for
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run(argv: list[str]) -> int:
    if argv[0] == "pytest":
        import pytest

        return int(pytest.main(["-p", "no:cacheprovider", "--collect-only", "-q", *argv[1:]]))
    from pytest_passbench.commands.main import main

    return main(argv)


def _obey_permissions() -> None:
    """Give up root's right to read files and folders without permission."""
    if os.geteuid():
        return
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None)
    libc.capget(header, data)
    for word in (0, 1):  # effective and permitted
        data[word] &= ~(1 << _CAP_DAC_OVERRIDE | 1 << _CAP_DAC_READ_SEARCH)
    libc.capset(header, data)


def _sizes() -> tuple[int, int]:
    """Return this process's address space and resident memory, in bytes."""
    virtual, resident = Path("/proc/self/statm").read_text().split()[:2]
    return int(virtual) * resource.getpagesize(), int(resident) * resource.getpagesize()


def _kept(path: Path) -> str:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(_KEPT).decode(errors="replace")
    return ""


def _verdict(argv: Sequence[str], ended: bool, code: int, grown: float, out: str, err: str) -> str:
    has_help = {"-h", "--help"} & {*argv}  # pytest prints the help to stdout besides an error in stderr
    said = out + err if argv[0] == "pytest" and not has_help else err
    if not ended:
        return "hang"
    if grown > MEMORY >> 20 or _OUT_OF_MEMORY.search(out + err):
        return "too large"
    if code < 0:
        return "crash"
    if code == _RAISED or _TRACEBACK.search(err if argv[0] != "pytest" else out + err):
        return "traceback"
    if code and (said.count("\n") > LINES or len(said) > CHARACTERS):
        return "too long"
    return "message" if code else "fine"


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a message that are not empty."""
    return (line for line in text.splitlines() if line.strip())
