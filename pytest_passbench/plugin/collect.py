"""Tasks as pytest nodes: a file per task, an item per task and candidate. Collecting imports no torch."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, line, printable
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.record import Record, Speed
from pytest_passbench.core.task import Task
from pytest_passbench.plugin import failures
from pytest_passbench.plugin.live import outcome, status_line
from pytest_passbench.plugin.nodeid import NodeId, node_path, split
from pytest_passbench.plugin.select import cost, read
from pytest_passbench.plugin.state import KEY, State
from pytest_passbench.report.failure_text import standing
from pytest_passbench.run.judging import records
from pytest_passbench.run.stored import confirmed
from pytest_passbench.suite import find, published, taskfile
from pytest_passbench.suite.find import TaskRef, of_shard
from pytest_passbench.suite.taskfile import task_hash

BESIDE_SUBGRAPH = "weight_meta.py"
#: The marks that keep other plugins away from a task, by plugin: one must not interrupt the judge, whose own limit
#: is passbench_timeout, and the other must not repeat a failed task until it passes by chance.
OTHERS = {"timeout": pytest.mark.timeout(0), "rerunfailures": pytest.mark.flaky(reruns=0)}


class Suite(pytest.Directory):
    """The collector of the tasks that the plugin found itself, wherever their files are."""

    def collect(self) -> Iterator[TaskFile]:
        """Yield a node per task."""
        for task in self.config.stash[KEY].selection.tasks:
            yield TaskFile.from_parent(self, path=task.path, nodeid=task.node, ref=task.ref, only=task.item)


class PublishedFolder(pytest.Directory):
    """A folder in the published layout that pytest found on a path: a sample, or a bare subgraph."""

    def collect(self) -> Iterator[TaskFile]:
        """Yield one node, on the file that marks the folder, so that its items can be addressed."""
        marker = published.LIST if os.path.lexists(self.path / published.LIST) else published.MODEL
        yield TaskFile.from_parent(self, path=self.path / marker)


class TaskFile(pytest.File):
    """The file of a task. ``ref``: the task, if it is known already; ``only``: the item to collect (None: all)."""

    def __init__(self, *, ref: TaskRef | UserError | None = None, only: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._ref, self._only = ref, only

    def collect(self) -> Iterator[TaskItem]:
        """Yield an item per candidate. A file that cannot be read gives items that fail and say why."""
        state = self.config.stash[KEY]
        ref = self._ref or _task_at(self.path)
        if not isinstance(ref, UserError) and not _is_selected(ref, state):
            return
        task = self.path.name.removesuffix(taskfile.SUFFIX) if isinstance(ref, UserError) else ref.id
        for candidate in state.ledger.candidates:
            node = NodeId(self.nodeid, task, candidate.name)
            if self._only in (None, node.item, task):
                # The node id is text, so that pytest takes the part in brackets for a parameter, as --lf does.
                yield TaskItem.from_parent(
                    self, name=node.item, nodeid=str(node), task=task, ref=ref, candidate=candidate
                )


def _task_at(path: Path) -> TaskRef | UserError:
    ref = read(path.parent if path.name in (published.LIST, published.MODEL) else path)
    if isinstance(ref, UserError) or ref.kind != "subgraph":
        return ref
    # Bare subgraph folders often share a name. One that is found by itself always has its parent's name in front.
    name = published.identifier(f"{ref.path.resolve().parent.name}-{ref.id}")
    return replace(ref, header=replace(ref.header, id=name))


def _is_selected(ref: TaskRef, state: State) -> bool:
    ids = state.settings.task_ids
    if ids and ref.id not in ids:
        return False
    return not state.selection.from_paths or bool(ids or find.select([ref], state.settings.suite))


def task_file(path: Path, parent: pytest.Collector) -> TaskFile | None:
    """Return the node of a file that pytest meets, if it is a task file."""
    if not path.name.endswith(taskfile.SUFFIX):
        return None
    if path.is_relative_to(find.installed_tasks()):
        return TaskFile.from_parent(parent, path=path, nodeid=node_path(path, path, parent.config.rootpath))
    return TaskFile.from_parent(parent, path=path)


def directory(path: Path, parent: pytest.Collector) -> pytest.Directory | None:
    """Return the node of a folder that pytest meets, if it is ours."""
    if not parent.config.stash[KEY].selection.from_paths and path == parent.config.rootpath:
        return Suite.from_parent(parent, path=path)
    return PublishedFolder.from_parent(parent, path=path) if _is_published(path) else None


def _is_published(path: Path) -> bool:
    # A folder with a model.py alone may be any other project's.
    bare = (path / published.MODEL).is_file() and (path / BESIDE_SUBGRAPH).is_file()
    return bare or os.path.lexists(path / published.LIST)


def not_in_shard(items: Sequence[pytest.Item], index: int, parts: int) -> list[pytest.Item]:
    """Return the items of tasks that belong to other shards. All candidates of a task stay together."""
    costs = {item.task: cost(item.ref) for item in items if isinstance(item, TaskItem)}
    selected = of_shard(costs, index, parts)
    return [item for item in items if isinstance(item, TaskItem) and item.task not in selected]


def untouched(items: Sequence[pytest.Item], state: State) -> list[pytest.Item]:
    """Return the items of tasks that no pass of their candidate matches. Unreadable tasks are not among them."""
    tasks = [item for item in items if isinstance(item, TaskItem)]
    tasks.sort(key=lambda item: item.candidate.name)  # since the passes of one candidate at a time are loaded
    progress = ProgressLines("passbench") if state.plan.worker is None else None
    out: list[pytest.Item] = []
    for number, item in enumerate(tasks, 1):
        if not item.touched(state):
            out.append(item)
        if progress is not None:
            progress.update(f"{number} of {len(tasks)} tasks looked at, {number - len(out)} matched")
    if progress is not None:
        progress.clear()
    return out


class TaskItem(pytest.Item):
    """A task to be judged for a candidate. ``ref`` is an error if the task could not be read."""

    def __init__(self, *, task: str, ref: TaskRef | UserError, candidate: Candidate, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.task, self.ref, self.candidate = task, ref, candidate
        #: By subgraph, in the order in which they were judged first. A later record of a subgraph replaces its first.
        self._records: dict[str, Record] = {}
        self._loaded: Task
        #: How many subgraphs are to be judged, once the task has been read.
        self.selected = cost(ref)
        for plugin, mark in OTHERS.items():
            if self.config.pluginmanager.hasplugin(plugin):
                self.add_marker(mark)

    @property
    def records(self) -> list[Record]:
        """The records so far, one for each subgraph."""
        return list(self._records.values())

    def touched(self, state: State) -> bool:
        """Return True if a pass of the candidate matches the task, or if the task cannot be read."""
        if isinstance(self.ref, UserError):
            return True
        try:
            return state.judge.touches(self.ref, self.candidate)
        except UserError:
            return True

    def setup(self) -> None:
        """Read the task, and build its graphs. A faulty task is an error of the run, and no score counts it."""
        faulty = self.ref if isinstance(self.ref, UserError) else self._load(self.ref)
        if faulty is not None:
            pytest.fail(printable(str(faulty), LINES), pytrace=False)

    def _load(self, ref: TaskRef) -> UserError | None:
        from pytest_passbench.suite.build import check_graphs

        try:
            self._loaded = ref.load()
            check_graphs(self._loaded)
        except UserError as error:
            return error
        return None

    def runtest(self) -> None:
        """Judge every subgraph. Raises TaskFailedError if one is not correct.

        Skips the case if the harness failed to judge one of them: it has neither passed nor failed.
        """
        state, task = self.config.stash[KEY], self._loaded
        self._records.clear()
        self.selected = len(task.subgraphs)
        state.ledger.expect(self.task, self.candidate.name, self.selected)
        try:
            for record in self._earlier_records(task, state):
                self._take(record, state)
            names = [name for record in self.records for name in (record.subgraph, *record.left_out)]
            for record in records(state.judge, task, self.candidate, state.settings, names):
                self._take(record, state)
            self._confirm(task, state)
        finally:
            state.live.show("")
            self.user_properties.extend(properties(self.records, self.to_judge))
        stored = state.plan.stored
        slower = [record for record in self.records if stored is not None and stored.regressed(record)]
        if slower or not all(record.correct for record in self.records if record.judged):
            raise failures.TaskFailedError(self.records, slower)
        lost = [record for record in self.records if not record.judged]
        if lost:
            first = f"{lost[0].subgraph}: {lost[0].arm.message}"
            pytest.skip(line(f"{len(lost)} of {len(self.records)} subgraphs could not be judged: {first}", 300))

    def teardown(self) -> None:
        """Forget the task's graphs: an item stays until the run ends."""
        vars(self).pop("_loaded", None)

    def _confirm(self, task: Task, state: State) -> None:
        """Judge again the subgraphs that are slower than in the earlier run, before the case fails for them."""
        stored = state.plan.stored
        if stored is None:
            return
        doubtful = {record.subgraph: record for record in self.records if stored.doubtful(record)}
        others = [subgraph.id for subgraph in task.subgraphs if subgraph.id not in doubtful]
        repeated = records(state.judge, task, self.candidate, state.settings, others) if doubtful else ()
        for name, later in {record.subgraph: record for record in repeated}.items():
            self._take(confirmed(doubtful[name], later), state)

    def _earlier_records(self, task: Task, state: State) -> Iterator[Record]:
        """Yield the records of the run that this one goes on with. Raises UserError if the task has changed."""
        by_key = state.plan.earlier.records if state.plan.earlier is not None else {}
        for subgraph in task.subgraphs:
            record = by_key.get((self.task, self.candidate.name, subgraph.id))
            if record is not None:
                if record.task_hash not in ("", task_hash(task)):
                    raise UserError("has changed since the run that is resumed", where=task.path,
                                    remedy="run without --passbench-resume")  # fmt: skip
                yield record

    @property
    def to_judge(self) -> int:
        """The number of subgraphs to be judged, without those that the records so far leave out."""
        return self.selected - sum(len(record.left_out) for record in self.records)

    def _take(self, record: Record, state: State) -> None:
        if state.plan.stored is not None and record.stored is None:
            state.plan.stored.put(record)
        self._records[record.subgraph] = record
        state.keep(record)
        if state.plan.worker is None:
            state.add(record)
            text = status_line(record, len(self.records), self.to_judge)
            left = state.progress.remaining(len(self.records) / self.to_judge, self.nodeid)
            state.live.show(text + (f", {left}" if left else ""))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the evidence for a failed case; a traceback only for a fault of the judge's own."""
        error = excinfo.value
        if isinstance(error, failures.TaskFailedError):
            return failures.longrepr(self.path, error.line(), error.text())
        if isinstance(error, UserError):
            return failures.longrepr(self.path, line(str(error), 300), printable(str(error), LINES))
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the place by node id: it is the same wherever the package is installed."""
        return self.config.rootpath / split(self.nodeid)[0], None, self.name


def properties(records: Sequence[Record], total: int) -> list[tuple[str, object]]:
    """Return what JUnit and other reports say of a task: in all, and one line for each subgraph."""
    if not records:
        return []
    first = records[0]
    rows: list[tuple[str, object]] = [
        ("passbench.task", first.task),
        ("passbench.candidate", first.candidate),
        ("passbench.outcome", outcome(records, total)),
    ]
    return rows + [(f"passbench.subgraph.{record.subgraph}", _summary(record)) for record in records]


def _summary(record: Record) -> str:
    arm, text = record.arm, standing(record)
    if arm.speed is None:
        return text + (f", speed {arm.speed_note}" if arm.speed_note else "")
    against = f"; against the reference {_spelt(record.head_to_head)}" if record.head_to_head is not None else ""
    return f"{text}, {_spelt(arm.speed)}{against}"


def _spelt(speed: Speed) -> str:
    return f"{speed.ratio:.4g}x ({speed.low:.4g} to {speed.high:.4g}), {speed.verdict}"
