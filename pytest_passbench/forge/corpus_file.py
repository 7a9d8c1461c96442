"""The file of a case's captured graphs: source text and statistics as JSON, which nothing executes."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.capture import Captured, ValueStats
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.models import Variant
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.printing import to_source

MAX_STATEMENTS = 50_000
"""The most statements of a captured graph. Those of a whole model are many more than a task may have."""


def save(graphs: list[Graph], path: Path) -> int:
    """Write the graphs that have a spelling, and return how many these are."""
    documents = [document for graph in graphs if (document := _document(graph)) is not None]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(documents), encoding="utf-8")
    return len(documents)


def load(path: Path) -> list[Graph]:
    """Return the graphs of a file that :func:`save` wrote. Node names are ``in_0``, ``tmp_0``, ..."""
    return [_graph(document, path) for document in json.loads(path.read_text(encoding="utf-8"))]


def _document(graph: Graph) -> dict[str, Any] | None:
    try:
        source = to_source(graph.captured.module)
    except UserError:
        return None
    names = printed_names(graph)
    return {
        "case": graph.case,
        "modality": graph.modality,
        "note": graph.note,
        "variant": astuple(graph.variant),
        "index": graph.index,
        "source": source,
        "values": {names[k]: astuple(v) for k, v in graph.captured.values.items() if k in names},
        "low": {names[k]: v for k, v in graph.low.items() if k in names},
        "follows": sorted(names[k] for k in graph.follows if k in names),
        "original": {new: old for old, new in names.items() if new.startswith("in_")},
    }


def printed_names(graph: Graph) -> dict[str, str]:
    """Return the printer's name of each node."""
    names, inputs, values = {}, 0, 0
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            names[node.name], inputs = f"in_{inputs}", inputs + 1
        elif node.op != "output" and getattr(node.target, "__name__", "") != "setitem":
            names[node.name], values = f"tmp_{values}", values + 1
    return names


def _graph(document: dict[str, Any], path: Path) -> Graph:
    module = build_graph(document["source"], str(path), statements=MAX_STATEMENTS)
    values = {name: _stats(fields) for name, fields in document["values"].items()}
    return Graph(
        document["case"],
        document["modality"],
        document["note"],
        Variant(*document["variant"]),
        document["index"],
        Captured(module, values),
        document["low"],
        frozenset(document["follows"]),
        document["original"],
    )


def _stats(fields: list[Any]) -> ValueStats:
    shape, dtype, *numbers = fields
    return ValueStats(tuple(shape), dtype, *numbers)
