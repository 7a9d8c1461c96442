"""The results of a model: its best judged answer to each task as one run, which ``passbench board`` reads."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_passbench.api.arguments import write_answer
from pytest_passbench.candidate.files import content_hash
from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.run import Run
from pytest_passbench.core.task import Task
from pytest_passbench.run import results_file
from pytest_passbench.run.merge import common, merge


@dataclass(frozen=True)
class JudgedAnswer:
    """An answer to a task: the text of each file, its staged reward, and the run in which it was judged alone."""

    task: str
    files: Mapping[str, str]
    reward: float
    run: Run


@dataclass(frozen=True)
class Effort:
    """The effort behind a model's answers: samples, turns, judged attempts and tokens of all tasks together."""

    samples: int
    turns: int
    attempts: int
    tokens: int


def write(model: str, answers: Sequence[JudgedAnswer], effort: Effort, tasks: Sequence[Task], folder: Path) -> Path:
    """Write a model's best answer to each task as a candidate, and their results; return the results file.

    There must be an answer. The folder gets ``results.json`` and the candidate ``passes``; a task without an answer
    counts as not judged. Raises UserError if they cannot be written.
    """
    best = _best(answers)
    passes = folder / "passes"
    _write_candidate(best, passes)
    candidate: dict[str, object] = {
        "name": model, "path": str(passes), "content_hash": content_hash(passes), "passes": _kinds(passes),
        "model": vars(effort),
    }  # fmt: skip
    ids = [task.id for task in tasks]
    merged = merge([(folder / f"{answer.task}.json", _as_part(answer.run, candidate, ids)) for answer in best])
    counts = {task.id: len(task.subgraphs) for task in tasks} | merged.selected.get(model, {})
    # An answer that could not be read met no machine, and makes that of the others no less known.
    environments = [answer.run.environment for answer in best if answer.run.environment]
    environment = common(environments) if environments else {}
    results_file.write(folder, replace(merged, tasks=ids, selected={model: counts}, environment=environment))
    return folder / results_file.NAME


def folder_name(model: str) -> str:
    """Return a model's name as that of a folder."""
    return re.sub(r"[^\w.-]+", "-", model).strip(".-") or "model"


def _best(answers: Sequence[JudgedAnswer]) -> list[JudgedAnswer]:
    """Return the answer of the greatest reward to each task: of several, the first."""
    best: dict[str, JudgedAnswer] = {}
    for answer in answers:
        if answer.task not in best or answer.reward > best[answer.task].reward:
            best[answer.task] = answer
    return list(best.values())


def _write_candidate(answers: Sequence[JudgedAnswer], folder: Path) -> None:
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=folder) from None
    for answer in answers:
        with suppress(UserError):  # an answer in which there is no pass: its files are there, without a manifest
            write_answer(answer.files, folder / answer.task)


def _kinds(passes: Path) -> str:
    try:
        return Candidate.open(passes).passes
    except UserError:
        return "no passes"


def _as_part(run: Run, candidate: dict[str, object], tasks: list[str]) -> Run:
    """Return a run of one answer as a part of the model's: under its name, with the settings that all share."""
    (name,) = run.names
    return replace(
        run,
        settings={**run.settings, "task_ids": tasks, "candidates": [candidate["path"]]},
        records=[replace(record, candidate=str(candidate["name"])) for record in run.records],
        candidates=[candidate],
        selected={str(candidate["name"]): run.selected.get(name, {})},
    )
