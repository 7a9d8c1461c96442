"""The judging of pairs of a graph and an answer: each once, by the real judge, with a journal of the verdicts.

The judging is the shortest that the Evaluator has: the graph alone at one size and dtype, and the first look's six
pairs of blocks. Seconds of a pair are kept beside its verdict.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pytest_passbench import Evaluator
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.normal_form import digest
from pytest_passbench.suite.taskfile import write_task
from trained_model.files import Journal
from trained_model.graphs import Graph

FEEDBACK = 400
"""The most characters that are stored of the feedback on a wrong answer."""
STATISTICS = ("mean", "std", "min", "max")
NAME = "fused.py"
"""The file of an answer."""


def task_of(graph: Graph) -> Task:
    """Return the task that has this graph alone."""
    inputs = tuple(
        TensorSpec(item["name"], tuple(item["shape"]), graph.dtype, **{key: item.get(key) for key in STATISTICS} | (
            {} if "mean" in item else {"mean": 0.0, "std": 1.0}))
        for item in graph.inputs
    )  # fmt: skip
    names = tuple(dict.fromkeys(name.replace("_tanh", "") for name in graph.operators))
    header = TaskHeader(f"g-{graph.id}", names, (graph.origin,), (), 1, "text")
    subgraph = Subgraph("s0", "g0", graph.dtype, inputs, graph.origin)
    return Task(header, Path(f"{header.id}.task.yaml"), {"g0": graph.source}, (subgraph,))


def key_of(graph: Graph, text: str) -> str:
    """Return the key of a pair in a journal."""
    return digest([graph.source, graph.dtype, text])


class Judge:
    """A judge of single answers, with a journal. An answer that it has judged before is not judged again.

    An answer that could not be judged for a fault of the machine is judged when the journal is opened again.
    """

    def __init__(self, folder: Path, journal: str) -> None:
        self.tasks = folder / "tasks"
        self.tasks.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(folder / journal)
        self.verdicts = {row["key"]: row for row in self.journal.rows if row["stage"] != "unjudged"}
        self._evaluator: Evaluator | None = None

    def verdict(self, graph: Graph, text: str) -> dict[str, Any]:
        """Return what the judge says of an answer to a graph."""
        key = key_of(graph, text)
        if key not in self.verdicts:
            self.verdicts[key] = {"key": key, "graph": graph.id, **self._judged(graph, text)}
            self.journal.add(self.verdicts[key])
        return self.verdicts[key]

    def _judged(self, graph: Graph, text: str) -> dict[str, Any]:
        path = self.tasks / f"g-{graph.id}.task.yaml"
        if not path.exists():
            write_task(task_of(graph), path)
        self._evaluator = self._evaluator or Evaluator(pipeline="direct", criterion="either")
        start = time.perf_counter()
        try:
            outcome = self._evaluator.evaluate({NAME: text}, path)
            staged, reward = outcome.reward(shape="staged"), outcome.reward()
        except UserError as error:
            return {"stage": "unjudged", "right": False, "AS": None, "staged": None, "why": str(error)[:FEEDBACK]}
        right = outcome.score("correct") == 1.0
        row = {
            "stage": staged.stage, "right": right, "ladder": outcome.score("correct", criterion="ladder") == 1.0,
            "AS": round(float(reward), 4), "low": round(reward.low, 4), "high": round(reward.high, 4),
            "staged": round(float(staged), 4), "integrity": reward.integrity,
            "seconds": round(time.perf_counter() - start, 3),
        }  # fmt: skip
        return row if right else {**row, "feedback": outcome.feedback(limit=FEEDBACK)}

    def close(self) -> None:
        """End the judge's processes."""
        self.journal.close()
        if self._evaluator is not None:
            self._evaluator.close()


def judge_all(folder: Path, journal: str, pairs: Iterable[tuple[Graph, str]], say: int = 50) -> None:
    """Have all pairs judged, and print a line after each ``say`` of them."""
    judge, start, count = Judge(folder, journal), time.perf_counter(), 0
    judged_before = len(judge.verdicts)
    try:
        for graph, text in pairs:
            judge.verdict(graph, text)
            count = len(judge.verdicts) - judged_before
            if count and count % say == 0:
                right = sum(row["right"] for row in judge.verdicts.values())
                seconds = (time.perf_counter() - start) / count
                print(f"{journal}: {len(judge.verdicts)} judged, {right} right, {seconds:.2f} s each", flush=True)
    finally:
        judge.close()
