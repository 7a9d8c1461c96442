"""The ledger of a run in progress: its seed, the subgraphs to judge, and the records that came in.

The pytest plugin and :func:`pytest_passbench.evaluate` share it. Importing it imports neither torch nor pytest.
"""

from __future__ import annotations

import os
import resource
import sys
from argparse import ArgumentTypeError
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core import checks
from pytest_passbench.core import seed as seeds
from pytest_passbench.core.device import gpu_index, is_cuda
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text, writing
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import DISQUALIFIED, RAN, ArmResult, Key, Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.core.task import Task
from pytest_passbench.kernels import toolchain
from pytest_passbench.report import markdown
from pytest_passbench.report.report import Report
from pytest_passbench.run import results_file
from pytest_passbench.run.stored import StoredRun

_LIMITS = (
    ("-n", resource.RLIMIT_NOFILE, 256, "open files", "", 1),
    ("-f", resource.RLIMIT_FSIZE, 256 << 20, "the size of a file", " MiB", 1 << 20),
    ("-v", resource.RLIMIT_AS, 4 << 30, "address space", " GiB", 1 << 30),
)
"""Each limit: its option of ``ulimit``, its number, the least allowed value, its name, the unit that shows it."""


def run_seed(text: str | None) -> bytes:
    """Return the 32 bytes that every secret of the run is derived from: drawn, or the user's hexadecimal number.

    Raises UserError for a text that is no such number.
    """
    if text is None:
        return seeds.draw()
    try:
        return int(checks.seed(text), 16).to_bytes(seeds.SEED_BYTES)
    except ArgumentTypeError as error:
        raise UserError(str(error)) from None


def open_candidates(paths: Iterable[Path]) -> list[Candidate]:
    """Return the candidates in these folders, in order.

    Raises UserError for a folder without passes, and for two of the same name.
    """
    opened = [Candidate.open(path) for path in paths]
    if not opened:
        raise UserError("no candidate given", where="--candidate", remedy="name a folder of passes")
    by_name: dict[str, Candidate] = {}
    for candidate in opened:
        if not candidate.name.isprintable():  # it is a part of node ids, which are shown as they are
            raise UserError("the folder's name has characters that cannot be shown", where=candidate.path,
                            remedy="rename the folder")  # fmt: skip
        other = by_name.setdefault(candidate.name, candidate)
        if other is not candidate:
            raise UserError(f"is called {candidate.name}, and so is {other.path}", where=candidate.path,
                            remedy="rename one of the folders")  # fmt: skip
    return opened


def open_reference(settings: Settings) -> Candidate | None:
    """Return the candidate that the others are measured against; None if the run has none.

    Raises UserError for a folder without passes.
    """
    if settings.against is None:
        return None
    (reference,) = open_candidates([settings.against])
    return reference


def _check_trusted(settings: Settings) -> None:
    """Raise UserError if a trusted run is asked for something that it does not do."""
    refusals = (
        (settings.against is not None, f"--passbench-against={settings.against}", "measures nothing"),
        (settings.held_out > 0, f"--passbench-held-out={settings.held_out}", "judges no further sizes"),
    )
    for is_set, where, words in refusals:
        if settings.trusted and is_set:
            raise UserError(f"a trusted run {words}", where=where, remedy="leave one of the two out")


def now() -> str:
    """Return the time, as ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass
class Ledger:
    """The ledger of one run. ``tasks`` are the ids selected, judged or not.

    ``selected`` has the number of subgraphs of each task to be judged for each candidate. Records may leave some out.
    """

    settings: Settings
    candidates: Sequence[Candidate]
    seed: bytes
    reference: Candidate | None = None
    stored: StoredRun | None = None
    tasks: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    noise: dict[str, Any] = field(default_factory=dict)
    started: str = field(default_factory=now)
    interrupted: bool = False
    selected: dict[str, dict[str, int]] = field(default_factory=dict)
    _records: dict[Key, Record] = field(default_factory=dict)
    _left_out: Counter[tuple[str, str]] = field(default_factory=Counter)

    def select(self, tasks: Iterable[Task]) -> None:
        """Note that these tasks are to be judged, whole, for every candidate."""
        counts = {task.id: len(task.subgraphs) for task in tasks}
        self.tasks, self.selected = list(counts), {item.name: dict(counts) for item in self.candidates}

    def expect(self, task: str, candidate: str, count: int) -> None:
        """Note how many subgraphs of a task are to be judged for a candidate."""
        self.selected.setdefault(candidate, {})[task] = count

    def drop(self, task: str, candidate: str) -> None:
        """Leave a faulty task out of a candidate's run."""
        self.selected.get(candidate, {}).pop(task, None)
        if not any(task in counts for counts in self.selected.values()):
            self.tasks.remove(task)

    def count(self, task: str, candidate: str) -> int:
        """Return how many subgraphs of a task are to be judged for a candidate, without those left out; 0 if none."""
        return self.selected.get(candidate, {}).get(task, 0) - self._left_out[task, candidate]

    def _counts(self) -> dict[str, dict[str, int]]:
        return {name: {task: self.count(task, name) for task in counts} for name, counts in self.selected.items()}

    def add(self, record: Record) -> None:
        """Add a record. If a test was run again, it replaces the record of the same subgraph and candidate."""
        before = self._records.get(record.key)
        self._left_out[record.key[:2]] += len(record.left_out) - (len(before.left_out) if before is not None else 0)
        self._records[record.key] = record

    def has(self, key: Key) -> bool:
        """Return True if there is a record of this task, candidate and subgraph."""
        return key in self._records

    @property
    def records(self) -> list[Record]:
        """The records by candidate, then in the order of the tasks, whatever worker made them."""
        names = [candidate.name for candidate in self.candidates]
        place = {task: index for index, task in enumerate(self.tasks)}

        def rank(record: Record) -> tuple[int, int]:
            return names.index(record.candidate), place.get(record.task, len(place))

        return sorted(self._records.values(), key=rank)

    def missing(self) -> list[tuple[str, str, int, int]]:
        """Return task, candidate, number of records and number expected of every pair that lacks records.

        Such a pair crashed, was interrupted, or never started.
        """
        judged, counts = Counter((task, candidate) for task, candidate, _ in self._records), self._counts()
        pairs = [(task, candidate.name) for candidate in self.candidates for task in self.tasks]
        counted = [(*pair, judged[pair], counts.get(pair[1], {}).get(pair[0], 1)) for pair in pairs]
        return [item for item in counted if item[2] < item[3]]

    def header(self) -> dict[str, Any]:
        """Return what decides the records of the run: for its journal, and to compare runs by."""
        stored = self.stored
        return {
            "seed": self.seed.hex(),
            "settings": {name: str(getattr(self.settings, name)) for name in same_in("resume")},
            "candidates": {candidate.name: candidate.content_hash for candidate in self.candidates},
            "against": self.reference.content_hash if self.reference is not None else "",
            "compared": f"{stored.run.digest} {stored.limit} {stored.strict}" if stored is not None else "",
            "harness": harness_hash(),
        }

    def run(self) -> Run:
        """Return the run as a value, with its seed revealed."""
        records = self.records
        return Run(
            settings=asdict(self.settings),
            environment=self.environment,
            tasks=list(self.tasks),
            records=disqualify(records),
            hashes={
                "tasks": {r.task: r.task_hash for r in records if r.task_hash},
                "harness": harness_hash(),
                "editions": sorted({r.edition for r in records if r.edition}),
            },
            candidates=[_described(candidate) for candidate in self.candidates],
            compared=self.stored.describe(self.environment) if self.stored is not None else {},
            against=_described(self.reference) if self.reference is not None else {},
            noise=self.noise,
            seed={"commitment": seeds.commitment(self.seed), "revealed": self.seed.hex()},
            started=self.started,
            finished=now(),
            interrupted=self.interrupted,
            selected=self._counts(),
        )


def _described(candidate: Candidate) -> dict[str, Any]:
    content, passes = candidate.content_hash, candidate.passes
    return {"name": candidate.name, "path": str(candidate.path), "content_hash": content, "passes": passes}


def check_run(settings: Settings) -> None:
    """Raise UserError if this machine cannot judge, or if a run cannot do what its settings ask for."""
    _check_trusted(settings)
    if sys.platform != "linux":
        raise UserError(f"pytest-passbench judges on Linux only, this is {sys.platform}")
    check_limits()
    if os.environ.get("CXX"):
        toolchain.compiler()
    if is_cuda(settings.device):
        import torch

        device_count = torch.cuda.device_count()
        if gpu_index(settings.device) >= device_count:
            where = f"--passbench-device={settings.device}"
            remedy = f"use cuda:0 to cuda:{device_count - 1}" if device_count else "use cpu"
            raise UserError(f"torch finds {counted(device_count, 'CUDA device')} here", where=where, remedy=remedy)


def writable(folder: Path) -> None:
    """Raise UserError if reports cannot be written below ``folder``."""
    with writing(folder, "choose another folder with --passbench-report-dir"):
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()


def write(report: Report, folder: Path) -> None:
    """Write a run: ``results.json``, ``results.md``, ``comment.md`` and ``report.html`` to the run's folder.

    Raises UserError if they cannot be written.
    """
    results_file.write(folder, report.run)
    write_text(folder / "comment.md", markdown.comment(report))
    write_reports(report, folder / results_file.NAME)


def write_reports(report: Report, results: Path) -> None:
    """Write a run for people, beside its results file: as Markdown and as a page for a browser.

    They are called ``results.md`` and ``report.html``, or like the results file if that has another name. Raises
    UserError if they cannot be written.
    """
    from pytest_passbench.report import html, markdown

    page = results.with_name(html.NAME) if results.name == results_file.NAME else results.with_suffix(".html")
    write_text(results.with_suffix(".md"), markdown.render(report))
    write_text(page, html.page(report))


def fresh_folder(report_dir: Path, started: str, names: Iterable[str]) -> Path:
    """Return a new folder ``<time>-<candidates>`` in ``report_dir``: two runs never share one.

    ``started`` is the time at which the run started (ISO 8601). Raises UserError if the folder cannot be made.
    """
    stamp = datetime.fromisoformat(started).strftime("%Y%m%d-%H%M%S")
    name = "-".join([stamp, *names]).encode()[:100].decode(errors="ignore")  # a name has 255 bytes at most
    for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
        folder = report_dir / (name + suffix)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", where=folder) from None
        return folder
    raise UserError("has a thousand runs of this second", where=report_dir, remedy="clear the folder")


def disqualify(records: Sequence[Record]) -> list[Record]:
    """Return the records; those where a disqualified pass matched get the status ``integrity``.

    Candidate, pass directory and name identify a pass. Records of failures stay as they are.
    """
    caught: dict[tuple[str, str, str], Record] = {}
    for record in records:
        if record.arm.status == "integrity" and record.arm.phase != DISQUALIFIED:
            for key in _matched(record):
                caught.setdefault(key, record)
    return [_judged(record, caught) for record in records]


def _matched(record: Record) -> list[tuple[str, str, str]]:
    return [(record.candidate, record.folder, item.name) for item in record.passes if item.matches]


def _judged(record: Record, caught: dict[tuple[str, str, str], Record]) -> Record:
    guilty = [key for key in _matched(record) if key in caught]
    if not guilty or record.arm.status != RAN:
        return record
    where = caught[guilty[0]]
    message = f"pass {guilty[0][2]} broke a rule on {where.task}/{where.subgraph}: {where.arm.message}"
    against = replace(record.against, speed=None) if record.against is not None else None
    arm = ArmResult("integrity", DISQUALIFIED, message, output=record.arm.output)
    return replace(record, arm=arm, against=against)


def check_limits() -> None:
    """Raise UserError for the first limit that is too low. Later it would fail in the middle of something else."""
    for option, number, least, name, unit, size in _LIMITS:
        soft, _hard = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY and soft < least:
            present, needs = (f"{value / size:.3g}{unit}" for value in (soft, least))
            what = f"{name}: this process is limited to {present}, and judging takes {needs}"
            raise UserError(what, where=f"ulimit {option}", remedy="raise the limit")
