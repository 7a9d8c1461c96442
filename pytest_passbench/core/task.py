"""Tasks as values: the contents of a task file. Nothing here executes them."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ELEMENT_BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32", "complex32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
"""The dtypes that an input may have, without the ``torch.`` prefix, and the bytes of an element of each."""


@dataclass(frozen=True)
class TensorSpec:
    """An input of a subgraph, with what is known of its values.

    ``shape`` in elements; ``dtype`` without the ``torch.`` prefix ("float32", "bfloat16", "int64", "bool").
    ``mean``/``std``/``min``/``max`` were recorded from a real forward pass; ``data`` holds literal values
    (row-major, flat) if a sample gives them. A 0-dim tensor has the shape ``()``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    data: tuple[float | int | bool, ...] | None = None
    original_name: str | None = None


@dataclass(frozen=True)
class Subgraph:
    """A graph at one set of shapes and dtypes. ``graph`` is a key of :attr:`Task.graphs`."""

    id: str
    graph: str
    dtype: str
    inputs: tuple[TensorSpec, ...]
    source: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """The number of input elements, all inputs together."""
        return sum(math.prod(spec.shape) for spec in self.inputs)


@dataclass(frozen=True)
class TaskHeader:
    """The first document of a task file: enough to collect, select and schedule the task."""

    id: str
    ops: tuple[str, ...]
    sources: tuple[str, ...]
    tags: tuple[str, ...]
    subgraphs: int
    modality: str = ""
    headroom: float = 0.0
    """How much faster than eager the median subgraph could be at most (docs/suite.md); 0 if it is not known."""


@dataclass(frozen=True)
class Task:
    """A task file, read. ``graphs`` maps a key to source text: one ``def forward(in_0, ...)`` each.

    ``recorded`` are all subgraphs of the file, if only some are to be judged. They tell of further sizes.
    """

    header: TaskHeader
    path: Path
    graphs: dict[str, str]
    subgraphs: tuple[Subgraph, ...]
    graph_lines: dict[str, int] = field(default_factory=dict)
    recorded: tuple[Subgraph, ...] = ()

    @property
    def id(self) -> str:
        """The task's id, the same wherever it is installed."""
        return self.header.id

    def part(self, names: Collection[str]) -> Task:
        """Return the task with these subgraphs alone to be judged."""
        subgraphs = tuple(item for item in self.subgraphs if item.id in names)
        return replace(self, subgraphs=subgraphs, recorded=self.recorded or self.subgraphs)


def larger(task: Task, subgraph: Subgraph) -> list[str]:
    """Return the ids of the task's other subgraphs of this dtype if ``subgraph`` is the smallest one, else []."""
    alike = [item for item in task.subgraphs if item.dtype == subgraph.dtype]
    smallest = min(alike, key=lambda item: item.elements, default=subgraph)
    return [item.id for item in alike if item.id != subgraph.id] if smallest.id == subgraph.id else []
