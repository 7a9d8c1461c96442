"""A run in which every fifth candidate misbehaves, while it is read or measured, and what that leaves behind."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.workspace import Workspace

HEAD = """\
import ctypes
import os

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("extern \\"C\\" void misbehave(volatile float* out) { @KERNEL@ }")
held = []


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


def wrapper(x, y, w, b):
    misbehave()
    out = torch.nn.functional.layer_norm(torch.nn.functional.gelu(x) + y, (256,), w, b, 1e-05)
    lib.misbehave(out)
    return out


def replacement_func():
    return wrapper


def misbehave():
"""
GRAPH = """
def forward(in_0, in_1, in_2, in_3):
    tmp_0 = torch.nn.functional.gelu(in_0)
    tmp_1 = tmp_0 + in_1
    tmp_2 = torch.nn.functional.layer_norm(tmp_1, (256,), in_2, in_3, 1e-05)
    return (tmp_2,)
"""
SHAPES = ((64, 256), (64, 256), (256,), (256,))
PYTHON, KERNEL = "    pass\n", ""
#: What ``misbehave`` does in the reader, what the kernel does in a measured process, and the status that follows.
KINDS = {
    "kernel-crash": (PYTHON, "*(volatile float*)8 = 1;", "crash"),
    "hang": ("    while True:\n        pass\n", KERNEL, "timeout"),
    "kernel-hang": (PYTHON, "for (;;) out[0] = out[0];", "timeout"),
    "flood": ("    for _ in range(300):\n        os.write(2, b'x' * (1 << 20))\n", KERNEL, "runtime_fail"),
    "memory": (
        "    while True:\n        held.append(bytearray(64 << 20))\n"
        "        if len(held) > 6:\n            raise MemoryError\n",
        KERNEL,
        "runtime_fail",
    ),
    "crash": ("    ctypes.string_at(8)\n", KERNEL, "crash"),
    "fork": ("    if os.fork() == 0:\n        os._exit(0)\n", KERNEL, "correct"),
}
MOST_GROWN = 50.0  # MiB
TIMEOUT = 4.0  # seconds, which every candidate that hangs costs


@dataclass
class Outcome:
    """The outcome of a run. ``wrong``: records with a status that was not expected; ``left``: what was left behind;
    ``grown``: MiB by which the judge's memory grew after the first fifth."""

    statuses: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    grown: float = 0.0


def run(count: int, folder: Path, **settings: Any) -> Outcome:
    """Judge ``count`` subgraphs, every fifth by a pass that misbehaves; ``folder`` is for the candidate and tasks."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge import native_library
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.taskfile import read_task

    candidate = Candidate.open(_write(count, folder))
    chosen = {"pipeline": "direct", "timeout": TIMEOUT, "policy": "open", **settings}
    outcome, first = Outcome(), 0.0
    native_library.descriptor()  # it stays open until this process ends
    with _own_temporary_folder() as temporary:
        before = _state(temporary)
        with Session(Settings(**chosen), os.urandom(32)) as session:
            for number, path in enumerate(sorted((folder / "tasks").glob("*.yaml"))):
                *_, record = session.judge(read_task(path), candidate)
                kind = record.task.partition("-")[2]
                expected = KINDS[kind][2] if kind in KINDS else "correct"
                ended = "correct" if record.correct else record.arm.status
                said = f"{kind}: {ended}"
                outcome.statuses[said] = outcome.statuses.get(said, 0) + 1
                if ended != expected:
                    outcome.wrong.append(f"{record.task}: {ended}: {record.arm.message}")
                if number == count // 5:
                    first = _resident()
        outcome.grown = _resident() - first
        outcome.left = sorted(_state(temporary) - before)
    return outcome


def _write(count: int, folder: Path) -> Path:
    """Write the tasks, and a candidate with a pass directory for each. Return the candidate."""
    kinds, workspace = list(KINDS), Workspace(folder)
    for number in range(count):
        kind = kinds[number // 5 % len(kinds)] if number % 5 == 4 else "well"
        name = f"{number:03d}-{kind}"
        body, kernel, _status = KINDS.get(kind, (PYTHON, KERNEL, ""))
        workspace.task(name, GRAPH, SHAPES, ops=("gelu", "add", "layer_norm"))
        workspace.candidate({"fused": HEAD.replace("@KERNEL@", kernel) + body}, task=name)
    return folder / "cand"


@contextlib.contextmanager
def _own_temporary_folder() -> Iterator[Path]:
    """Give this process a temporary folder of its own, so that what other processes leave is not counted."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        tempfile.tempdir = folder
        try:
            yield Path(folder)
        finally:
            tempfile.tempdir = None


def _state(temporary: Path) -> set[str]:
    """Return our processes, the files in the temporary folder and in shared memory, and the number of open files."""
    from pytest_passbench.judge.arms.processes import descendants, name

    processes = {f"process {name(pid)}" for pid in descendants(os.getpid())}
    places = [path for top in (temporary, Path("/dev/shm")) for path in top.iterdir()]
    files = {str(path) for path in places if path.suffix != ".lock"}  # the machine's locks stay
    handles = {f"{len(list(Path('/proc/self/fd').iterdir()))} open files"}
    return processes | files | handles


def _resident() -> float:
    """Return the resident memory of this process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
