"""The stage `graphs`: the graphs that everything else is about, with their splits, in graphs.jsonl."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.dataset import shards
from pytest_passbench.forge.instances import Instance
from pytest_passbench.forge.normal_form import digest, normal_form
from trained_model.files import read, write
from trained_model.graphs import Graph, counted, statements
from trained_model.random_graphs import random_graph
from trained_model.real_graphs import real_graphs
from trained_model.splits import assign, leaks

DTYPES = ("float32", "float32", "bfloat16", "float16")


def make(folder: Path, dataset: Path, count: int, seed: int = 0) -> None:
    """Write the real graphs and ``count`` random ones, unless graphs.jsonl is there already."""
    path = folder / "graphs.jsonl"
    if path.exists():
        return
    fits, reasons = real_graphs(shards.read(dataset))
    graphs = [graph_of("real", source, data["inputs"], data["families"]) for source, data in fits.items()]
    chance, texts = random.Random(seed), set(fits)
    while len(graphs) < len(fits) + count:
        source, inputs = random_graph(chance)
        if source not in texts:
            texts.add(source)
            graphs.append(graph_of("random", source, inputs, []))
    counts = assign(graphs)
    assert not leaks(graphs)
    summary = {"graphs": dict(sorted(counts.items())), "forms": len({graph.form for graph in graphs}),
               "sequences": len({graph.sequence for graph in graphs}),
               "left out of the data set": counted(reasons)}  # fmt: skip
    (folder / "graphs.json").write_text(json.dumps(summary, indent=1))
    write(path, [graph.to_data() for graph in graphs])
    print(json.dumps(summary["graphs"]))


def graph_of(origin: str, source: str, inputs: list[dict[str, Any]], families: list[str]) -> Graph:
    """Return a graph at a dtype that its text decides."""
    key = digest([source, str([item["shape"] for item in inputs])])
    operators = [item.call.name for item in statements(source)]
    graph = Graph(key, origin, source, operators, DTYPES[int(key[0], 16) % len(DTYPES)], inputs, families)
    graph.form = form(graph)
    return graph


def form(graph: Graph) -> str:
    """Return the normal form of a graph, without dtypes and sizes. The graph runs at small sizes, to save time."""
    shapes = {name: (*(2 for _ in shape[1:]), shape[-1]) for name, shape in graph.shapes().items()}
    specs = tuple(TensorSpec(name, shape, "float32", 1.0, 0.1) for name, shape in shapes.items())
    probe = Instance(tuple(graph.operators), graph.source, "float32", specs, "", "text", "", "").probe()
    return normal_form(probe.pure, probe.values, sized=False)


def load(folder: Path, split: str | None = None) -> list[Graph]:
    """Return the graphs of a folder that have a split: those of ``split``, or all if it is None."""
    graphs = [Graph(**row) for row in read(folder / "graphs.jsonl")]
    return [graph for graph in graphs if graph.split and split in (None, graph.split)]
