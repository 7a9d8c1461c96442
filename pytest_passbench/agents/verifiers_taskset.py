"""The suite as a taskset of verifiers (extra ``verifiers``): one answer with all files, and the judge's reward.

verifiers finds a taskset by the name of a module of its own (docs/agents.md shows one of two lines). Its interface
changes from month to month, so the extra pins it: https://github.com/PrimeIntellect-ai/verifiers, version 0.4.0.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import verifiers.v1 as vf
from pydantic import Field

from pytest_passbench.agents.answer_files import answer_files, question
from pytest_passbench.agents.prompt import prompt
from pytest_passbench.agents.shared_judge import process_judge
from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.core.errors import UserError

__all__ = ["PassTaskset"]


class PassData(vf.TaskData):
    """A row: the prompt, and the task's file."""

    file: str


class PassTask(vf.Task[PassData]):
    """A task of the suite."""

    @vf.reward(weight=1.0)
    async def staged(self, trace: vf.Trace) -> float:
        """Return the staged reward of the answer, 0 if it has no file.

        Raises UserError if the machine could not judge it, so verifiers marks the rollout as failed.
        """
        try:
            files = answer_files(trace.last_reply)
        except UserError:
            return 0.0
        judging = await asyncio.to_thread(process_judge().judge, files, self.data.file, lambda: True)
        reward = judging.outcome.reward(shape="staged")
        trace.record_metrics({
            "AS": float(reward.AS),
            "correct": float(judging.outcome.score("correct") or 0.0),
            "integrity": float(reward.stage == "integrity"),
        })  # fmt: skip
        return float(reward)


class PassConfig(vf.TasksetConfig):
    """The taskset's options: suites, ids, files or folders of tasks."""

    tasks: list[str] = Field(default_factory=lambda: ["lite"])


class PassTaskset(vf.Taskset[PassTask, PassConfig]):
    """The tasks of a suite."""

    def load(self) -> Iterator[PassTask]:
        """Yield each task with its prompt. Raises UserError for an unknown task."""
        for task in TaskShelf().named(self.config.tasks):
            text = question(prompt(task))[0]["content"]
            yield PassTask(PassData(id=task.id, name=task.id, file=str(task.path), prompt=text), self.config.task)
