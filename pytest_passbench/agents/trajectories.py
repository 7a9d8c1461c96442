"""Trajectories of models in Inspect logs, as rows to train from (docs/training.md has the columns)."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, takewhile
from pathlib import Path
from typing import Any

from pytest_passbench.agents.answer_files import answer_text, question
from pytest_passbench.agents.inspect_results import attempts_of, tokens_of
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.grouping import grouped

Row = dict[str, Any]


@dataclass(frozen=True)
class Trajectory:
    """A sample of a log: its messages in the chat form of OpenAI, and the attempts that were judged, in order.

    ``attempts`` are data as :class:`~pytest_passbench.agents.inspect_task.Episode` keeps them. ``log`` is the
    log's file name, ``file`` the task's file or folder, ``tokens`` the model's, in and out, and ``tools`` the JSON
    schemas of the tools that it could call.
    """

    log: str
    model: str
    task: str
    file: str
    epoch: int
    tokens: int
    tools: tuple[Row, ...]
    messages: tuple[Row, ...]
    attempts: tuple[Row, ...]

    @property
    def best(self) -> Row:
        """The attempt with the highest reward, the first of equal ones. There must be an attempt."""
        return max(self.attempts, key=lambda attempt: float(attempt["reward"]))

    @property
    def honest(self) -> bool:
        """True if no attempt broke a rule."""
        return all(attempt["stage"] != "integrity" for attempt in self.attempts)

    @property
    def prompt(self) -> list[Row]:
        """The messages before the model's first answer: their roles and contents."""
        before = takewhile(lambda item: item["role"] != "assistant", self.messages)
        return [{"role": item["role"], "content": item["content"]} for item in before]

    @property
    def question(self) -> list[Row]:
        """The prompt of the task alone, as a message that asks for the files in one answer."""
        task = next((item["content"] for item in self.prompt if item["role"] == "user"), "")
        return question(task)

    @property
    def up_to_best(self) -> tuple[Row, ...]:
        """The messages up to the feedback on the best attempt; all, if a limit ended the sample before that."""
        ends = [number + 1 for number, item in enumerate(self.messages) if _is_judged(item)]
        return self.messages[: next(islice(ends, self.attempts.index(self.best), None), None)]


def _is_judged(message: Row) -> bool:
    """Return True for the feedback on an attempt. A call of ``judge`` that failed is an error, and no attempt."""
    return message.get("name") == "judge" and not str(message["content"]).startswith("error:")


def read_trajectories(logs: Iterable[Path]) -> Iterator[Trajectory]:
    """Yield the trajectories of log files, and of folders with logs, or with such folders. Raises UserError."""
    from inspect_ai.log import read_eval_log

    for path in logs:
        if not os.path.exists(path):  # noqa: PTH110 -- Path.exists raises OSError for a path that is too long
            raise UserError("no such file or folder", where=path)
        names = _logs(path) if path.is_dir() else [str(path)]
        if not names:
            raise UserError("has no log", where=path, remedy="give the folder of `passbench agent --out`")
        for name in names:
            try:
                log = read_eval_log(name, resolve_attachments=True)
            except Exception as error:  # whatever a damaged archive leads to
                raise UserError(f"is no log that Inspect can read: {error}", where=name) from error
            yield from (_trajectory(Path(name).name, log.eval.model, sample) for sample in log.samples or [])


def _logs(folder: Path) -> list[str]:
    """Return the logs of a folder and of the folders directly in it. Deeper ones are not searched."""
    from inspect_ai.log import list_eval_logs

    folders = [folder]
    with contextlib.suppress(OSError):
        folders += sorted(path for path in folder.iterdir() if path.is_dir())
    names = []
    for path in folders:
        with contextlib.suppress(OSError):
            names += [log.name for log in list_eval_logs(str(path), recursive=False)]
    return names


def _trajectory(log: str, model: str, sample: Any) -> Trajectory:
    return Trajectory(
        log=log,
        model=model,
        task=str(sample.id),
        file=str(sample.metadata.get("file", sample.id)),
        epoch=sample.epoch,
        tokens=tokens_of(sample),
        tools=tuple(_tools(sample)),
        messages=tuple(map(_message, sample.messages)),
        attempts=tuple(attempts_of(sample)),
    )


def _tools(sample: Any) -> list[Row]:
    """Return the tools of the model's first answer, in OpenAI's form."""
    first = next((event for event in sample.events if event.event == "model"), None)
    schemas = [json.loads(tool.model_dump_json(exclude_none=True)) for tool in first.tools] if first else []
    names = ("name", "description", "parameters")
    return [{"type": "function", "function": {name: schema[name] for name in names}} for schema in schemas]


def _message(message: Any) -> Row:
    row: Row = {"role": message.role, "content": message.text, "name": None, "tool_calls": None, "tool_call_id": None}
    if message.role == "tool":
        row["name"], row["tool_call_id"] = message.function, message.tool_call_id
        if message.error is not None:
            row["content"] = f"error: {message.error.message}"
    elif message.role == "assistant" and message.tool_calls:
        row["tool_calls"] = [
            {"id": call.id, "type": "function",
             "function": {"name": call.function, "arguments": json.dumps(call.arguments)}}
            for call in message.tool_calls
        ]  # fmt: skip
    return row


def distinct(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the trajectories whose best files differ for a task; of equal ones, the first."""
    firsts: dict[str, Trajectory] = {}
    for item in trajectories:
        files = item.best["files"] if item.attempts else {}
        firsts.setdefault(json.dumps([item.task, sorted(files.items())]), item)
    return list(firsts.values())


def best_of(count: int, trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """Return the ``count`` trajectories of each task with the highest rewards."""
    groups = grouped(trajectories, lambda item: item.task).values()
    return [item for group in groups for item in sorted(group, key=_reward, reverse=True)[:count]]


def _reward(trajectory: Trajectory) -> float:
    return float(trajectory.best["reward"]) if trajectory.attempts else 0.0


def _identity(item: Trajectory) -> Row:
    return {"task": item.task, "model": item.model, "log": item.log, "epoch": item.epoch}


def raw_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield a row for each trajectory with all its messages and attempts."""
    for item in trajectories:
        attempts = [{**attempt, "scores": json.dumps(attempt["scores"]), "files": _files(attempt)}
                    for attempt in item.attempts]  # fmt: skip
        yield {**_identity(item), "tokens": item.tokens, "reward": _reward(item), "messages": list(item.messages),
               "attempts": attempts}  # fmt: skip


def sft_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield the messages up to the feedback on the best attempt, for supervised training on conversations."""
    for item in trajectories:
        if item.attempts:
            yield {**_identity(item), "reward": _reward(item), "messages": list(item.up_to_best),
                   "tools": json.dumps(item.tools)}  # fmt: skip


def single_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield the task's prompt with the files of the best attempt as one answer, for supervised training."""
    for item in trajectories:
        if item.attempts:
            yield {**_identity(item), "reward": _reward(item), "prompt": item.question,
                   "completion": _answer(item.best)}  # fmt: skip


def dpo_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield a prompt with a better and a worse answer: neighbours among a task's attempts, by their rewards."""
    answers = [(attempt, item) for item in trajectories for attempt in item.attempts]
    for pairs in grouped(answers, lambda pair: pair[1].task).values():
        ranked = sorted(pairs, key=lambda pair: float(pair[0]["reward"]), reverse=True)
        for (better, item), (worse, _) in pairwise(ranked):
            if better["reward"] > worse["reward"]:
                yield {**_identity(item), "prompt": item.question, "chosen": _answer(better),
                       "rejected": _answer(worse), "chosen_reward": better["reward"],
                       "rejected_reward": worse["reward"]}  # fmt: skip


def rl_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield the prompt of each task once, with the best trajectory's reward, and the rewards of its attempts."""
    for item in best_of(1, trajectories):
        rewards = [float(attempt["reward"]) for attempt in item.attempts]
        yield {"task": item.task, "file": item.file, "prompt": item.prompt, "best_reward": _reward(item),
               "rewards": rewards}  # fmt: skip


def passnet_rows(trajectories: Sequence[Trajectory]) -> Iterator[Row]:
    """Yield each conversation as PassNet's agent keeps it: the sample's folder, and the messages as OpenAI has them.

    A task that is no folder of the published layout has its id in the folder's place.
    """
    for item in trajectories:
        messages = [{name: value for name, value in row.items() if value is not None} for row in item.messages]
        yield {"sample_dir": item.file if Path(item.file).is_dir() else item.task, "messages": messages}


FORMATS: dict[str, Callable[[Sequence[Trajectory]], Iterator[Row]]] = {
    "raw": raw_rows, "sft": sft_rows, "single": single_rows, "dpo": dpo_rows, "rl": rl_rows, "passnet": passnet_rows,
}  # fmt: skip
"""The forms of rows by name."""

JSON_FIELDS = frozenset({"arguments", "scores", "tools"})
"""The fields that hold JSON, whose form is not the same in all rows."""


def write_rows(rows: Sequence[Row], path: Path) -> None:
    """Write rows to a Parquet file. Raises OSError if it cannot be written.

    Fields of JSON are of Parquet's type JSON: ``datasets`` reads them as objects, other readers as text.
    """
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.Table.from_pylist(rows)
    schema = pyarrow.schema([(field.name, _typed(field)) for field in table.schema])
    parquet.write_table(table.cast(schema), path, compression="zstd")


def write_lines(rows: Sequence[Row], path: Path) -> None:
    """Write rows as lines of JSON. Raises OSError if the file cannot be written."""
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")


def _typed(field: Any) -> Any:
    """Return the type of a field of an Arrow schema, with the type JSON in place of text that is JSON."""
    import pyarrow

    kind = field.type
    if pyarrow.types.is_list(kind):
        return pyarrow.list_(_typed(kind.value_field))
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([(inner.name, _typed(inner)) for inner in kind])
    return pyarrow.json_(pyarrow.string()) if field.name in JSON_FIELDS and kind == pyarrow.string() else kind


def _files(attempt: Row) -> list[Row]:
    return [{"path": path, "text": text} for path, text in attempt["files"].items()]


def _answer(attempt: Row) -> list[Row]:
    return [{"role": "assistant", "content": answer_text(attempt["files"])}]
