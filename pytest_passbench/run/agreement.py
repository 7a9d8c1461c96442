"""Some of a run's subgraphs judged anew, and whether the results agree with those of its file."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from statistics import fmean, stdev
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core import seed as seeds
from pytest_passbench.core.ladder import BITWISE, EXPONENTS, LADDER, tolerances
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import DISQUALIFIED, Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.core.task import Task
from pytest_passbench.report.board.standings import BETWEEN_RUNS
from pytest_passbench.run import judging
from pytest_passbench.run.consistency import untried
from pytest_passbench.run.judging import Judge, records
from pytest_passbench.score.interval import Interval
from pytest_passbench.suite.find import TaskRef
from pytest_passbench.timing.estimate import estimate, two_sided

Pairs = Sequence[tuple[Record, Record]]
"""Records of a file, each with that of the same subgraph judged anew."""

MAX_HALF = 1.3  # the largest ratio of an interval's end to its middle that is taken from the file
MAX_GAP = 1.15  # the ratio by which the intervals of two sessions on one machine may lie apart
MAX_SHARED = 1 + BETWEEN_RUNS  # the ratio that all speed-ups of a session may share on one machine
MAX_LEVELS = 2  # of the ladder, by which an output's level may differ between two sets of inputs
MIN_SUBGRAPHS = 3  # for a mean with an interval
#: The mean level of n outputs may be better in the file by up to MEAN_LEVELS + SPREAD_LEVELS / sqrt(n).
MEAN_LEVELS, SPREAD_LEVELS = 1.0, 4.0
#: Factors by which an output's greatest and mean error ratio may differ between two sets of inputs.
MAX_GREATEST, MAX_MEAN = 3.0, 1.5
#: The spacing of numbers just above 1.
SPACING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}


def difference(record: Record, now: Record) -> str:
    """Return in words how a subgraph judged anew differs from the file's record; empty if it agrees.

    Speeds may differ by what their intervals leave open, and are not compared if one was not measured.
    """
    if not now.judged:
        return f"could not be judged now: {now.arm.message}"
    if record.arm.phase == DISQUALIFIED:  # for what the pass did on another subgraph
        return ""
    if now.arm.status != record.arm.status:
        return f"{record.arm.status} in the file, {now.arm.status} now"
    if now.correct != record.correct:
        return f"correct at t = {record.tolerance} ({record.criterion}) in the file or now, but not in both"
    if now.left_out != record.left_out:
        return "the file leaves out larger subgraphs for Triton's interpreter, which does not run this pass now"
    before, after = len(record.held_out_counted), len(now.held_out_counted)
    if before < after:
        return f"{counted(before, 'further size')} in the file, {after} now"
    if now.held_out_failures == now.held_out_judged != [] and record.held_out_judged and not record.held_out_failures:
        return "right at every further size in the file, at none now"
    if _better(record, now):
        return f"correct from t = {record.arm.correct_from} in the file, {now.arm.correct_from} now"
    for name, factor in (("greatest", MAX_GREATEST), ("mean", MAX_MEAN)):
        ratios, later = (getattr(item.arm, f"{name}_ratio64") for item in (record, now))
        if _nearer(ratios, later, factor):
            return f"its {name} error is {_row(ratios)} times eager's in the file, {_row(later)} now"
    if now.arm.speed and record.arm.speed and not _near(now.arm.speed, record.arm.speed):
        return f"{record.arm.speed.ratio:.3f} times as fast in the file, {now.arm.speed.ratio:.3f} now"
    return ""


def joint(pairs: Pairs) -> Iterator[str]:
    """Yield a sentence if the file's speed-ups, or levels, differ from the new ones in the mean over all pairs."""
    speeds = [(then.arm.speed, now.arm.speed) for then, now in pairs if then.arm.speed and now.arm.speed]
    mean = speed_change(speeds)
    if mean is not None and not (mean.low <= MAX_SHARED and mean.high >= 1 / MAX_SHARED):
        yield (
            f"over {counted(len(speeds), 'subgraph')}, speed-ups are {mean} times those of the file; all of a "
            f"session may share {MAX_SHARED:g}"
        )
    levels = [(then.arm.correct_from, now.arm.correct_from) for then, now in pairs]
    gaps = [b - a for before, after in levels for a, b in zip(before, after, strict=False)]
    if gaps and (fmean(gaps) > MEAN_LEVELS + SPREAD_LEVELS / math.sqrt(len(gaps)) or _one_sided(gaps)):
        yield f"over {counted(len(gaps), 'output')}, levels are {fmean(gaps):.1f} better in the file than now"


def speed_change(speeds: Sequence[tuple[Speed, Speed]]) -> Interval | None:
    """Return the mean ratio of the new speed-ups to those of the file; None for fewer than three subgraphs.

    Its interval is Student's over subgraphs. The spread is that of the ratios themselves, since the file's own
    intervals may be invented.
    """
    logs = [math.log(now.ratio / then.ratio) for then, now in speeds]
    if len(logs) < MIN_SUBGRAPHS:
        return None
    half = two_sided(0.05, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Interval(*(math.exp(fmean(logs) + end) for end in (0.0, -half, half)))


def _one_sided(gaps: Sequence[int]) -> bool:
    """Return True if levels are so much more often better than worse that chance explains it in 1 % of cases."""
    better, apart = sum(gap > 0 for gap in gaps), sum(gap != 0 for gap in gaps)
    return 100 * sum(math.comb(apart, count) for count in range(better, apart + 1)) <= 1 << apart


def _better(record: Record, now: Record) -> bool:
    """Return True if some output's level in the file is better than now by more than new inputs explain.

    An output may be exact on some inputs and rounded on others. So all levels up to that of one rounding are alike.
    """
    levels, later = record.arm.correct_from, now.arm.correct_from
    if len(levels) != len(later):
        return True
    dtypes = record.dtypes or [""] * len(levels)
    least = [max(level, of_rounding(dtype)) for level, dtype in zip(levels, dtypes, strict=False)]
    return any(level + MAX_LEVELS < b for level, b in zip(least, later, strict=False))


def of_rounding(dtype: str) -> int:
    """Return the smallest t at which a value near 1 that is off by one rounding passes; BITWISE for exact dtypes."""
    spacing = SPACING.get(dtype)
    if spacing is None or dtype not in EXPONENTS:
        return BITWISE
    return next((t for t in LADDER if sum(tolerances(dtype, t)) >= spacing), BITWISE)


def _nearer(ratios: Sequence[float], later: Sequence[float], factor: float) -> bool:
    """Return True if an output is further from float64 than eager's now, and nearer by ``factor`` in the file."""
    pairs = zip(ratios, later, strict=False)
    return len(ratios) != len(later) or any(b > 1.0 and a * factor < b for a, b in pairs)


def _near(now: Speed, then: Speed) -> bool:
    """Return True if the intervals of two sessions lie near each other.

    The file's interval is computed anew from its pairs, up to :data:`MAX_HALF`, since a file could state any.
    """
    whole = bool(then.pairs) and all(then.pairs)
    half = min(estimate(then.pairs).half_width if whole else 0.0, math.log(MAX_HALF))
    low, high = then.ratio * math.exp(-half), then.ratio * math.exp(half)
    return now.low <= high * MAX_GAP and low <= now.high * MAX_GAP


def _row(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "not compared with"


def sample(run: Run, tasks: Mapping[str, Task], candidate: Candidate, count: int) -> list[Record]:
    """Return up to ``count`` random records of the candidate, in the run's order.

    Subgraphs that were not tried are left out: a pass that takes too long is out for the rest of its task.
    """
    names = [item["name"] for item in run.candidates if item.get("content_hash") == candidate.content_hash]
    places = [
        place
        for place, record in enumerate(run.records)
        if record.candidate in names and record.task in tasks and record.judged and not untried(record)
    ]
    return [run.records[place] for place in sorted(random.SystemRandom().sample(places, min(count, len(places))))]


def disagreements(
    run: Run,
    tasks: Mapping[str, Task],
    candidate: Candidate,
    sampled: Sequence[Record],
    absent: Sequence[TaskRef] = (),
) -> Iterator[str]:
    """Yield a sentence for each of the ``sampled`` records that comes out differently now, and for all together.

    No pass of the candidate may match one of the ``absent`` tasks, which a run of matching tasks only left out.
    """
    settings: dict[str, Any] = {name: run.settings[name] for name in same_in("rerun") if name in run.settings}
    pairs: list[tuple[Record, Record]] = []
    with closing(judging.make_judge(Settings(**settings), seeds.draw())) as judge:
        for ref in absent:
            if judge.touches(ref, candidate):
                yield f"task {ref.id}: left out, though a pass matches it"
        for record in sampled:
            name, now = f"{record.task}/{record.subgraph}", _judged_anew(judge, record, tasks[record.task], candidate)
            if now is None:
                yield f"{name}: there is no such subgraph"
                continue
            pairs.append((record, now))
            text = difference(record, now)
            if text:
                yield f"{name}: {text}"
    yield from joint(pairs)


def _judged_anew(judge: Judge, record: Record, task: Task, candidate: Candidate) -> Record | None:
    """Return the record of a subgraph judged anew, with those beside it that the file's record leaves out."""
    names = (record.subgraph, *record.left_out)
    new_records = records(judge, task.part(names), candidate, record)
    if record.left_out:
        return next((now for now in new_records if now.subgraph == record.subgraph), None)
    return next(reversed(list(new_records)), None)
