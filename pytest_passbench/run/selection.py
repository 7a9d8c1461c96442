"""The tasks that a run's settings select now, and those that its file has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef
from pytest_passbench.suite.shards import of_shard

MAX_NAMED = 5


def selected(run: Run, refs: Sequence[TaskRef]) -> list[str]:
    """Return the ids of the tasks, of those that were found, that the run's settings select.

    A task that the settings name is selected even if it was not found. Raises UserError for an unknown suite.
    """
    named = run.settings.get("task_ids") or []
    if named:
        return list(dict.fromkeys(map(str, named)))
    suite_refs = find.select(refs, str(run.settings.get("suite", Settings.suite)))
    costs = {ref.id: ref.header.subgraphs for ref in suite_refs}
    shard = run.settings.get("shard")
    if isinstance(shard, list) and len(shard) == 2:
        shard_tasks = of_shard(costs, *map(int, shard))
        return [name for name in costs if name in shard_tasks]
    return list(costs)


def left_out(run: Run, refs: Sequence[TaskRef]) -> list[str]:
    """Return the tasks that the settings select and the run does not have."""
    return [name for name in selected(run, refs) if name not in run.tasks]


def problems(run: Run, refs: Sequence[TaskRef]) -> Iterator[str]:
    """Yield a sentence if the run has other tasks than its settings select.

    A run of matching tasks only may have fewer: that takes the candidate itself to tell.
    """
    absent = left_out(run, refs)
    if absent and not run.settings.get("only_matching"):
        yield (
            f"its settings select {counted(len(absent), 'task')} that it does not have: {_some(absent)} "
            "(of a run on paths or by -k: name its tasks with --tasks)"
        )
    names = {ref.id for ref in refs}
    expected_tasks = selected(run, refs)
    more = [name for name in run.tasks if name in names and name not in expected_tasks]
    if more:
        yield f"it has {counted(len(more), 'task')} that its settings do not select: {_some(more)}"


def described(run: Run) -> str:
    """Return what the settings select, in words."""
    named = run.settings.get("task_ids") or []
    return "tasks named by the settings" if named else f"suite {run.settings.get('suite', Settings.suite)}"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
