"""Counts of a suite: the origin of its tasks, their operators, and how much faster they could be.

The *long tail* is TorchInductor's speed-up over eager on one subgraph of each task, with its interval.
``benchmarks/longtail.py`` measures it by the judge, and writes ``docs/suite-longtail.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.task import Task
from pytest_passbench.suite.find import edition_of
from pytest_passbench.suite.source import parse

CONVOLUTION = "conv"
"""How the names of convolutions begin."""
LONGTAIL_FILE = Path("docs") / "suite-longtail.json"
"""The file's place beside the folder of the tasks."""
FASTER, SLOWER, OPEN = "faster", "slower", "open"


def counts(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the counts, JSON-ready.

    A task counts for every library that it comes from. A subgraph is anchored at a convolution if it has one.
    """
    subgraphs = sum(len(task.subgraphs) for task in tasks)
    anchored = sum(len(task.subgraphs) for task in tasks if any(op.startswith(CONVOLUTION) for op in task.header.ops))
    single = Counter(task.header.sources[0] for task in tasks if len(task.header.sources) == 1)
    libraries = Counter(name for task in tasks for name in {s.partition("/")[0] for s in task.header.sources})
    return {
        "editions": sorted({edition for task in tasks if (edition := edition_of(task.path))}),
        "conv_anchored_subgraphs": anchored,
        "conv_anchored_share": round(anchored / subgraphs, 4) if subgraphs else 0.0,
        "tasks_by_library": dict(libraries.most_common()),
        "architectures": len({source for task in tasks for source in task.header.sources}),
        "tasks_of_one_architecture": sum(single.values()),
        "tasks_with_two_outputs": sum(outputs(task) >= 2 for task in tasks),
        "tasks_with_a_possible_2x": sum(task.header.headroom >= 2 for task in tasks),
        "operators": len({op for task in tasks for op in task.header.ops}),
        "tasks_with_the_operators_of_another": len(tasks) - len({task.header.ops for task in tasks}),
        "subgraphs_with_the_code_and_shapes_of_another": subgraphs - len(set(_computations(tasks))),
    }


def _computations(tasks: Sequence[Task]) -> Iterator[tuple[object, ...]]:
    for task in tasks:
        for subgraph in task.subgraphs:
            yield task.graphs[subgraph.graph], *((spec.shape, spec.dtype) for spec in subgraph.inputs)


def outputs(task: Task) -> int:
    """Return the greatest number of outputs of a task's graphs."""
    return max(_returned(source, str(task.path)) for source in task.graphs.values())


def _returned(source: str, origin: str) -> int:
    value = parse(source, origin).body[-1].value  # type: ignore[attr-defined]
    return len(getattr(value, "elts", [value]))


@dataclass(frozen=True)
class SpeedupRow:
    """A subgraph's speed-up by TorchInductor's defaults, and the interval that the judge gives it.

    ``load`` is the machine's load average at the measurement.
    """

    task: str
    subgraph: str
    dtype: str
    eager_us: float
    speedup: float
    low: float
    high: float
    load: float

    @property
    def kind(self) -> str:
        """The class of the row: faster or slower than eager, or open if the interval has 1 in it."""
        return FASTER if self.low > 1 else SLOWER if self.high < 1 else OPEN


def longtail_counts(rows: Sequence[SpeedupRow]) -> dict[str, Any]:
    """Return the number of rows, and how many of them are in each class."""
    kinds = [row.kind for row in rows]
    return {"graphs": len(rows), **{kind: kinds.count(kind) for kind in (FASTER, SLOWER, OPEN)}}


def load_longtail(path: Path) -> list[SpeedupRow]:
    """Return the rows that ``benchmarks/longtail.py`` wrote; none without a file. Raises UserError."""
    if kind_of(path) != "file":
        return []
    try:
        return [SpeedupRow(*row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"no rows of the long tail: {error}", where=path,
                        remedy="benchmarks/longtail.py --write makes it anew") from error  # fmt: skip
