"""The outcome of a call: the run's records, with its score, a reward, and words for the next attempt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, Self, overload

from pytest_passbench.api import feedback
from pytest_passbench.api.staged import StagedReward, staged_reward
from pytest_passbench.core.criterion import CRITERIA, Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score.as_interval import score, terms
from pytest_passbench.score.board import metric, tasks_of
from pytest_passbench.score.subgraph import TOP, Judged

INTEGRITY_REWARD = 0.0
SHAPES = ("as", "staged")


class Reward(float):
    """A reward: a number, with the ends ``low`` and ``high`` of its 95 % interval.

    ``criterion`` says what counts as correct. ``integrity`` is True if a rule was broken, which makes it 0.
    ``unmeasured`` is the number of correct subgraphs without a measured speed, which count as fast as eager.
    """

    low: float
    high: float
    criterion: Criterion
    integrity: bool
    unmeasured: int

    def __new__(
        cls, value: float, low: float, high: float, criterion: Criterion, integrity: bool = False, unmeasured: int = 0
    ) -> Self:
        reward = super().__new__(cls, value)
        reward.low, reward.high, reward.criterion = low, high, criterion
        reward.integrity, reward.unmeasured = integrity, unmeasured
        return reward

    def __getnewargs__(self) -> tuple[Any, ...]:
        return float(self), self.low, self.high, self.criterion, self.integrity, self.unmeasured

    def __repr__(self) -> str:
        return f"Reward({float(self):.4g}, low={self.low:.4g}, high={self.high:.4g}, criterion={self.criterion!r})"


@dataclass
class Outcome(Run):
    """A run as :func:`pytest_passbench.evaluate` and :class:`pytest_passbench.Evaluator` return it.

    The methods take the name of a candidate, which need not be given if there is one only. They raise UserError for
    a name that no candidate of the run has.
    """

    @classmethod
    def from_run(cls, run: Run) -> Self:
        """Return the outcome of a run."""
        return cls(**{item.name: getattr(run, item.name) for item in fields(run)})

    def score(
        self, name: str = "AS", candidate: str | None = None, criterion: Criterion | None = None
    ) -> float | None:
        """Return a score: AS, correct, gmean or fast1 (docs/scores.md). ``criterion`` is the run's if none is given.

        It is None if a speed that it needs was not measured. Raises UserError for another name.
        """
        return metric(self, self._named(candidate), name, criterion)

    @overload
    def reward(
        self, candidate: str | None = None, criterion: Criterion | None = None, shape: Literal["as"] = "as"
    ) -> Reward: ...

    @overload
    def reward(
        self, candidate: str | None = None, criterion: Criterion | None = None, *, shape: Literal["staged"]
    ) -> StagedReward: ...

    def reward(
        self, candidate: str | None = None, criterion: Criterion | None = None, shape: str = "as"
    ) -> Reward | StagedReward:
        """Return the reward of a candidate. The shape "as" is AS with its interval, or 0 for a broken rule.

        ``criterion`` is the run's if none is given. AS lies between b (0.1) and the speed-up. It rises with each
        subgraph that becomes correct, and with each speed-up. A correct answer without a measured speed counts as
        fast as eager's. The shape "staged" is monotone in what the candidate has attained, up to 1.5
        (docs/evaluator.md). Raises UserError for another shape, or if the machine prevented all judging.
        """
        if shape not in SHAPES:
            raise UserError(f"unknown shape {abbreviated(shape)}", remedy=f"one of {', '.join(SHAPES)}")
        unshaped = self._as_reward(candidate, criterion)
        if shape == "as":
            return unshaped
        name, offset = self._named(candidate), float(self.noise.get("offset", 0.0))
        return staged_reward(self.of(name), self._counts(name), unshaped.criterion, offset, float(unshaped))

    def _as_reward(self, candidate: str | None, criterion: Criterion | None) -> Reward:
        name, effective_criterion = self._named(candidate), self.criterion if criterion is None else criterion
        if effective_criterion not in CRITERIA:
            raise UserError(f"unknown criterion {effective_criterion!r}", remedy=f"one of {', '.join(CRITERIA)}")
        if any(record.arm.status == "integrity" for record in self.of(name)):
            return Reward(INTEGRITY_REWARD, INTEGRITY_REWARD, INTEGRITY_REWARD, effective_criterion, integrity=True)
        tasks, unmeasured = _as_eager(tasks_of(self, name, effective_criterion), self.score_settings)
        score_terms = terms(tasks, self.score_settings)
        if score_terms is None:
            reason = next((record.arm.message for record in self.of(name) if not record.judged), "there is no task")
            raise UserError(f"nothing could be judged: {reason}", remedy="`passbench doctor` says what may be wrong")
        value = score(score_terms, float(self.noise.get("offset", 0.0)))
        return Reward(value.ratio, value.low, value.high, effective_criterion, unmeasured=unmeasured)

    def feedback(self, limit: int = feedback.LIMIT, candidate: str | None = None) -> str:
        """Return a text on how a candidate fared, for its author's next attempt.

        The text has at most ``limit`` characters. It names files by their paths in the candidate, and has no secret
        of the run's. All that the candidate wrote is escaped.
        """
        name = self._named(candidate)
        path = next((str(item.get("path", "")) for item in self.candidates if item.get("name") == name), "")
        return feedback.text(self.of(name), self._counts(name), path, limit)

    def _counts(self, name: str) -> int:
        return sum(self.count(name, task) for task in self.tasks)

    def _named(self, candidate: str | None) -> str:
        if candidate is None and len(self.names) != 1:
            raise UserError(f"the run has {len(self.names)} candidates", remedy=f"name one of {self.names}")
        name = self.names[0] if candidate is None else candidate
        if name not in self.names:
            raise UserError(f"no candidate is called {name!r}", remedy=f"one of {self.names}")
        return name

    def only(self, candidate: str) -> Outcome:
        """Return the outcome of one of several candidates by itself."""
        name = self._named(candidate)
        return replace(
            self,
            records=self.of(name),
            candidates=[item for item in self.candidates if item.get("name") == name],
            selected={name: self.selected[name]} if name in self.selected else {},
        )


def _as_eager(tasks: Mapping[str, Sequence[Judged]], settings: ScoreSettings) -> tuple[dict[str, list[Judged]], int]:
    """Return the tasks with eager's speed for each correct subgraph that was not measured, and their number."""
    top, count = TOP[settings.interpretation], 0
    filled: dict[str, list[Judged]] = {}
    for task, group in tasks.items():
        unknown = [item.unmeasured_at(top) for item in group]
        count += sum(unknown)
        pairs = zip(group, unknown, strict=True)
        filled[task] = [replace(item, speedup=1.0) if flag else item for item, flag in pairs]
    return filled, count
