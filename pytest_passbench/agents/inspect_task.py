"""The suite as a task of Inspect AI: a sample for each task, with the tools of :class:`PassEnvironment`.

An evaluation of a model can be interrupted and continued.

An attempt is judged once, when the model calls ``judge``; the scorer reads the results. One attempt is judged at a
time, and the time of waiting for its turn is no working time of a sample.
"""

from __future__ import annotations

import functools
import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anyio import to_thread
from inspect_ai import Epochs, Task, eval_set, task
from inspect_ai._util.error import PrerequisiteError
from inspect_ai.agent import as_solver, react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import Model, get_model
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, mean, metric, scorer, stderr
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import Tool, ToolDef
from inspect_ai.util import StoreModel, concurrency, store_as
from pydantic import Field

from pytest_passbench.agents import shared_judge
from pytest_passbench.agents.environment import TOOLS, AnswerJournal, JudgedAttempt, PassEnvironment
from pytest_passbench.agents.prompt import prompt
from pytest_passbench.agents.service import attempt_summary
from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import ScoreSettings

JUDGING = frozenset({"new_pass", "explain", "judge"})
"""The tools that use the shared judge."""

INSTRUCTIONS = """\
You write passes for a tensor compiler. Work with the tools: write files, have them judged, read the feedback, and try
again. The best judged attempt counts, and only what was judged counts. Call submit when you cannot do better.
"""
GO_ON = "Go on with the tools, or call submit if you cannot do better."
TURNS = 10
ATTEMPT_SECONDS = 600
"""Seconds to wait for an answer of the model. Without a limit, Inspect would wait and retry forever."""
UNJUDGED_AS = ScoreSettings().b
"""AS of a sample without a judged attempt: that of an answer that matches nothing."""


class Episode(StoreModel):
    """The attempts of a sample, as data in the log. ``unjudged`` counts those that the machine could not judge."""

    attempts: list[dict[str, Any]] = Field(default_factory=list)
    unjudged: int = 0

    def note(self, environment: PassEnvironment) -> None:
        """Add the attempts of an environment that are not noted yet."""
        self.attempts = [*self.attempts, *map(_data, environment.attempts[len(self.attempts) :])]
        self.unjudged = environment.unjudged


def _data(attempt: JudgedAttempt) -> dict[str, Any]:
    reward = attempt.reward
    speed = None if reward.speed is None else [reward.speed.ratio, reward.speed.low, reward.speed.high]
    return {**attempt_summary(attempt), "AS": float(reward.AS), "speed": speed, "files": dict(attempt.files)}


@task
def passbench(
    tasks: str = "lite",
    turns: int = TURNS,
    best_of: int = 1,
    tokens: int | None = None,
    seconds: int | None = None,
    journal: str | None = None,
) -> Task:
    """Return the Inspect task: one sample for each task of the suite.

    Args:
        tasks: Suites, ids, files or folders of tasks, with commas between.
        turns: How often the model may answer in a sample.
        best_of: How many samples are made of each task; the best of them and their mean are reported.
        tokens: The most tokens of a sample; None for no limit.
        seconds: The most seconds of a sample's work, without those of waiting for the judge or for an endpoint's
            retries; None for no limit.
        journal: A folder that keeps what was judged, so that an equal answer is not judged again; None for none.
    """
    samples = [
        Sample(id=item.id, input=prompt(item), metadata={"task": item.id, "file": str(item.path)})
        for item in TaskShelf().named([name.strip() for name in tasks.split(",")])
    ]
    return Task(
        dataset=MemoryDataset(samples, name="passbench"),
        solver=episode(journal),
        scorer=best_attempt(),
        epochs=Epochs(best_of, ["mean"] if best_of == 1 else ["mean", "max"]),
        turn_limit=turns,
        token_limit=tokens,
        working_limit=seconds,
        continue_on_fail=True,  # a sample that fails does not end the others, and the log can be continued
    )


@solver
def episode(journal: str | None = None) -> Solver:
    """Return the solver: an agent with the tools of an environment of its own, and a journal if one is named."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        environment = PassEnvironment(journal=None if journal is None else AnswerJournal(Path(journal)))
        await to_thread.run_sync(environment.reset, state.metadata["file"])
        tools = [_tool(environment, name) for name in TOOLS]
        agent = react(prompt=INSTRUCTIONS, tools=tools, on_continue=GO_ON)
        return await as_solver(agent)(state, generate)

    return solve


def _tool(environment: PassEnvironment, name: str) -> Tool:
    """Return a tool of an environment as Inspect's: by the method's own signature and docstring."""
    method: Callable[..., str] = getattr(environment, name)

    @functools.wraps(method)
    async def execute(*args: Any, **keywords: Any) -> str:
        call = functools.partial(method, *args, **keywords)
        if name not in JUDGING:
            return call()
        async with concurrency("judge", 1):
            text: str = await to_thread.run_sync(call, abandon_on_cancel=True)
        store_as(Episode).note(environment)
        return text

    return ToolDef(execute, name=name).as_tool()


@metric
def geometric_mean() -> Metric:
    """Return the metric: the geometric mean over samples, as AS is over tasks. It is 0 if any value is."""

    def compute(scores: list[SampleScore]) -> float:
        values = [item.score.as_float() for item in scores]
        return statistics.geometric_mean(values) if min(values, default=0.0) > 0 else 0.0

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


def evaluate(inspect_task: Task, model: str, folder: Path, retries: int) -> EvalLog:
    """Evaluate a model on the samples that the logs in ``folder`` do not have yet; return the log with all of them.

    ``model`` is its name in Inspect. An endpoint that fails is asked again ``retries`` times. Raises UserError for a
    model that cannot be asked, and for a folder that Inspect refuses.
    """
    inspect_model = _model(model)
    try:
        _, (log,) = eval_set(
            [inspect_task],
            log_dir=str(folder),
            log_dir_allow_dirty=True,  # other models' logs lie there too
            model=inspect_model,
            display="plain",
            log_buffer=1,  # each sample is in the log as soon as it ends
            retry_on_error=1,  # a sample, before it is given up
            retry_attempts=0,
            retry_immediate=False,
            max_retries=retries,
            attempt_timeout=ATTEMPT_SECONDS,
        )
    except PrerequisiteError as error:
        raise UserError(_message(error), where=folder) from error
    finally:
        shared_judge.process_judge().close()
    return read_eval_log(log.location, resolve_attachments=True)


def _model(name: str) -> Model:
    try:
        return get_model(name, memoize=False)  # a cached one may have another URL or key
    except Exception as error:  # each provider has its own error for a missing package, key or URL
        raise UserError(_message(error), where=f"--model={name}") from error


def _message(error: Exception) -> str:
    """Return an error of Inspect's in plain words: its messages may have markup for a terminal."""
    return " ".join(re.sub(r"\[/?[a-z ]*\]", "", str(getattr(error, "message", error))).split())
