"""Files of a suite's steps: graphs as source text with statistics, and windows, as JSON, which nothing executes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.capture import Captured
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.decompose import MODEL_NAME
from pytest_passbench.forge.models import Variant
from pytest_passbench.forge.windows import Window
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.printing import GraphPrinter

MAX_STATEMENTS = 50_000
"""The most statements of a captured graph. Those of a whole model are many more than a task may have."""


def save_graphs(graphs: Sequence[Graph], path: Path) -> int:
    """Write the graphs that have a spelling, and return how many these are."""
    documents = [document for graph in graphs if (document := _document(graph)) is not None]
    write_text(path, json.dumps(documents))
    return len(documents)


def load_graphs(path: Path) -> list[Graph]:
    """Return the graphs of a file that :func:`save_graphs` wrote. Node names are ``in_0``, ``tmp_0``, ..."""
    return [_graph_of(document, path) for document in json.loads(path.read_text(encoding="utf-8"))]


def _document(graph: Graph) -> dict[str, Any] | None:
    printer = GraphPrinter()
    try:
        source = printer.text(graph.graph.nodes)
    except UserError:
        return None
    names = {node.name: name for node, name in printer.names.items()}
    return {
        "case": graph.case,
        "modality": graph.modality,
        "note": graph.note,
        "variant": astuple(graph.variant),
        "index": graph.index,
        "source": source,
        "values": {names[k]: _statistics(v) for k, v in graph.captured.values.items() if k in names},
        "low": {names[k]: v for k, v in graph.low.items() if k in names},
        "follows": sorted(names[k] for k in graph.follows if k in names),
        "original": {new: old for old, new in names.items() if new.startswith("in_")},
    }


def _statistics(value: TensorSpec) -> list[Any]:
    return [value.shape, value.dtype, value.mean, value.std, value.min, value.max]


def _graph_of(document: dict[str, Any], path: Path) -> Graph:
    source, values, original = (document.pop(key) for key in ("source", "values", "original"))
    module = build_graph(source, str(path), statements=MAX_STATEMENTS)
    for node in module.graph.find_nodes(op="placeholder"):
        node.meta[MODEL_NAME] = original[node.name]
    stats = {name: TensorSpec(name, tuple(shape), *others) for name, (shape, *others) in values.items()}
    changes = {"variant": Variant(*document["variant"]), "follows": frozenset(document["follows"])}
    return Graph(captured=Captured(module, stats), **{**document, **changes})


def save_windows(windows: Sequence[Window], path: Path) -> None:
    """Write the windows as JSON."""
    write_text(path, json.dumps([astuple(item) for item in windows]))


def load_windows(path: Path) -> list[Window]:
    """Return the windows that :func:`save_windows` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Window(case, place, start, end, tuple(ops), *rest) for case, place, start, end, ops, *rest in rows]
