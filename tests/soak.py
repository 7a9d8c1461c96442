"""A run in which every fifth measured process misbehaves, and what it leaves behind."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import corpus

HEAD = '''\
import ctypes
import os

import torch


def pattern(x, y, w, b):
    added = torch.nn.functional.gelu(x) + y
    return torch.nn.functional.layer_norm(added, (256,), w, b, 1e-05)


def replacement_args(x, y, w, b):
    return (x, y, w, b)


calls = 0
held = []


def wrapper(x, y, w, b):
    global calls
    calls += 1
    if calls > 4:  # beyond those in the template
        misbehave()
    return torch.nn.functional.layer_norm(torch.nn.functional.gelu(x) + y, (256,), w, b, 1e-05)


def replacement_func():
    return wrapper


def misbehave():
'''
#: What ``misbehave`` does, and the statuses that a record may have then. Harmless outside a sandbox too.
KINDS = {
    "crash": ("    ctypes.string_at(8)\n", {"crash"}),
    "hang": ("    while True:\n        pass\n", {"timeout"}),
    "flood": ("    for _ in range(300):\n        os.write(2, b'x' * (1 << 20))\n", {"runtime_fail"}),
    "fork": ("    if os.fork() == 0:\n        os._exit(0)\n", {"runtime_fail"}),
    "memory": (
        "    held.append(bytearray(64 << 20))\n    if len(held) > 6:\n        raise MemoryError\n",
        {"runtime_fail"},
    ),
}
WELL = "    pass\n"
MOST_GROWN = 50.0  # MiB
TIMEOUT = 2.0  # seconds: each that hangs costs so much


@dataclass
class Outcome:
    """What became of a run. ``wrong``: records that are not what they should be; ``left``: what was left behind;
    ``grown``: MiB by which the judge grew after the first fifth."""

    statuses: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    grown: float = 0.0


def run(count: int, folder: Path, **settings: Any) -> Outcome:
    """Judge ``count`` subgraphs, every fifth by a pass that misbehaves; ``folder`` is for the candidate and tasks."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.judge.session import Session
    from pytest_passbench.settings import Settings
    from pytest_passbench.suite.taskfile import read_task

    candidate = Candidate.open(_write(count, folder))
    chosen = {"pipeline": "direct", "timeout": TIMEOUT, "policy": "open", "audit_skip": ("source",), **settings}
    outcome, before, first = Outcome(), _state(), 0.0
    with Session(Settings(**chosen), os.urandom(32)) as session:
        session.floor = False
        for number, path in enumerate(sorted((folder / "tasks").glob("*.yaml"))):
            *_, record = session.judge(read_task(path), candidate)
            kind = record.task.partition("-")[2]
            allowed = KINDS[kind][1] if kind in KINDS else {"correct"}
            said = f"{kind}: {record.arm.status}"
            outcome.statuses[said] = outcome.statuses.get(said, 0) + 1
            if record.arm.status not in allowed:
                outcome.wrong.append(f"{record.task}: {record.arm.status}: {record.arm.message}")
            if number == count // 5:
                first = _resident()
    outcome.grown = _resident() - first
    outcome.left = sorted(_state() - before)
    return outcome


def _write(count: int, folder: Path) -> Path:
    """The candidate: a pass directory per task, so that each has a pass of its own."""
    kinds, entries = list(KINDS), []
    for number in range(count):
        kind = kinds[number // 5 % len(kinds)] if number % 5 == 4 else "well"
        name = f"{number:03d}-{kind}"
        entry = corpus.Entry(name, folder / "made" / name, "", "", "", "target", False, 0, "")
        entry.folder.mkdir(parents=True)
        (entry.folder / "fused.py").write_text(HEAD + (KINDS[kind][0] if kind in KINDS else WELL))
        (entry.folder / "sorted_output_pass_rule_names.json").write_text('["fused"]')
        entries.append(entry)
    return corpus.combine(entries, folder)


def _state() -> set[str]:
    """Our processes, the temporary and shared files there are, and our open files."""
    from pytest_passbench.judge.processes import descendants, name

    processes = {f"process {name(pid)}" for pid in descendants(os.getpid())}
    places = [path for top in ("/tmp", "/dev/shm") for path in Path(top).iterdir()]
    files = {str(path) for path in places if path.suffix != ".lock"}  # the machine's locks stay
    handles = {f"{len(list(Path('/proc/self/fd').iterdir()))} open files"}
    return processes | files | handles


def _resident() -> float:
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
