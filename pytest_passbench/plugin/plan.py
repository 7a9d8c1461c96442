"""The plan of a run: all that is settled before collecting, from the options of pytest, validated once.

Every mistake of a user's in options, candidates, paths and earlier runs is found here. Later code reads the plan, and
asks neither pytest nor the files again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.plugin import options
from pytest_passbench.plugin.conftest_guard import inside
from pytest_passbench.plugin.nodeid import split
from pytest_passbench.plugin.select import Selection, known_ids, select
from pytest_passbench.run import journal
from pytest_passbench.run.ledger import Ledger, check_run, open_candidates, open_reference, run_seed, writable
from pytest_passbench.run.stored import StoredRun, matching
from pytest_passbench.run.stored import check as check_comparable
from pytest_passbench.run.stored import read as read_stored
from pytest_passbench.suite.find import edition_of


@dataclass(frozen=True)
class Worker:
    """This process as a worker of pytest-xdist, number ``index`` of ``count``.

    The other fields are what the controller hands over: its process id, the run's seed, the run's folder, and that
    of the run that is resumed.
    """

    index: int
    count: int
    controller: int
    seed: bytes
    folder: Path | None
    resumed: Path | None

    @classmethod
    def of(cls, config: pytest.Config) -> Worker | None:
        """Return this process as a worker; None if it is a serial run's, or the controller's."""
        if not hasattr(config, "workerinput"):
            return None
        values: dict[str, Any] = config.workerinput
        index, count = int(str(values["workerid"]).removeprefix("gw")), int(values["workercount"])
        controller, seed, *paths = values["passbench"]
        return cls(index, count, controller, bytes.fromhex(seed), *(Path(path) if path else None for path in paths))


@dataclass(frozen=True)
class RunPlan:
    """A run as it is settled: its settings, candidates and tasks, and the runs it goes on with or is compared with.

    ``reference`` is the candidate that the others are measured against, ``stored`` an earlier run to compare with,
    ``earlier`` an interrupted run to go on with. ``strays`` has an error for each directory of a candidate that is
    for no known task. ``worker`` is None in a process that reports. If ``collects_only``, nothing is judged.
    """

    settings: Settings
    candidates: Sequence[Candidate]
    reference: Candidate | None
    stored: StoredRun | None
    earlier: journal.Earlier | None
    seed: bytes
    report_dir: Path
    selection: Selection
    strays: Sequence[UserError]
    worker: Worker | None
    collects_only: bool

    @property
    def reports(self) -> bool:
        """True if this process writes and shows the results: a serial run's, or the controller's."""
        return self.worker is None and not self.collects_only

    @cached_property
    def header(self) -> dict[str, Any]:
        """The header of the run's journal, of all its candidates, also of those that a selection leaves out later."""
        return self.ledger().header()

    def ledger(self) -> Ledger:
        """Return a new ledger of the run."""
        return Ledger(self.settings, self.candidates, self.seed, self.reference, self.stored)


def make_plan(config: pytest.Config, worker: Worker | None) -> RunPlan:
    """Return the plan of a run. Raises UserError or pytest.UsageError for a mistake of the user's."""
    base = config.invocation_params.dir
    paths = list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []
    settings = options.settings(config, paths=bool(paths))
    report_dir = base / settings.report_dir
    earlier = _earlier(settings, report_dir, base, worker)
    candidates, reference = open_candidates(settings.candidates), open_reference(settings)
    stored = _stored(settings, candidates)
    begun = str(earlier.header.get("seed")) if earlier is not None else None
    seed = worker.seed if worker is not None else run_seed(begun if settings.seed is None else settings.seed)
    if earlier is not None:
        journal.check_same_run(earlier, Ledger(settings, candidates, seed, reference, stored).header())
    if worker is None and not config.option.collectonly:
        check_run(settings)
        if not settings.trusted:
            writable(report_dir)
    selection = select(settings, config.rootpath, paths, base)
    editions = {edition_of(task.path) for task in selection.tasks}
    if stored is not None:
        check_comparable(stored.path, stored.run, asdict(settings), filter(None, editions))
    task_paths = {path: base / split(path)[0] for path in paths} if selection.from_paths else {}
    strays = _for_no_task(candidates, selection, task_paths.values())
    for path, resolved in task_paths.items():
        if inside(resolved, settings.folders):
            raise UserError("is inside the candidate, whose folder is never collected", where=path,
                            remedy="give the paths of tasks")  # fmt: skip
    return RunPlan(settings, candidates, reference, stored, earlier, seed, report_dir, selection, strays, worker,
                   config.option.collectonly)  # fmt: skip


def _earlier(settings: Settings, report_dir: Path, base: Path, worker: Worker | None) -> journal.Earlier | None:
    if settings.resume is None:
        return None
    if worker is not None:  # the controller has chosen: the latest run would be its own by now
        return None if worker.resumed is None else journal.read_interrupted(worker.resumed)
    return journal.read_interrupted(journal.interrupted_folder(settings.resume, report_dir, base))


def _stored(settings: Settings, candidates: Iterable[Candidate]) -> StoredRun | None:
    """Return the earlier run to compare with, if there is one. Raises UserError if it cannot be compared with."""
    if settings.compare is None:
        return None
    path, run = read_stored(settings.compare)
    names = matching(path, run, [candidate.name for candidate in candidates])
    return StoredRun(path, run, names, settings.max_regression, settings.compare_strict)


def _for_no_task(
    candidates: Iterable[Candidate], selection: Selection, task_paths: Iterable[Path]
) -> list[UserError]:
    """Return an error for each directory of a candidate for a task that is neither installed nor given.

    Raises the first of them if a candidate has no other directory.
    """
    if all(not candidate.by_task for candidate in candidates):
        return []
    ids, refusals = selection.ids | known_ids(task_paths), []
    for candidate in candidates:
        errors = candidate.for_no_task(ids)
        if errors and len(errors) == len(candidate.directories):
            raise errors[0]
        refusals += errors
    return refusals
