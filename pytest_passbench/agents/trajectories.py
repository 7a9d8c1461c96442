"""Trajectories of models in Inspect logs, as rows to train from (docs/agents.md has the columns)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from pytest_passbench.agents.inspect_results import attempts_of, tokens_of
from pytest_passbench.core.errors import UserError

Row = dict[str, Any]


@dataclass(frozen=True)
class Trajectory:
    """A sample of a log: its messages in the chat form of OpenAI, and the attempts that were judged, in order.

    ``attempts`` are data as :class:`~pytest_passbench.agents.inspect_score.Episode` keeps them. ``log`` is the
    log's file name, ``tokens`` the model's, in and out.
    """

    log: str
    model: str
    task: str
    epoch: int
    tokens: int
    messages: tuple[Row, ...]
    attempts: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """The attempt with the highest reward, the first of these. There must be one."""
        return max(self.attempts, key=lambda attempt: float(attempt["reward"]))

    @property
    def honest(self) -> bool:
        """True if no attempt broke a rule."""
        return all(attempt["stage"] != "integrity" for attempt in self.attempts)

    @property
    def prompt(self) -> tuple[Row, ...]:
        """The messages before the model's first answer."""
        first = next((n for n, item in enumerate(self.messages) if item["role"] == "assistant"), len(self.messages))
        return self.messages[:first]

    @property
    def up_to_best(self) -> tuple[Row, ...]:
        """The messages up to the feedback on the best attempt; all, if a limit ended the sample before that."""
        ends = [number + 1 for number, item in enumerate(self.messages) if _is_judged(item)]
        return self.messages[: next(islice(ends, self.attempts.index(self.best), None), None)]


def _is_judged(message: Row) -> bool:
    """Return True for the feedback on an attempt. A call of ``judge`` that failed is an error, and no attempt."""
    return message.get("name") == "judge" and not str(message["content"]).startswith("error:")


def read_trajectories(logs: Iterable[Path]) -> Iterator[Trajectory]:
    """Yield the trajectories of log files and of folders of them. Raises UserError for one that cannot be read."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    for path in logs:
        if not path.exists():
            raise UserError("no such file or folder", where=path)
        names = [log.name for log in list_eval_logs(str(path))] if path.is_dir() else [str(path)]
        if not names:
            raise UserError("has no log", where=path, remedy="give the folder of `passbench agent --out`")
        for name in names:
            try:
                log = read_eval_log(name, resolve_attachments=True)
            except Exception as error:  # whatever a damaged archive leads to
                raise UserError(f"is no log that Inspect can read: {error}", where=name) from error
            yield from (_trajectory(Path(name).name, log.eval.model, sample) for sample in log.samples or [])


def _trajectory(log: str, model: str, sample: Any) -> Trajectory:
    messages, attempts = tuple(map(_message, sample.messages)), tuple(attempts_of(sample))
    return Trajectory(log, model, str(sample.id), sample.epoch, tokens_of(sample), messages, attempts)


def _message(message: Any) -> Row:
    row: Row = {"role": message.role, "content": message.text, "name": None, "tool_calls": None}
    if message.role == "tool":
        row["name"] = message.function
        if message.error is not None:
            row["content"] = f"error: {message.error.message}"
    elif message.role == "assistant" and message.tool_calls:
        row["tool_calls"] = [
            {"type": "function", "function": {"name": call.function, "arguments": json.dumps(call.arguments)}}
            for call in message.tool_calls
        ]
    return row


def distinct(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return those whose best files differ for a task; of equal ones the first."""
    firsts: dict[str, Trajectory] = {}
    for item in trajectories:
        files = item.best["files"] if item.attempts else {}
        firsts.setdefault(json.dumps([item.task, sorted(files.items())]), item)
    return list(firsts.values())


def best_of(count: int, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return of each task the ``count`` with the highest rewards."""
    by_task = defaultdict[str, list[Trajectory]](list)
    for item in trajectories:
        by_task[item.task].append(item)
    return [item for group in by_task.values() for item in sorted(group, key=_reward, reverse=True)[:count]]


def _reward(trajectory: Trajectory) -> float:
    return float(trajectory.best["reward"]) if trajectory.attempts else 0.0


def _identity(item: Trajectory) -> Row:
    return {"task": item.task, "model": item.model, "log": item.log, "epoch": item.epoch}


def raw_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield a row for each trajectory, with all that is known of it."""
    for item in trajectories:
        attempts = [{**attempt, "scores": json.dumps(attempt["scores"]), "files": _files(attempt)}
                    for attempt in item.attempts]  # fmt: skip
        yield {**_identity(item), "tokens": item.tokens, "reward": _reward(item), "messages": list(item.messages),
               "attempts": attempts}  # fmt: skip


def sft_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield the messages up to the feedback on the best attempt, for supervised training on conversations."""
    for item in trajectories:
        if item.attempts:
            yield {**_identity(item), "reward": _reward(item), "messages": list(item.up_to_best)}


def dpo_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield a prompt with a better and a worse answer: neighbours among a task's attempts, by their rewards."""
    by_task = defaultdict[str, list[tuple[Row, Trajectory]]](list)
    for item in trajectories:
        by_task[item.task] += [(attempt, item) for attempt in item.attempts]
    for pairs in by_task.values():
        ranked = sorted(pairs, key=lambda pair: float(pair[0]["reward"]), reverse=True)
        for (better, item), (worse, _) in pairwise(ranked):
            if better["reward"] > worse["reward"]:
                yield {**_identity(item), "prompt": list(item.prompt), "chosen": [_answer(better)],
                       "rejected": [_answer(worse)], "chosen_reward": better["reward"],
                       "rejected_reward": worse["reward"]}  # fmt: skip


def rl_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield the prompt of each task once, with the highest reward and that of each turn's attempt of its best one."""
    for item in best_of(1, trajectories):
        rewards = [float(attempt["reward"]) for attempt in item.attempts]
        yield {"task": item.task, "prompt": list(item.prompt), "best_reward": _reward(item), "rewards": rewards}


FORMATS: dict[str, Callable[[Sequence[Trajectory]], Iterator[Row]]] = {
    "raw": raw_rows, "sft": sft_rows, "dpo": dpo_rows, "rl": rl_rows,
}  # fmt: skip
"""The forms of rows by name."""


def _files(attempt: Row) -> list[Row]:
    return [{"path": path, "text": text} for path, text in attempt["files"].items()]


def _answer(attempt: Row) -> Row:
    """Return an attempt's files as one answer, each in a fenced block after its path."""
    text = "\n\n".join(f"{path}\n```python\n{text.rstrip()}\n```" for path, text in attempt["files"].items())
    return {"role": "assistant", "content": text, "name": None, "tool_calls": None}
