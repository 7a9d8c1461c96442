"""The engine without pytest: for training loops, notebooks and scripts."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.options import OPTIONS, Option
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.run.judging import Judge, judge_all, make_judge
from pytest_passbench.run.ledger import Ledger, check_machine, open_candidates, open_reference, run_seed

PYTEST_ONLY = {
    "candidates", "tasks", "report_dir", "fail_under", "shard", "resume",
    "compare", "max_regression", "compare_strict",
}  # fmt: skip
"""The fields of Settings that are arguments of their own here, or that only a pytest run uses."""

Paths = str | Path | Iterable[str | Path]


def evaluate(
    candidate: Paths,
    tasks: Paths | None = None,
    *,
    on_record: Callable[[Record], None] | None = None,
    judge: Callable[[Settings, bytes], Judge] = make_judge,
    **settings: Any,
) -> Run:
    """Judge one candidate folder, or several, with the guarantees of ``pytest --passbench``; return the run.

    ``record.correct`` of each of ``run.records`` says whether the answer is right, ``record.arm`` how fast it is.

    ``tasks``: ids of installed tasks, or task files, published samples, or folders of them. By default they are
    the installed tasks of ``suite`` ("lite"). ``settings`` are the fields of
    :class:`~pytest_passbench.core.settings.Settings`.
    ``on_record`` is called with every record as it is made; a KeyboardInterrupt ends the run and returns
    what there is, marked interrupted. ``judge`` makes the run's judge from its settings and its seed.

    Raises UserError for a folder without passes, a file that is not a task, or a setting that is wrong.
    """
    chosen = _settings(candidate, tasks, settings)
    check_machine(chosen)
    candidates, reference = open_candidates(chosen.candidates), open_reference(chosen)
    ledger = Ledger(chosen, candidates, run_seed(chosen.seed), reference)
    loaded = list(_load(chosen))
    ledger.tasks = [task.id for task in loaded]
    with closing(judge(chosen, ledger.seed)) as judging:
        ledger.environment = judging.environment()
        try:
            judge_all(judging, ledger, loaded, on_record)
        except KeyboardInterrupt:
            ledger.interrupted = True
        ledger.noise = judging.noise()
    return ledger.run()


def _settings(candidate: Paths, tasks: Paths | None, given: dict[str, Any]) -> Settings:
    _check(given)
    given.setdefault("suite", "lite" if tasks is None else "all")
    if given.get("against") is not None:
        given["against"] = Path(given["against"]).resolve()
    candidates = tuple(path.resolve() for path in _paths(candidate))
    return Settings(candidates=candidates, tasks=tuple(_paths(tasks or ())), **given)


def _check(given: dict[str, Any]) -> None:
    """Raise UserError for an unknown setting, or a value that the command line would refuse."""
    options = {option.key: option for option in OPTIONS}
    known = {field.name for field in fields(Settings)} - PYTEST_ONLY
    for name, value in given.items():
        if name not in known:
            raise UserError(f"unknown setting {name!r}", where="evaluate", remedy=f"one of {sorted(known)}")
        if name in options and value is not None:
            _check_value(options[name], value)


def _check_value(option: Option, value: Any) -> None:
    try:
        for item in value if option.many else [value]:
            option.type(str(item))
    except ArgumentTypeError as error:
        raise UserError(str(error), where=f"evaluate, {option.key}") from None


def _paths(given: Paths) -> Iterator[Path]:
    if isinstance(given, str | Path):
        yield Path(given)
    else:
        yield from map(Path, given)


def _load(settings: Settings) -> Iterator[Task]:
    from pytest_passbench.suite import find

    bases = settings.tasks or (find.installed_tasks(),)
    found = [ref for base in bases for ref in find.at(base)]
    chosen = find.named(found, settings.task_ids) if settings.task_ids else find.select(found, settings.suite)
    for ref in chosen:
        yield ref.load()
