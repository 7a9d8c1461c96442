"""What a log of Inspect's comes to for the board: each sample's best answer as the journal has it, and the effort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.agents import model_results
from pytest_passbench.agents.answer_journal import AnswerJournal
from pytest_passbench.agents.model_results import Effort, JudgedAnswer
from pytest_passbench.core.task import Task

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog


def tokens_of(log: EvalLog) -> int:
    """Return the tokens of all samples, in and out."""
    return sum(usage.total_tokens for sample in log.samples or [] for usage in sample.model_usage.values())


def write_results(log: EvalLog, tasks: Sequence[Task], journal: AnswerJournal, folder: Path) -> Path | None:
    """Write the results of a log's model to a folder below ``folder``, and return the results file.

    It has the best answer to each of the tasks. Returns None if nothing was judged. Raises UserError if it cannot be
    written.
    """
    by_id = {task.id: task for task in tasks}
    samples = [sample for sample in log.samples or [] if sample.id in by_id]
    answers = [answer for sample in samples for answer in _best(sample, by_id[str(sample.id)], journal)]
    if not answers:
        return None
    effort = Effort(
        samples=len(samples),
        turns=sum(message.role == "assistant" for sample in samples for message in sample.messages),
        attempts=sum(len(_attempts(sample)) for sample in samples),
        tokens=tokens_of(log),
    )
    name = f"{model_results.folder_name(log.eval.model)}-{log.eval.task_id[:8]}"  # the same for a log that goes on
    return model_results.write(log.eval.model, answers, effort, tasks, folder / name)


def _attempts(sample: Any) -> list[dict[str, Any]]:
    return sample.store.get("Episode:attempts") or []


def _best(sample: Any, task: Task, journal: AnswerJournal) -> Iterator[JudgedAnswer]:
    """Yield the sample's best attempt of those that the journal has, if there is one."""
    for attempt in sorted(_attempts(sample), key=lambda attempt: float(attempt["reward"]), reverse=True):
        outcome = journal.outcome(attempt["files"], task)
        if outcome is not None:
            yield JudgedAnswer(task.id, attempt["files"], float(attempt["reward"]), outcome)
            return
