"""The staged reward of an outcome: a number that never falls when any subgraph gets further (docs/evaluator.md).

AS asks how fast a program is that falls back to eager. So in AS a right and very slow answer counts less than a wrong
and quick one, which misleads a learner. In the staged reward, each stage lies above the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import ceil, floor, inf, log2
from typing import Any, Self

from pytest_passbench.core.criterion import Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.ladder import right_at
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.score.interval import Interval, combined


class Stage(IntEnum):
    """A stage that a subgraph has reached."""

    INTEGRITY = 0
    UNREADABLE = 1
    NO_MATCH = 2
    FAILS = 3
    WRONG = 4
    RIGHT = 5


BANDS = {
    Stage.INTEGRITY: (0.0, 0.0),
    Stage.UNREADABLE: (0.0, 0.05),
    Stage.NO_MATCH: (0.05, 0.1),
    Stage.FAILS: (0.1, 0.15),
    Stage.WRONG: (0.15, 0.2),
    Stage.RIGHT: (0.2, 0.4),
}
"""The rewards of a candidate whose best subgraphs are at a stage: above the first number, up to the second.

The share of its subgraphs that have reached the stage decides how far above.
"""

ALL_RIGHT, CLIP = 1.0, 3.0
"""The reward of an answer that is right everywhere and as fast as eager; the largest |log2(speed-up)| that counts."""

WEIGHT = 1 / 6
"""The reward of a doubling of the speed, so that any right answer has 0.5 at least."""

STEP = log2(1.1)
"""The width of a step in log2 of the speed-up: 10 %. A wide interval makes it twice, four times, ... as wide."""

_STATUSES = {
    "integrity": Stage.INTEGRITY, "pass_miss": Stage.NO_MATCH, RAN: Stage.WRONG, "nan_inf": Stage.WRONG,
    "shape_mismatch": Stage.WRONG, "type_mismatch": Stage.WRONG,
}  # fmt: skip


def _reward(stages: Sequence[Stage], log: float) -> float:
    """Return the reward of subgraphs at these stages. ``log`` (log2 of the speed-up) counts if all are right."""
    if Stage.INTEGRITY in stages:
        return 0.0
    best = max(stages)
    share = sum(stage == best for stage in stages) / len(stages)
    if best < Stage.RIGHT or share < 1:
        least, most = BANDS[best]
        return least + (most - least) * share
    return ALL_RIGHT + WEIGHT * min(CLIP, max(-CLIP, log))


def _log(speed: float) -> float:
    """Return log2 of an end of an interval. One that is 0 or infinite counts as the most that does."""
    return log2(speed) if 0 < speed < inf else -CLIP if speed <= 0 else CLIP


def _in_words(stages: Sequence[Stage], reward: float) -> str:
    """Return the best subgraph's stage, unless a rule was broken; "right" only if all are right."""
    if Stage.INTEGRITY in stages:
        return "integrity"
    best = max(stages)
    if best == Stage.RIGHT and min(stages) < best:
        return "partly right"
    if best < Stage.RIGHT:
        return best.name.lower().replace("_", " ")
    return "right and fast" if reward > ALL_RIGHT else "right"


def stepped(speed: Interval) -> float:
    """Return log2 of the speed-up in whole steps: the low end of its interval, rounded down.

    Steps are 10 % wide, times the smallest power of two that makes a step at least as wide as the interval. So noise
    moves an answer by one step at most, a doubtful gain is no gain, and a narrower interval never has less.
    """
    if speed.low <= 0 or speed.high == inf:
        return -CLIP
    low, width = log2(speed.low), log2(speed.high / speed.low)
    step = STEP * 2.0 ** max(0, ceil(log2(width / STEP)) if width > 0 else 0)
    return step * floor(low / step + 1e-9)


def staged_reward(
    records: Sequence[Record], expected: int, criterion: Criterion, offset: float, unshaped: float
) -> StagedReward:
    """Return the staged reward of a candidate's records.

    ``expected`` subgraphs were to be judged: those without a record count as not matched. Those that no answer gets
    right are left out, since the machine or eager failed. ``offset`` is an error (log) that all speed-ups on this
    machine may share, ``unshaped`` the candidate's AS. Raises UserError if nothing could be judged.
    """
    able = [record for record in records if record.judged and record.arm.status != "eager_fail"]
    stages = [_stage(record, criterion) for record in able]
    stages += [Stage.NO_MATCH] * (expected - len(records))
    if not stages:
        reason = next((record.arm.message for record in records), "there is no task")
        raise UserError(f"nothing could be judged: {reason}", remedy="`passbench doctor` says what may be wrong")
    if min(stages) < Stage.RIGHT or not any(record.arm.speed for record in able):
        return StagedReward(stages, None, unshaped)
    speeds = [record.arm.speed or Interval(1.0, 1.0, 1.0) for record in able]
    return StagedReward(stages, combined(speeds, offset), unshaped)


def _stage(record: Record, criterion: Criterion) -> Stage:
    arm = record.arm
    if arm.status == RAN and right_at(*record.levels(criterion), record.tolerance):
        return Stage.RIGHT
    if arm.status == "compile_fail" and arm.phase == "load":
        return Stage.UNREADABLE
    return _STATUSES.get(arm.status, Stage.FAILS)


class StagedReward(float):
    """A staged reward: a number from 0 to 1.5, with its ``stage`` in words.

    ``low`` and ``high`` are the rewards, without steps, of the ends of the speed-up's 95 % interval. ``speed`` is the
    geometric mean of the speed-ups with that interval; None unless all subgraphs are right and one is measured.
    ``AS`` is the unshaped reward.
    """

    low: float
    high: float
    stage: str
    speed: Interval | None
    AS: float

    def __new__(cls, stages: Sequence[Stage], speed: Interval | None, unshaped: float) -> Self:
        reward = super().__new__(cls, _reward(stages, 0.0 if speed is None else stepped(speed)))
        ends = (0.0, 0.0) if speed is None else (_log(speed.low), _log(speed.high))
        reward.low, reward.high = (_reward(stages, end) for end in ends)
        reward.stage, reward.speed, reward.AS = _in_words(stages, reward), speed, unshaped
        reward._stages = stages
        return reward

    _stages: Sequence[Stage]

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self._stages, self.speed, self.AS

    def __repr__(self) -> str:
        return f"StagedReward({float(self):.4g}, {self.stage!r}, AS={float(self.AS):.4g})"
