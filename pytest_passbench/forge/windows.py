"""Step 2: the places of operator sequences in the corpus, by the way they were found (typical, fusible, anchored,
rare, matching).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.capture import ValueStats
from pytest_passbench.forge.clean import is_heavy
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.decompose import GraphPiece, calls, connected, cut, light_runs
from pytest_passbench.forge.ngrams import fold, typical
from pytest_passbench.forge.normal_form import digest
from pytest_passbench.suite.opnames import is_metadata, is_random, op_name

MAX_MERGES = 4000
MAX_RUNS, MAX_RUN_OPERATORS = 16, 24
"""The most distinct runs of one case, and operators of each run, that are searched for fusible parts."""
MAX_OPERATORS = 33
REACHES = tuple((before, after) for before in (0, 1, 2, 4) for after in (1, 2, 3, 4, 6, 8))
"""The runs that :func:`anchored` tries: operators before a heavy one, and operators from that one on."""

Ops = tuple[str, ...]
RunRanges = dict[str, list[tuple[int, int]]]
"""For the hash of a run's operators and shapes, its fusible ranges: the first operator and the end of each."""


@dataclass(frozen=True)
class Window:
    """Operators ``start`` to ``end - 1`` of one graph (``place`` in its case's list), and their names.

    ``outputs`` is the number of values that are used outside the window.
    """

    case: str
    place: int
    start: int
    end: int
    ops: tuple[str, ...]
    kind: str
    outputs: int = 1


def names(graph: Graph) -> list[str]:
    """Return the operator names of a graph, in order."""
    return [op_name(node) for node in calls(graph.graph)]


def real_ops(graph: Graph, start: int, end: int) -> tuple[str, ...]:
    """Return the names of a window's operators that work on elements, as a task's header lists them."""
    return tuple(op_name(node) for node in calls(graph.graph)[start:end] if not is_metadata(node))


def window(graphs: Sequence[Graph], place: int, start: int, end: int, kind: str) -> Iterator[Window]:
    """Yield the window if it can be a subgraph: connected, nothing random, only tensors in and out."""
    graph = graphs[place]
    nodes = calls(graph.graph)[start:end]
    if any(is_random(node) for node in nodes) or is_metadata(nodes[0]) or not connected(nodes):
        return
    piece = cut(nodes, graph.captured.values)
    if piece is not None:
        outputs = sum(1 for node in piece.module.graph.nodes if node.op == "output" for _ in node.args[0])
        yield Window(graph.case, place, start, end, real_ops(graph, start, end), kind, outputs)


def fusible(graphs: Sequence[Graph], ranges: RunRanges | None = None) -> list[Window]:
    """Return the fusible and the anchored runs of a case's graphs at its first size.

    Equal runs of operators are taken once. ``ranges`` has the fusible ranges of runs that were searched before, and
    gets those of the runs that are searched now.
    """
    windows: list[Window] = []
    ranges = {} if ranges is None else ranges
    keys: set[str] = set()
    for place, graph in enumerate(graphs):
        if graph.variant != graphs[0].variant:
            continue
        position = {node: i for i, node in enumerate(calls(graph.graph))}
        for run in light_runs(graph.graph):
            key = digest(
                [
                    f"{op_name(n)}{graph.captured.values.get(n.name) and graph.captured.values[n.name].shape}"
                    for n in run
                ]
            )
            if key in keys or len(run) < 2 or len(keys) >= MAX_RUNS:
                continue
            keys.add(key)
            if key not in ranges:
                ranges[key] = fusible_runs(run[:MAX_RUN_OPERATORS], graph.captured.values)
            for start, end in ranges[key]:
                first = position[run[start]]
                windows += window(graphs, place, first, first + end - start, "fusible")
    return windows + anchored(graphs)


def anchored(graphs: Sequence[Graph]) -> list[Window]:
    """Return the runs about a heavy operator at a case's first size: at most two windows for each sequence.

    A fused kernel can compute a convolution or an attention together with its neighbours.
    """
    windows: list[Window] = []
    counts: Counter[Ops] = Counter()
    for place in first_size(graphs):
        nodes = calls(graphs[place].graph)
        for spot in (i for i, node in enumerate(nodes) if is_heavy(node)):
            for start, end in ((spot - before, spot + after) for before, after in REACHES):
                ops = real_ops(graphs[place], max(start, 0), end)
                if start >= 0 and end <= len(nodes) and len(ops) >= 2 and counts[ops] < 2:
                    cuts = list(window(graphs, place, start, end, "anchored"))
                    counts[ops] += len(cuts)
                    windows += cuts
    return windows


def typical_windows(corpus: dict[str, list[Graph]], merges: int = MAX_MERGES) -> list[Window]:
    """Return the typical n-grams of the whole corpus: at most two windows per case and n-gram."""
    owners = [(case, place) for case, graphs in corpus.items() for place in first_size(graphs)]
    grams = typical(fold([names(corpus[case][place]) for case, place in owners], merges))
    groups: dict[tuple[str, tuple[str, ...]], list[Window]] = defaultdict(list)
    for gram, places in grams.items():
        for spot in places:
            case, place = owners[spot.sequence]
            if len(gram) <= MAX_OPERATORS and len(groups[case, gram]) < 2:
                groups[case, gram] += window(corpus[case], place, spot.start, spot.end, "typical")
    return [item for group in groups.values() for item in group]


def first_size(graphs: Sequence[Graph]) -> list[int]:
    """Return the places of the graphs that were captured at the case's first size."""
    return [place for place, graph in enumerate(graphs) if graph.variant == graphs[0].variant]


def save_windows(windows: Sequence[Window], path: Path) -> None:
    """Write the windows as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([astuple(item) for item in windows]), encoding="utf-8")


def load_windows(path: Path) -> list[Window]:
    """Return the windows that :func:`save_windows` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Window(case, place, start, end, tuple(ops), *rest) for case, place, start, end, ops, *rest in rows]


def siblings(graphs: Sequence[Graph], origin: Window) -> Iterator[tuple[Graph, int, int]]:
    """Yield the same operators in the same place of the same case, at every size it was captured at."""
    base = graphs[origin.place]
    for graph in graphs:
        if graph.index == base.index and real_ops(graph, origin.start, origin.end) == origin.ops:
            yield graph, origin.start, origin.end


def around(graphs: Sequence[Graph], operators: Collection[str]) -> Iterator[Window]:
    """Yield short windows about every place of one of ``operators`` at a case's first size."""
    for place in first_size(graphs):
        named = names(graphs[place])
        for spot, name in enumerate(named):
            if name in operators:
                for before, after in ((1, 1), (0, 2), (2, 1), (1, 2), (0, 3), (2, 3), (3, 2), (4, 4)):
                    if spot >= before and spot + after <= len(named):
                        yield from window(graphs, place, spot - before, spot + after, "rare")


def matching(graphs: Sequence[Graph], sequences: Collection[tuple[str, ...]], limit: int = 3) -> Iterator[Window]:
    """Yield the places of the ``wanted`` sequences at a case's first size, at most ``limit`` of each."""
    prefixes = {ops[:length] for ops in sequences for length in range(1, len(ops) + 1)}
    counts: Counter[tuple[str, ...]] = Counter()
    for place in first_size(graphs):
        nodes = calls(graphs[place].graph)
        named = [None if is_metadata(node) else op_name(node) for node in nodes]
        for start, ops, end in _walk(named, prefixes):
            if ops in sequences and counts[ops] < limit:
                tails = (end + extra for extra in range(_metadata_after(named, end) + 1))
                match = next((w for tail in tails for w in window(graphs, place, start, tail, "matching")), None)
                if match is not None:
                    counts[ops] += 1
                    yield match


def _walk(named: Sequence[str | None], prefixes: Collection[Ops]) -> Iterator[tuple[int, Ops, int]]:
    """Yield every start, each known prefix that begins there, and the prefix's end."""
    for start, first in enumerate(named):
        ops: tuple[str, ...] = ()
        for end in range(start, len(named) if first is not None else start):
            name = named[end]
            if name is None:
                continue
            ops = (*ops, name)
            if ops not in prefixes:
                break
            yield start, ops, end + 1


def _metadata_after(named: Sequence[str | None], end: int) -> int:
    """Return the number of bookkeeping operators that follow ``end``."""
    count = 0
    while end + count < len(named) and named[end + count] is None:
        count += 1
    return count


def kernel_count(module: fx.GraphModule, inputs: Sequence[ValueStats]) -> int:
    """Return the number of kernels (extern calls included) after fusion. Raises any exception of the lowering."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode()
    with mode, torch.no_grad():
        values = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in inputs]
        lowered = make_fx(module, decomposition_table=select_decomp_table(), tracing_mode="real")(*values)
        graph: Any = GraphLowering(lowered, example_inputs=values)
        with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
            graph.run(*values)
            scheduler: Any = Scheduler(graph.operations)
    return sum(not isinstance(node, NopKernelSchedulerNode) for node in scheduler.nodes)


def fusible_runs(run: Sequence[fx.Node], values: dict[str, ValueStats]) -> list[tuple[int, int]]:
    """Return ranges of at least two operators of ``run`` that add no kernel, end to end.

    Each range grows until the next operator would raise the number of kernels. It is then cut back to the longest
    part that can be a graph of its own.
    """
    ranges, start = [], 0
    while start < len(run) - 1:
        end = last = start
        count: int | None = None
        while end < len(run):
            piece = cut(run[start : end + 1], values)
            wider = None if piece is None else _count(piece)
            if wider is not None and count is not None and wider > max(count, 1):
                break
            end, count = end + 1, wider if wider is not None else count
            last = end if piece is not None else last
        if last - start >= 2:
            ranges.append((start, last))
        start = max(last, start + 1)
    return ranges


def _count(piece: GraphPiece) -> int | None:
    try:
        return kernel_count(piece.module, piece.inputs)
    except Exception:  # not every operator has a lowering on fake inputs
        return None
