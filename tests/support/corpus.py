"""The corpus of candidates as one: a folder of per-task pass directories, so that one session serves all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.paths import TESTS

EXPLOITS, HONEST = TESTS / "exploits", TESTS / "honest"
NOISE = 1.3  # two candidates that do the same work are this much apart at most


@dataclass(frozen=True)
class Entry:
    """One candidate of the corpus.

    ``expect`` is "rejected" or "neutralised" of an exploit, "passes" or "refused" of an honest one; a refusal is no
    accusation, and ``says`` why. An exploit may name its record's ``status``, and what its message ``says``.
    ``layer`` is what stops an exploit; "isolation" if what it attacks is not there. ``subgraphs`` is the number of
    its task's subgraphs that are judged; the last record counts.
    """

    name: str
    folder: Path
    expect: str
    layer: str
    twin: str
    task: str
    gpu: bool
    line: int
    says: str
    status: str
    subgraphs: int


def entries(root: Path) -> list[Entry]:
    """Everything below ``root`` with an ``expect.json``."""
    return [_entry(path.parent) for path in sorted(root.glob("*/expect.json"))]


def _entry(folder: Path) -> Entry:
    told = json.loads((folder / "expect.json").read_text())
    return Entry(
        folder.name,
        folder,
        told.get("expect", "passes"),
        told.get("layer", ""),
        told.get("twin", ""),
        told.get("task", "target"),
        bool(told.get("gpu", False)),
        int(told.get("line", 0)),
        told.get("says", ""),
        told.get("status", ""),
        int(told.get("subgraphs", 1)),
    )


def combine(chosen: Iterable[Entry], folder: Path, subgraphs: int = 1) -> Path:
    """Write ``folder/cand`` and ``folder/tasks`` with a task for each entry; returns the candidate."""
    (folder / "tasks").mkdir(parents=True)
    for entry in chosen:
        shutil.copytree(entry.folder, folder / "cand" / entry.name)
        (folder / "tasks" / f"{entry.name}.task.yaml").write_text(_task(entry, max(subgraphs, entry.subgraphs)))
    return folder / "cand"


def _task(entry: Entry, subgraphs: int) -> str:
    text = (EXPLOITS / f"{entry.task}.task.yaml").read_text()
    lines = text.splitlines(keepends=True)
    head = [f"id: {entry.name}\n" if line.startswith("id: ") else line for line in lines]
    head = [f"subgraphs: {subgraphs}\n" if line.startswith("subgraphs: ") else line for line in head]
    starts = [index for index, line in enumerate(head) if line.startswith("- id: ")]
    return "".join(head[: starts[subgraphs]] if subgraphs < len(starts) else head)


def judge(candidate: Path, **settings: Any) -> dict[str, list[Any]]:
    """The last record of each subgraph of every entry that :func:`combine` wrote, by its name."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.taskfile import read_task

    settings = {"pipeline": "direct", "timeout": 15.0, **settings}
    chosen = Candidate.open(candidate)
    found: dict[str, dict[str, Any]] = {}
    with Session(Settings(**settings), b"a secret of the corpus") as session:
        for path in sorted((candidate.parent / "tasks").glob("*.yaml")):
            for record in session.judge(read_task(path), chosen):
                found.setdefault(record.task, {})[record.subgraph] = record
    return {task: list(records.values()) for task, records in found.items()}


def outcome(record: Any) -> str:
    """Return "passes" for an answer that is right at t, else "rejected"."""
    return "passes" if record.correct else "rejected"


def gain(record: Any, twin: Any) -> float:
    """How much faster than its twin without the trick, or than eager where the twin is slower than that: a trick
    that comes to eager's own speed has won nothing. 1 where a speed was not measured."""
    if record.arm.speed is None or twin.arm.speed is None:
        return 1.0
    return float(record.arm.speed.low / max(twin.arm.speed.high, 1.0))
