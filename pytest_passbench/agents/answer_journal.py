"""A journal of judged answers: a results file for each, so that an answer is judged once, however often a run begins.

It also keeps a model from trying its luck: the same answer to the same task has one result, not the best of several.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from pytest_passbench.api.outcome import Outcome
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.task import Task
from pytest_passbench.run import results_file
from pytest_passbench.suite.taskfile import task_hash


class AnswerJournal:
    """A folder of results files, named by what they are of: the task, the answer, and the judge's own code."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def outcome(self, files: Mapping[str, str], task: Task) -> Outcome | None:
        """Return the outcome of an answer, None if it has none here or only a file that was damaged."""
        path = self._path(files, task)
        if kind_of(path) is None:
            return None
        try:
            run = results_file.read(path)
        except UserError:
            return None
        return Outcome.from_run(run) if run.untouched else None

    def add(self, files: Mapping[str, str], task: Task, outcome: Outcome) -> None:
        """Keep the outcome of an answer, unless the machine failed at a part of it. Raises UserError if it can't."""
        if not outcome.interrupted and all(record.judged for record in outcome.records):
            results_file.write_file(self._path(files, task), outcome)

    def _path(self, files: Mapping[str, str], task: Task) -> Path:
        # The order of files is that of the passes in the manifest, so it is a part of the answer.
        identity = json.dumps([task_hash(task), harness_hash(), list(files.items())])
        return self._folder / f"{task.id}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"
