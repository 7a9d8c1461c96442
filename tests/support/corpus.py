"""The corpus of exploits and honest candidates: read from its pages, written as folders, judged in one session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pytest_passbench.core.criterion import CRITERIA, Criterion
from support.corpus_text import CorpusError, Section, edited, sections
from support.paths import TESTS

FOLDER = TESTS / "corpus"
PASS, MANIFEST = "gelu_add_norm.py", "sorted_output_pass_rule_names.json"
NOISE = 1.3  # the greatest factor between the speeds of two candidates that do the same work


@dataclass(frozen=True)
class Entry:
    """A candidate of the corpus.

    ``page`` is the name of its page, which is the class of attack for an exploit. ``expect`` is "rejected" or
    "neutralised" for an exploit, "warned" for one that causes a warning alone, and "passes" or "refused" for an
    honest candidate. A refusal is no accusation, and ``message`` is a part of its text. ``layer`` is what stops an
    exploit: "isolation" if what it attacks is absent. An exploit may also name its record's ``status`` and a part of
    its ``message``. ``criterion`` decides whether answers are right. ``subgraphs`` is how many subgraphs of its task
    are judged; the last record counts.
    """

    name: str
    page: str
    files: Mapping[str, bytes] = field(repr=False)
    task: str
    expect: str
    layer: str = ""
    twin: str = ""
    gpu: bool = False
    message: str = ""
    status: str = ""
    criterion: Criterion = "ladder"
    subgraphs: int = 1

    def write(self, folder: Path) -> Path:
        """Write the candidate's files into a new folder, and return it."""
        folder.mkdir(parents=True)
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder


@dataclass(frozen=True)
class Base:
    """The texts that candidates are edits of, by file, the task that they are for, and the exploits' usual twin."""

    texts: Mapping[str, str]
    facts: Mapping[str, str]


def exploits() -> list[Entry]:
    """Return the exploits by their names."""
    return _entries("exploits")


def honest() -> list[Entry]:
    """Return the honest candidates by their names."""
    return _entries("honest")


def outside() -> list[Entry]:
    """Return candidates written after what others publish, and honest ones beside them, by their names."""
    return _entries("outside")


def _entries(kind: str) -> list[Entry]:
    pages = sorted((FOLDER / kind).glob("*.md"))
    entries = [_entry(section, page.stem) for page in pages for section in sections(page)]
    return sorted(entries, key=lambda entry: entry.name)


def _entry(section: Section, page: str) -> Entry:
    facts = {"twin": "", **bases()[section.facts["base"]].facts, **section.facts}
    expect = next((word for word in ("rejected", "neutralised", "warned", "refused") if word in facts), "passes")
    files = _files(section, bases()[section.facts["base"]].texts)
    layer = "" if expect == "refused" else facts.get(expect, "")
    message, status = facts.get("refused", facts.get("says", "")), facts.get("status", "")
    task, twin, gpu = facts["task"], facts["twin"], "gpu" in facts
    criterion = CRITERIA[CRITERIA.index(facts.get("criterion", "ladder"))]
    subgraphs = int(facts.get("subgraphs", 1))
    return Entry(section.name, page, files, task, expect, layer, twin, gpu, message, status, criterion, subgraphs)


@cache
def bases() -> Mapping[str, Base]:
    """Return the bases by their names. A base may be an edit of one above it."""
    read: dict[str, Base] = {}
    for section in sections(FOLDER / "bases.md"):
        above = read[section.facts["base"]] if "base" in section.facts else Base({}, {})
        read[section.name] = Base(_texts(section, above.texts), {**above.facts, **section.facts})
    return read


def _texts(section: Section, base: Mapping[str, str]) -> dict[str, str]:
    """Return the texts of a base's files with a section's blocks in their places."""
    texts = dict(base)
    for block in section.blocks:
        name = block.file or PASS
        try:
            texts[name] = edited(texts[name], block.text) if block.kind == "diff" else block.text
        except CorpusError as error:
            raise CorpusError(f"{section.name}: {error}") from None
    return texts


def _files(section: Section, base: Mapping[str, str]) -> dict[str, bytes]:
    """Return a candidate's files. Its sentence is the docstring of its pass, unless its text is given whole."""
    texts = {MANIFEST: json.dumps([Path(PASS).stem]) + "\n", **_texts(section, base)}
    if not any(block.file == PASS for block in section.blocks):
        texts[PASS] = f'"""{section.sentence}"""\n\n{texts[PASS]}'
    encodings = {block.file: block.encoding for block in section.blocks}
    return {name: text.encode(encodings.get(name, "utf-8")) for name, text in texts.items()}


def combine(chosen: Iterable[Entry], folder: Path, subgraphs: int = 1) -> Path:
    """Write ``folder/cand`` and ``folder/tasks`` with a task for each entry. Return the candidate's folder."""
    (folder / "tasks").mkdir(parents=True)
    for entry in chosen:
        entry.write(folder / "cand" / entry.name)
        (folder / "tasks" / f"{entry.name}.task.yaml").write_text(_task(entry, max(subgraphs, entry.subgraphs)))
    return folder / "cand"


def _task(entry: Entry, subgraphs: int) -> str:
    text = (FOLDER / "tasks" / f"{entry.task}.task.yaml").read_text()
    lines = text.splitlines(keepends=True)
    head = [f"id: {entry.name}\n" if line.startswith("id: ") else line for line in lines]
    head = [f"subgraphs: {subgraphs}\n" if line.startswith("subgraphs: ") else line for line in head]
    starts = [index for index, line in enumerate(head) if line.startswith("- id: ")]
    return "".join(head[: starts[subgraphs]] if subgraphs < len(starts) else head)


def judge(candidate: Path, secret: str = "a secret of the corpus", **settings: Any) -> dict[str, list[Any]]:
    """Return the last record of each subgraph of every entry that :func:`combine` wrote, by its name."""
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge.session import Session
    from pytest_passbench.suite.taskfile import read_task

    settings = {"pipeline": "direct", "timeout": 15.0, **settings}
    opened = Candidate.open(candidate)
    records: dict[str, dict[str, Any]] = {}
    with Session(Settings(**settings), secret.encode()) as session:
        for path in sorted((candidate.parent / "tasks").glob("*.yaml")):
            for record in session.judge(read_task(path), opened):
                records.setdefault(record.task, {})[record.subgraph] = record
    return {task: list(latest.values()) for task, latest in records.items()}


def outcome(record: Any, criterion: Criterion) -> str:
    """Return "passes" for an answer that is right at t by a criterion, else "rejected".

    The judge measures the same under every criterion, so records of one session serve them all.
    """
    return "passes" if replace(record, criterion=criterion).correct else "rejected"


def gain(record: Any, twin: Any) -> float:
    """Return how much faster an exploit is than its twin without the trick, or than eager if the twin is slower.

    A trick that only reaches eager's own speed gains nothing. Return 1 if a speed was not measured.
    """
    if record.arm.speed is None or twin.arm.speed is None:
        return 1.0
    return float(record.arm.speed.low / max(twin.arm.speed.high, 1.0))
