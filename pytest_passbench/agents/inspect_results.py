"""The results of a log of Inspect's, for the board: each sample's best answer by the journal, and the effort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.agents import model_results
from pytest_passbench.agents.answer_journal import AnswerJournal
from pytest_passbench.agents.model_results import Effort, JudgedAnswer
from pytest_passbench.core.task import Task

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample


def tokens_of(sample: EvalSample) -> int:
    """Return the tokens of a sample, in and out."""
    return sum(usage.total_tokens for usage in sample.model_usage.values())


def attempts_of(sample: EvalSample) -> list[dict[str, Any]]:
    """Return the judged attempts of a sample, in order, as its :class:`Episode` has them."""
    return sample.store.get("Episode:attempts") or []


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
        attempts=sum(len(attempts_of(sample)) for sample in samples),
        tokens=sum(map(tokens_of, samples)),
    )
    name = f"{model_results.folder_name(log.eval.model)}-{log.eval.task_id[:8]}"  # the same for a log that goes on
    return model_results.write(log.eval.model, answers, effort, tasks, folder / name)


def _best(sample: EvalSample, task: Task, journal: AnswerJournal) -> Iterator[JudgedAnswer]:
    """Yield the sample's best attempt of those that the journal has, if there is one."""
    for attempt in sorted(attempts_of(sample), key=lambda attempt: float(attempt["reward"]), reverse=True):
        outcome = journal.outcome(attempt["files"], task)
        if outcome is not None:
            yield JudgedAnswer(task.id, attempt["files"], float(attempt["reward"]), outcome)
            return
