"""The start of a run: every mistake in its options is found here, before collecting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.plugin import options
from pytest_passbench.plugin.conftest_guard import inside
from pytest_passbench.plugin.nodeid import split
from pytest_passbench.plugin.select import Selection, known_ids, select
from pytest_passbench.plugin.state import State, is_worker
from pytest_passbench.run import resume
from pytest_passbench.run.ledger import Ledger, check_machine, open_candidates, open_reference, run_seed, writable
from pytest_passbench.run.stored import StoredRun, matching
from pytest_passbench.run.stored import check as check_comparable
from pytest_passbench.run.stored import read as read_stored
from pytest_passbench.suite.edition import edition_of

if TYPE_CHECKING:
    from pytest_passbench.candidate.layout import Candidate


def make_state(config: pytest.Config) -> State:
    """Return the state of a run in this process. Raises UserError for a mistake of the user's."""
    paths = list(config.args) if config.args_source is pytest.Config.ArgsSource.ARGS else []
    settings = options.settings(config, paths=bool(paths))
    report_dir = config.invocation_params.dir / settings.report_dir
    earlier = _earlier(config, settings, report_dir)
    candidates, reference = open_candidates(settings.candidates), open_reference(settings)
    stored = _stored(settings, candidates)
    ledger = Ledger(settings, candidates, _seed(config, settings, earlier), reference, stored)
    header = ledger.header()
    if earlier is not None:
        resume.check(earlier, header)
    if not is_worker(config) and not config.option.collectonly:
        check_machine(settings)
        if not settings.trusted:
            writable(report_dir)
    selection = select(settings, config.rootpath, paths, config.invocation_params.dir)
    if stored is not None:
        editions = {edition_of(task.path) for task in selection.tasks}
        check_comparable(stored.path, stored.run, asdict(settings), filter(None, editions))
    strays = _for_no_task(ledger.candidates, selection, paths, config.invocation_params.dir)
    if selection.from_paths:
        _refuse_candidates(paths, config.invocation_params.dir, settings)
    else:
        config.args = [str(config.rootpath)]
    state = State(config, settings, ledger, selection, report_dir, header, earlier, strays)
    if is_worker(config) and config.workerinput["passbench_folder"]:  # type: ignore[attr-defined]
        state.folder = Path(config.workerinput["passbench_folder"])  # type: ignore[attr-defined]
    return state


def _earlier(config: pytest.Config, settings: Settings, report_dir: Path) -> resume.Earlier | None:
    if settings.resume is None:
        return None
    if is_worker(config):  # the controller's choice: it has a folder of its own by now, which is later
        return resume.read(Path(config.workerinput["passbench_resumed"]))  # type: ignore[attr-defined]
    return resume.read(resume.find(settings.resume, report_dir, config.invocation_params.dir))


def _stored(settings: Settings, candidates: Iterable[Candidate]) -> StoredRun | None:
    """Return the earlier run to compare with, if there is one. Raises UserError if it cannot be compared with."""
    if settings.compare is None:
        return None
    path, run = read_stored(settings.compare)
    names = matching(path, run, [candidate.name for candidate in candidates])
    return StoredRun(path, run, names, settings.max_regression, settings.compare_strict)


def _seed(config: pytest.Config, settings: Settings, earlier: resume.Earlier | None) -> bytes:
    if is_worker(config):
        return bytes.fromhex(config.workerinput["passbench_seed"])  # type: ignore[attr-defined]
    if earlier is not None and settings.seed is None:
        return run_seed(str(earlier.header.get("seed")))
    return run_seed(settings.seed)


def _for_no_task(
    candidates: Iterable[Candidate], selection: Selection, paths: Iterable[str], invocation: Path
) -> list[UserError]:
    """Return an error for each directory of a candidate for a task that is neither installed nor given.

    Raises the first of them if a candidate has no other directory.
    """
    if all(not candidate.by_task for candidate in candidates):
        return []
    task_paths = [invocation / split(path)[0] for path in paths] if selection.from_paths else []
    ids, refusals = selection.ids | known_ids(task_paths), []
    for candidate in candidates:
        errors = candidate.for_no_task(ids)
        if errors and len(errors) == len(candidate.directories):
            raise errors[0]
        refusals += errors
    return refusals


def _refuse_candidates(paths: list[str], invocation: Path, settings: Settings) -> None:
    for path in paths:
        if inside(invocation / split(path)[0], settings.folders):
            raise UserError("is inside the candidate, whose folder is never collected", where=path,
                            remedy="give the paths of tasks")  # fmt: skip
