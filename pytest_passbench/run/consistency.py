"""Faults of a results file that can be found without running anything, and tasks that its settings do not select."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.core.seed import Secret, commitment
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task, larger
from pytest_passbench.judge.planning.planner import TOO_SLOW_BEFORE
from pytest_passbench.suite import find
from pytest_passbench.suite.find import TaskRef, of_shard
from pytest_passbench.suite.sizes import MAX_REFUSED, SizeMap, draws, size_map
from pytest_passbench.timing.estimate import estimate
from pytest_passbench.timing.looks import ENOUGH_PAIRS, MIN_DELTA

MAX_NAMED = 5

RELATIVE_TOLERANCE = 1e-6
MAX_HALF_WIDTH = 600.0  # in logs: the ends of a wider interval, 0 and infinity, do not tell how wide it is


def problems(
    run: Run, tasks: Mapping[str, Task], hashes: Mapping[str, str], editions: Sequence[str] = ()
) -> Iterator[str]:
    """Yield a sentence for each fault of a results file.

    ``tasks`` are the run's tasks as they are now, ``hashes`` the hashes of their contents. Tasks that are in neither
    are not checked. ``editions`` are those of the suites that have the tasks now. If the run has another one, that is
    the only sentence about the tasks' contents.
    """
    if not run.untouched:
        yield "the digest is not that of the contents: the file was changed after it was written"
    yield from _seed(run)
    if len(run.editions) > 1:
        yield f"it has tasks of several editions of the suite: {', '.join(run.editions)}"
    elif run.editions and editions and set(run.editions) != set(editions):
        now = ", ".join(editions)
        yield f"it judged edition {run.editions[0]} of the suite, and these tasks are of edition {now}"
    else:
        yield from _tasks(run, hashes)
        yield from _complete(run, tasks)
        yield from _further_sizes(run, tasks)
    for record in run.records:
        yield from _speeds(record)
    asked = run.settings.get("tolerance", Settings.tolerance), run.criterion
    other = [f"{item.task}/{item.subgraph}" for item in run.records if (item.tolerance, item.criterion) != asked]
    if other:
        yield f"the settings have t = {asked[0]} ({asked[1]}), and records have others: {_some(other)}"
    failed = sum(not record.judged for record in run.records)
    if failed:
        yield f"{counted(failed, 'subgraph')} could not be judged (harness_fail): no score has them"


def _seed(run: Run) -> Iterator[str]:
    """Yield a sentence for each fault of the run's seed, or, in a merged run, of the seeds of all parts."""
    for seed in [run.seed] * bool(run.seed or not run.parts) + [part.get("seed", {}) for part in run.parts]:
        revealed = _revealed(seed)
        if revealed is None:
            yield "the seed or its commitment is missing"
        elif commitment(revealed) != seed["commitment"]:
            yield "the revealed seed is not the one that the run committed to"


def _revealed(seed: Mapping[str, Any]) -> bytes | None:
    """Return the revealed seed, empty if its text is not hexadecimal; None if it or its commitment is missing."""
    committed, revealed = seed.get("commitment"), seed.get("revealed")
    if not isinstance(committed, str) or not isinstance(revealed, str):
        return None
    try:
        return bytes.fromhex(revealed)
    except ValueError:
        return b""


def _further_sizes(run: Run, tasks: Mapping[str, Task]) -> Iterator[str]:
    """Yield a sentence for each record with too few or too many further sizes, or not those of the run's seed."""
    seed, count = _revealed(run.seed), int(run.settings.get("held_out", 0))
    for record in run.records:
        task = tasks.get(record.task)
        subgraph = None if task is None else next((s for s in task.subgraphs if s.id == record.subgraph), None)
        if task is None or subgraph is None or not (record.held_out or (count and record.correct)):
            continue
        points, counting = [(item.batch, item.size) for item in record.held_out], len(record.held_out_counted)
        sizes, drawn = size_map(task, subgraph), points
        if isinstance(sizes, SizeMap) and seed is not None:
            stream = Secret(seed, task.id, subgraph.id, record.candidate, "held out").stream("sizes")
            drawn = [point for point, *_ in islice(draws(sizes, stream), len(points) + 1)]
        most = count if isinstance(sizes, SizeMap) else 0
        refused = len(points) - counting
        complete = counting == most or refused == MAX_REFUSED or (seed is not None and len(drawn) == len(points))
        if counting > most or refused > MAX_REFUSED or not complete:
            what = f"the file has {counted(counting, 'further size')}; {counted(most, 'was', 'were')} to be drawn"
            yield f"{record.task}/{record.subgraph}: {what}"
        elif points != drawn[: len(points)]:
            yield f"{record.task}/{record.subgraph}: its further sizes are not those that the seed gives"


def _tasks(run: Run, hashes: Mapping[str, str]) -> Iterator[str]:
    groups, recorded_hashes = grouped(run.records, lambda record: record.task), run.hashes.get("tasks", {})
    for task, now in hashes.items():
        judged = {record.task_hash for record in groups.get(task, ())}
        if judged and judged | {recorded_hashes.get(task, "")} != {now}:
            yield f"task {task}: its contents are not those that were judged"


def _complete(run: Run, tasks: Mapping[str, Task]) -> Iterator[str]:
    if run.interrupted:
        yield "the run was interrupted, so subgraphs that failed may be missing from it"
        return
    for name in run.names:
        groups = run.by_task(name)
        for task in tasks.values():
            yield from _of_task(name, task, {record.subgraph: record for record in groups.get(task.id, ())})


def _of_task(name: str, task: Task, records: Mapping[str, Record]) -> Iterator[str]:
    """Yield a sentence for each fault of a candidate's records of a task: missing, left out without reason, ..."""
    left_out = {item for record in records.values() for item in record.left_out}
    if any(record.headroom != task.header.headroom for record in records.values()):
        yield f"{name}: the head-room of task {task.id} is {task.header.headroom:g}, and records have another"
    for subgraph in task.subgraphs:
        record = records.get(subgraph.id)
        if record is None or not record.left_out:
            continue
        if set(record.left_out) != set(larger(task, subgraph)) or record.arm.speed is not None:
            yield f"{name}: {task.id}/{subgraph.id} leaves out subgraphs that had to be judged"
    late = any(record.arm.status == "timeout" and not untried(record) for record in records.values())
    if not late and (names := [record.subgraph for record in records.values() if untried(record)]):
        yield f"{name}: {task.id}: not tried: {_some(names)}, and no pass took too long in this task"
    required = {subgraph.id for subgraph in task.subgraphs} - left_out
    if set(records) != required:
        rows, subgraphs = counted(len(records), "record"), counted(len(required), "subgraph")
        yield f"{name}: {rows} of task {task.id}, which has {subgraphs} to judge"


def untried(record: Record) -> bool:
    """Return True if a subgraph was not tried, since a pass took too long on an earlier one of its task."""
    return record.arm.status == "timeout" and record.arm.phase == TOO_SLOW_BEFORE


def _speeds(record: Record) -> Iterator[str]:
    speeds = {"the candidate": record.arm.speed, **{name: arm.speed for name, arm in record.baselines.items()}}
    if record.against is not None:
        speeds |= {"the reference": record.against.arm.speed, "the candidate against it": record.against.speed}
    speeds |= {f"the candidate at batch {item.batch}, size {item.size}": item.arm.speed for item in record.held_out}
    for arm, speed in speeds.items():
        if speed is not None and not _consistent(speed):
            yield f"{record.task}/{record.subgraph}: the speed-up of {arm} is not what its pairs say"


def _consistent(speed: Speed) -> bool:
    """Return True if a ratio is that of its pairs, and its interval and its verdict can be.

    The file does not say by how much the clock and noise have widened the interval. So it must have at least the
    width that the pairs give, half below the ratio and half above (in logs). FASTER and SLOWER must exceed the least
    delta; nothing in the file bounds the other verdicts.
    """
    if not (speed.pairs and all(speed.pairs) and speed.low <= speed.ratio <= speed.high):
        return False
    result = estimate(speed.pairs)
    plain = min(result.half_width, MAX_HALF_WIDTH) if len(speed.pairs) >= ENOUGH_PAIRS else MAX_HALF_WIDTH
    below = min(math.log(speed.ratio / speed.low), MAX_HALF_WIDTH) if speed.low else MAX_HALF_WIDTH
    above = min(math.log(speed.high / speed.ratio), MAX_HALF_WIDTH)
    apart = {"FASTER": result.log_ratio - below, "SLOWER": -result.log_ratio - below}.get(speed.verdict, math.inf)
    return (
        math.isclose(result.ratio, speed.ratio, rel_tol=RELATIVE_TOLERANCE)
        and abs(below - above) <= RELATIVE_TOLERANCE
        and below >= plain - RELATIVE_TOLERANCE
        and apart > math.log1p(MIN_DELTA) - RELATIVE_TOLERANCE
    )


def selected(run: Run, refs: Sequence[TaskRef]) -> list[str]:
    """Return the ids of those tasks among ``refs`` that the run's settings select.

    A task that the settings name is selected even if it is not among them. Raises UserError for an unknown suite.
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


def selection_problems(run: Run, refs: Sequence[TaskRef]) -> Iterator[str]:
    """Yield a sentence if the run has other tasks than its settings select.

    A run of matching tasks only may have fewer. Only the candidate itself shows whether it lacks the right ones.
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
    if run.settings.get("task_ids"):
        return "tasks named by the settings"
    shard = run.settings.get("shard")
    return f"suite {run.settings.get('suite', Settings.suite)}" + (", shard {}/{}".format(*shard) if shard else "")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (", ..." if len(names) > MAX_NAMED else "")
