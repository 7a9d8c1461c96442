"""The results of a log of Inspect's: a model's best judged answer to each task as one run, which the board reads."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_passbench.agents.environment import AnswerJournal
from pytest_passbench.api.arguments import write_answer
from pytest_passbench.candidate.files import content_hash
from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import writing
from pytest_passbench.core.run import Run
from pytest_passbench.core.task import Task
from pytest_passbench.run import results_file
from pytest_passbench.run.merge import common, merge

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer to a task: the text of each file, its staged reward, and the run in which it was judged alone."""

    task: str
    files: Mapping[str, str]
    reward: float
    run: Run


def tokens_of(sample: EvalSample) -> int:
    """Return the tokens of a sample, in and out."""
    return sum(usage.total_tokens for usage in sample.model_usage.values())


def attempts_of(sample: EvalSample) -> list[dict[str, Any]]:
    """Return the judged attempts of a sample, in order, as its :class:`Episode` has them."""
    return sample.store.get("Episode:attempts") or []


def write_results(log: EvalLog, tasks: Sequence[Task], journal: AnswerJournal, folder: Path) -> Path | None:
    """Write the results of a log's model to a folder below ``folder``, and return the results file.

    That folder has ``results.json``, and the candidate ``passes`` with the best answer to each task. A task without
    an answer counts as not judged. Returns None if nothing was judged. Raises UserError if it cannot be written.
    """
    by_id = {task.id: task for task in tasks}
    samples = [sample for sample in log.samples or [] if sample.id in by_id]
    best: dict[str, JudgedAnswer] = {}
    for sample in samples:
        answer = _best(sample, by_id[str(sample.id)], journal)
        if answer is not None and (answer.task not in best or answer.reward > best[answer.task].reward):
            best[answer.task] = answer
    if not best:
        return None
    effort = {
        "samples": len(samples),
        "turns": sum(message.role == "assistant" for sample in samples for message in sample.messages),
        "attempts": sum(len(attempts_of(sample)) for sample in samples),
        "tokens": sum(map(tokens_of, samples)),
    }
    model = log.eval.model
    name = re.sub(r"[^\w.-]+", "-", model).strip(".-") or "model"
    place = folder / f"{name}-{log.eval.task_id[:8]}"  # the same name if the log is continued
    passes = place / "passes"
    _write_candidate(best.values(), passes)
    candidate: dict[str, object] = {
        "name": model, "path": str(passes), "content_hash": content_hash(passes), "passes": _kinds(passes),
        "model": effort,
    }  # fmt: skip
    run = _merged(list(best.values()), candidate, [task.id for task in tasks], place)
    counts = {task.id: len(task.subgraphs) for task in tasks} | run.selected.get(model, {})
    results_file.write(place, replace(run, selected={model: counts}))
    return place / results_file.NAME


def _best(sample: EvalSample, task: Task, journal: AnswerJournal) -> JudgedAnswer | None:
    """Return the sample's best attempt among those that the journal has, or None if it has none of them."""
    for attempt in sorted(attempts_of(sample), key=lambda attempt: float(attempt["reward"]), reverse=True):
        outcome = journal.outcome(attempt["files"], task)
        if outcome is not None:
            return JudgedAnswer(task.id, attempt["files"], float(attempt["reward"]), outcome)
    return None


def _write_candidate(answers: Iterable[JudgedAnswer], folder: Path) -> None:
    with writing(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    for answer in answers:
        with suppress(UserError):  # an answer without a pass: its files are written, without a manifest
            write_answer(answer.files, folder / answer.task)


def _kinds(passes: Path) -> str:
    try:
        return Candidate.open(passes).passes
    except UserError:
        return "no passes"


def _merged(answers: Sequence[JudgedAnswer], candidate: dict[str, object], tasks: list[str], place: Path) -> Run:
    """Return the answers as one run of the candidate, whose results lie in the folder ``place``."""
    merged = merge([(place / f"{answer.task}.json", _as_part(answer.run, candidate, tasks)) for answer in answers])
    # An answer that could not be read was judged on no machine. The environment of the others stays valid.
    environments = [answer.run.environment for answer in answers if answer.run.environment]
    return replace(merged, tasks=tasks, environment=common(environments) if environments else {})


def _as_part(run: Run, candidate: dict[str, object], tasks: list[str]) -> Run:
    """Return a run of one answer as a part of the model's run: with the model's name, and settings that all share."""
    (name,) = run.names
    return replace(
        run,
        settings={**run.settings, "task_ids": tasks, "candidates": [candidate["path"]]},
        records=[replace(record, candidate=str(candidate["name"])) for record in run.records],
        candidates=[candidate],
        selected={str(candidate["name"]): run.selected.get(name, {})},
    )
