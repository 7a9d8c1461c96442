"""The last choice: the curated tasks that make the suite, the lite ones among them, and those left for training."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from pytest_passbench.core.task import Task
from pytest_passbench.forge.instances import DTYPES

LITE = tuple(
    tuple(line.split())
    for line in """
dropout add layer_norm
add relu
to pow mean add rsqrt mul to mul
add to pow mean add rsqrt mul to mul
silu mul
relu square
div tanh mul add softmax to dropout
mul pow mul add mul tanh add mul
pow mean add rsqrt mul mul
add add softmax
batch_norm silu
batch_norm relu
add view softmax
mul add layer_norm
add permute layer_norm
mul softmax dropout
mul sigmoid mul
add softplus
group_norm silu
mean add div mul mul add
""".strip().splitlines()
)


def split(tasks: Sequence[Task], count: int) -> tuple[list[Task], list[Task]]:
    """Return ``count`` tasks for the suite, and the rest, tagged ``train``. The lite tasks belong to the suite.

    The least valuable tasks leave first, unless one alone has some operator. No two tasks share an operator
    sequence, so the two splits have none in common.
    """
    holders = Counter(op for task in tasks for op in set(task.header.ops))
    suite_tasks, left = list(tasks), []
    for task in sorted(tasks, key=value):
        alone = any(holders[op] == 1 for op in task.header.ops)
        if len(suite_tasks) > count and not alone and "lite" not in task.header.tags:
            suite_tasks.remove(task)
            left.append(task)
            holders.subtract(set(task.header.ops))
    return [_tagged(task, "") for task in suite_tasks], [_tagged(task, "train") for task in left]


def value(task: Task) -> float:
    """Return the value of a task. More subgraphs, all three dtypes and at least three operators make it larger."""
    complete = {s.dtype for s in task.subgraphs} >= set(DTYPES)
    return min(len(task.subgraphs), 14) + 4.0 * complete + 3.0 * min(len(task.header.ops), 5)


def _tagged(task: Task, tag: str) -> Task:
    if "lite" in task.header.tags:
        return task
    tags = (tag,) if tag else ()
    return dataclasses.replace(task, header=dataclasses.replace(task.header, tags=tags))
