"""The score of an Inspect sample: its best judged attempt. Nothing is judged again."""

from __future__ import annotations

import math
from typing import Any

from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import TaskState
from inspect_ai.util import StoreModel, store_as
from pydantic import Field

from pytest_passbench.agents.environment import JudgedAttempt, PassEnvironment
from pytest_passbench.core.settings import ScoreSettings

UNJUDGED_AS = ScoreSettings().b
"""AS of a sample without a judged attempt: that of an answer that matches nothing."""


class Episode(StoreModel):
    """The attempts of a sample, as data in the log. ``unjudged`` counts those that the machine could not judge."""

    attempts: list[dict[str, Any]] = Field(default_factory=list)
    unjudged: int = 0

    def note(self, environment: PassEnvironment) -> None:
        """Take over the attempts of an environment that are new."""
        self.attempts = [*self.attempts, *map(_data, environment.attempts[len(self.attempts) :])]
        self.unjudged = environment.unjudged


def _data(attempt: JudgedAttempt) -> dict[str, Any]:
    reward = attempt.reward
    speed = None if reward.speed is None else [reward.speed.ratio, reward.speed.low, reward.speed.high]
    return {
        "reward": float(reward),
        "AS": float(reward.AS),
        "stage": reward.stage,
        "scores": dict(attempt.scores),
        "speed": speed,
        "judging_seconds": attempt.judging_seconds,
        "waiting_seconds": attempt.waiting_seconds,
        "files": dict(attempt.files),
    }


@metric
def geometric_mean() -> Metric:
    """Return the metric: the geometric mean over samples, as AS is over tasks. It is 0 if any value is."""

    def compute(scores: list[SampleScore]) -> float:
        values = [item.score.as_float() for item in scores]
        if not values or min(values) <= 0:
            return 0.0
        return math.exp(math.fsum(map(math.log, values)) / len(values))

    return compute


@scorer(
    metrics={
        "AS": [geometric_mean(), mean(), stderr()],
        "reward": [mean(), stderr()],
        "correct": [mean()],
        "correct_fp64": [mean()],
        "integrity": [mean()],
        "attempts": [mean()],
        "turns": [mean()],
    }
)
def best_attempt() -> Scorer:
    """Return the scorer of the best judged attempt, by its staged reward.

    ``correct`` and ``correct_fp64`` are the shares of subgraphs that are right at t and by the second criterion.
    ``integrity`` is 1 if the attempt broke a rule: its AS and its reward are then 0.
    """

    async def score(state: TaskState, target: Target) -> Score:  # noqa: ARG001 - Inspect passes it by this name
        attempts = store_as(Episode).attempts
        turns = sum(message.role == "assistant" for message in state.messages)
        if not attempts:
            value = {"AS": UNJUDGED_AS, "reward": 0.0, "correct": 0.0, "correct_fp64": 0.0, "integrity": 0}
            return Score(value={**value, "attempts": 0, "turns": turns}, explanation="no attempt was judged")
        best = max(attempts, key=lambda attempt: float(attempt["reward"]))
        scores = best["scores"]
        return Score(
            value={
                "AS": best["AS"],
                "reward": best["reward"],
                "correct": scores["correct"],
                "correct_fp64": scores["correct_fp64"],
                "integrity": int(best["stage"] == "integrity"),
                "attempts": len(attempts),
                "turns": turns,
            },
            answer="\n\n".join(f"# {path}\n{text}" for path, text in best["files"].items()),
            explanation=_words(attempts, best),
            metadata={"speed": best["speed"], "rewards": [attempt["reward"] for attempt in attempts]},
        )

    return score


def _words(attempts: list[dict[str, Any]], best: dict[str, Any]) -> str:
    """Return what became of the best attempt, and the stages of all."""
    speed = "" if best["speed"] is None else "; speed-up {:.3f} [{:.3f}, {:.3f}]".format(*best["speed"])
    stages = ", ".join(attempt["stage"] for attempt in attempts)
    return f"{best['stage']}: reward {best['reward']:.3f}{speed}; attempts: {stages}"
