"""An environment for a model that writes passes: one task, files, tools, and the reward of the best judged attempt.

Its public methods but for ``reset`` and ``get_reward`` are the tools: trainers read their signatures and docstrings.
The reward comes from the judge alone. Files are values here, and nothing that a model writes is run in this process.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path
from typing import Any

from pytest_passbench.agents.answer_files import AnswerFiles
from pytest_passbench.agents.prompt import prompt
from pytest_passbench.agents.shared_judge import Judging, SharedJudge, process_judge
from pytest_passbench.api.outcome import Outcome
from pytest_passbench.api.staged import StagedReward
from pytest_passbench.candidate.layout import MANIFEST
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, abbreviated, printable
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.task import Task
from pytest_passbench.run import results_file
from pytest_passbench.suite import find
from pytest_passbench.suite.taskfile import task_hash

MAX_ATTEMPTS, MAX_OBSERVATION = 32, 8_000
TOOLS = ("write_file", "read_file", "list_files", "new_pass", "explain", "judge")
"""The tools' names."""


@dataclass(frozen=True)
class JudgedAttempt:
    """A judged attempt: its files, its staged reward, its scores by name, and the seconds of judging and of waiting.

    A score is None if a speed that it needs was not measured.
    """

    files: Mapping[str, str] = field(repr=False)
    reward: StagedReward
    scores: Mapping[str, float | None]
    judging_seconds: float
    waiting_seconds: float


class AnswerJournal:
    """A folder of results files. The name of a file has a hash of the task, the answer, and the judge's own code.

    So an answer is judged once, however often a run begins. No model gains by repeating an answer: the same answer to
    the same task has one result, not the best of several.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def outcome(self, files: Mapping[str, str], task: Task) -> Outcome | None:
        """Return the outcome of an answer, or None if the folder has none, or one that is damaged or was changed."""
        path = self._path(files, task)
        if kind_of(path) is None:
            return None
        try:
            run = results_file.read(path)
        except UserError:
            return None
        return Outcome.from_run(run) if run.untouched else None

    def add(self, files: Mapping[str, str], task: Task, outcome: Outcome) -> None:
        """Keep an answer's outcome, unless the machine failed at a part. Raises UserError if writing fails."""
        if not outcome.interrupted and all(record.judged for record in outcome.records):
            results_file.write_file(self._path(files, task), outcome)

    def _path(self, files: Mapping[str, str], task: Task) -> Path:
        # The order of files is that of the passes in the manifest, so it is a part of the answer.
        identity = json.dumps([task_hash(task), harness_hash(), list(files.items())])
        return self._folder / f"{task.id}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}.json"


def call_tool(environment: PassEnvironment, tool: str, arguments: Any) -> str:
    """Call one of :data:`TOOLS` by its name, with its arguments by theirs, and return its text.

    Raises UserError for an unknown tool or wrong arguments, and TurnLost if the judge is closed.
    """
    if tool not in TOOLS:
        raise UserError(f"no tool {abbreviated(tool, 80)}: one of {', '.join(TOOLS)}")
    method = getattr(environment, tool)
    names = list(signature(method).parameters)
    if not isinstance(arguments, dict) or sorted(arguments) != sorted(names):
        raise UserError(f"the arguments of {tool} are {{{', '.join(names)}}}")
    text: str = method(**arguments)
    return text


class PassEnvironment:
    """An episode on one task, from ``reset`` on. ``attempts`` are those judged so far.

    ``judge`` is shared by the environments of a process; without one it is the process's own
    (:func:`~pytest_passbench.agents.shared_judge.process_judge`). ``is_awaited`` is asked while a tool waits for its
    turn: if nobody awaits the answer any more, the turn is given up. An answer that ``journal`` has is not judged
    again. ``unjudged`` counts the calls of ``judge`` that the machine could not answer, which are no attempts.
    """

    def __init__(
        self,
        judge: SharedJudge | None = None,
        is_awaited: Callable[[], bool] = lambda: True,
        journal: AnswerJournal | None = None,
    ) -> None:
        self._judge, self._is_awaited, self._journal = judge, is_awaited, journal
        self._task: Task | None = None
        self._begin()

    def _begin(self) -> None:
        self._files = AnswerFiles()
        self.attempts: list[JudgedAttempt] = []
        self.unjudged = 0

    def reset(self, task: str, file: str | None = None, **row: object) -> str:
        """Begin an episode and return the task's prompt; an empty text if the row's ``prompt`` has it already.

        Raises UserError for a task that there is not: the caller's mistake, not the model's.

        Args:
            task: The id of an installed task, or a task file.
            file: The task's file or folder, which comes before the id if it is there.
            row: Other columns of a data set's row.
        """
        self._task = find.single(file if file and Path(file).exists() else task).load()
        self._begin()
        text, messages = prompt(self._task), row.get("prompt")
        return "" if isinstance(messages, list) and any(text in item["content"] for item in messages) else text

    def write_file(self, path: str, text: str) -> str:
        """Write a file of the answer: a pass, or a helper that passes import. A file of the same path is replaced.

        Args:
            path: The file's path in the answer's folder, for example fused.py.
            text: The whole text of the file.

        Returns:
            A confirmation, or what is wrong.
        """
        return self._observed(lambda _task: f"wrote {self._files.write(path, text)}")

    def read_file(self, path: str) -> str:
        """Read a file of the answer.

        Args:
            path: The file's path in the answer's folder.

        Returns:
            The text of the file, or what is wrong.
        """
        return self._observed(lambda _task: self._files.read(path), cut=False)

    def list_files(self) -> str:
        """List the files of the answer.

        Returns:
            The path and the size of each file.
        """
        return self._observed(lambda _task: str(self._files))

    def new_pass(self) -> str:
        """Write generated passes for the task: correct, fused kernels to begin from.

        Returns:
            What the passes match and which files were written, or why there are no kernels for the task.
        """
        return self._observed(self._new_pass)

    def explain(self) -> str:
        """Explain the present files without judging them: errors, what matches, and the nearest misses.

        Returns:
            The graphs with the lines that passes replace, and all that would be refused.
        """
        return self._observed(lambda task: self._shared().explain(self._files.texts(), task, self._is_awaited))

    def judge(self) -> str:
        """Judge the present files: are they right, and how fast are they? The best judged attempt counts.

        Returns:
            What is right and wrong, the speed-ups, and the reward of the attempt.
        """
        return self._observed(self._judged)

    def get_reward(self) -> float | None:
        """Return the staged reward of the best judged attempt, 0 before any; None if the machine could judge none."""
        best = max((attempt.reward for attempt in self.attempts), default=None)
        return 0.0 if best is None and not self.unjudged else best

    def _shared(self) -> SharedJudge:
        return process_judge() if self._judge is None else self._judge

    def _observed(self, action: Callable[[Task], str], cut: bool = True) -> str:
        """Return a tool's text: that of the action, cut if ``cut``, or one message for a mistake."""
        try:
            if self._task is None:
                raise UserError("there is no task yet", remedy="reset the environment first")
            text = action(self._task)
        except UserError as error:
            text = printable(f"error: {error}", LINES)
        return text if not cut or len(text) <= MAX_OBSERVATION else f"{text[:MAX_OBSERVATION]}\n[...]"

    def _new_pass(self, task: Task) -> str:
        draft = self._shared().first_pass(task, self._is_awaited)
        for name, text in draft.files.items():
            self._files.write(name, text)
        listing = f"the answer has a {MANIFEST} of its own: add the new passes to it\n"
        return f"{draft.text()}\n{listing if MANIFEST in self._files.texts() else ''}wrote {', '.join(draft.files)}"

    def _judged(self, task: Task) -> str:
        if len(self.attempts) >= MAX_ATTEMPTS:
            raise UserError(f"{MAX_ATTEMPTS} attempts were judged; no more are allowed")
        files = self._files.texts()
        try:
            judging = self._judging(files, task)
            reward = judging.outcome.reward(shape="staged")
        except UserError as error:
            self.unjudged += 1
            raise UserError(f"not judged, through no fault of yours: {error}") from error
        scores = {name: judging.outcome.score(name) for name in ("AS", "correct", "gmean", "fast1")}
        scores["correct_fp64"] = judging.outcome.score("correct", criterion="fp64")
        self.attempts.append(JudgedAttempt(files, reward, scores, judging.judging_seconds, judging.waiting_seconds))
        return f"{judging.outcome.feedback()}\n\nReward: {float(reward):.3f} ({reward.stage}). AS: {reward.AS:.3f}."

    def _judging(self, files: Mapping[str, str], task: Task) -> Judging:
        """Return the journal's outcome of an answer; if it has none, judge the answer and add its outcome."""
        stored = None if self._journal is None else self._journal.outcome(files, task)
        if stored is not None:
            return Judging(stored, 0.0, 0.0)
        judging = self._shared().judge(files, task.path, self._is_awaited)
        if self._journal is not None:
            self._journal.add(files, task, judging.outcome)
        return judging
