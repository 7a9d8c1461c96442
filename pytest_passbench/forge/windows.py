"""Windows: the fusible and the typical runs of a corpus, those around some operators, the places of a sequence.

Typical n-grams come from folding, as in byte-pair encoding: the most frequent pair of neighbours in the corpus
becomes one token, again and again. A token's expansion is an n-gram that the corpus repeats (Sennrich et al., 2016,
with operators instead of letters).
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.task import TensorSpec
from pytest_passbench.forge.clean import is_heavy
from pytest_passbench.forge.corpus import Corpus, Graph
from pytest_passbench.forge.decompose import GraphPiece, calls, connected, cut
from pytest_passbench.forge.normal_form import digest
from pytest_passbench.suite.opnames import is_metadata, is_random, op_name, operator_names

MAX_MERGES = 4000
MAX_RUNS, MAX_RUN_OPERATORS = 16, 24
"""The most distinct runs of one case that are searched for fusible parts, and the most operators of each."""
MAX_OPERATORS = 33
MIN_LENGTH, MAX_LENGTH = 4, 63
"""Bounds of a typical n-gram's length in operators."""
REACHES = tuple((before, after) for before in (0, 1, 2, 4) for after in (1, 2, 3, 4, 6, 8))
"""The runs around a heavy operator that are tried: how many operators before it, and how many from it on."""

Ops = tuple[str, ...]
Gram = Ops
Token = tuple[Gram, int, int]
Pair = tuple[Gram, Gram]
RunRanges = dict[str, list[tuple[int, int]]]
"""The fusible ranges (start, end) of a run, by the hash of the run's operators and shapes."""


@dataclass(frozen=True)
class Window:
    """Operators ``start`` to ``end - 1`` of one graph (``place`` in its case's list), and their names.

    ``outputs`` is the number of values that are used outside the window.
    """

    case: str
    place: int
    start: int
    end: int
    ops: Ops
    kind: str
    outputs: int = 1


def names(graph: Graph) -> list[str]:
    """Return the operator names of a graph, in order."""
    return [op_name(node) for node in calls(graph.graph)]


def real_ops(graph: Graph, start: int, end: int) -> Ops:
    """Return the names of a window's operators that work on elements, as a task's header lists them."""
    return tuple(operator_names(calls(graph.graph)[start:end]))


def window(graphs: Sequence[Graph], place: int, start: int, end: int, kind: str) -> Iterator[Window]:
    """Yield the window if it can be a subgraph: connected, nothing random, only tensors enter or leave it."""
    graph = graphs[place]
    nodes = calls(graph.graph)[start:end]
    if any(is_random(node) for node in nodes) or is_metadata(nodes[0]) or not connected(nodes):
        return
    piece = cut(nodes, graph.captured.values)
    if piece is not None:
        outputs = sum(1 for node in piece.module.graph.nodes if node.op == "output" for _ in node.args[0])
        yield Window(graph.case, place, start, end, real_ops(graph, start, end), kind, outputs)


def fusible(graphs: Sequence[Graph], ranges: RunRanges | None = None) -> list[Window]:
    """Return the fusible runs of a case's graphs at its first size, and the runs around a heavy operator.

    A fused kernel can compute a convolution or an attention together with its neighbours: each sequence around one is
    taken at most twice. Equal fusible runs are taken once. ``ranges`` has the fusible ranges of runs that were
    searched before, and gets those of the runs that are searched now.
    """
    windows: list[Window] = []
    ranges = {} if ranges is None else ranges
    keys: set[str] = set()
    for place in first_size(graphs):
        graph = graphs[place]
        position = {node: i for i, node in enumerate(calls(graph.graph))}
        groups = itertools.groupby(position, is_heavy)
        for run in (list(nodes) for heavy, nodes in groups if not heavy):
            stats = [(op_name(node), graph.captured.values.get(node.name)) for node in run]
            key = digest(f"{name}{value and value.shape}" for name, value in stats)
            if key in keys or len(run) < 2 or len(keys) >= MAX_RUNS:
                continue
            keys.add(key)
            if key not in ranges:
                ranges[key] = fusible_runs(run[:MAX_RUN_OPERATORS], graph.captured.values)
            for start, end in ranges[key]:
                first = position[run[start]]
                windows += window(graphs, place, first, first + end - start, "fusible")
    return [*windows, *about(graphs, is_heavy, REACHES, "anchored", 2)]


def about(
    graphs: Sequence[Graph],
    is_centre: Callable[[fx.Node], bool],
    reaches: Sequence[tuple[int, int]],
    kind: str,
    limit: float = math.inf,
) -> Iterator[Window]:
    """Yield the runs around some operators at a case's first size, at most ``limit`` windows for each sequence.

    ``reaches`` are pairs of numbers: the operators before such an operator, and the operators from it on.
    """
    counts: Counter[Ops] = Counter()
    for place in first_size(graphs):
        nodes = calls(graphs[place].graph)
        for spot in (i for i, node in enumerate(nodes) if is_centre(node)):
            for start, end in ((spot - before, spot + after) for before, after in reaches):
                ops = real_ops(graphs[place], max(start, 0), end)
                if start >= 0 and end <= len(nodes) and len(ops) >= 2 and counts[ops] < limit:
                    cuts = list(window(graphs, place, start, end, kind))
                    counts[ops] += len(cuts)
                    yield from cuts


@dataclass(frozen=True)
class Occurrence:
    """A place of an n-gram: operators ``start`` to ``end - 1`` of the sequence with number ``sequence``."""

    sequence: int
    start: int
    end: int


def fold(sequences: Sequence[Sequence[str]], merges: int) -> dict[Gram, list[Occurrence]]:
    """Return every n-gram that becomes a token, with all its places, in the order in which the tokens are made.

    Folding ends after ``merges`` tokens, or when no pair occurs twice. N-grams grow up to
    :data:`MAX_LENGTH` operators.
    """
    tokens: list[list[Token]] = [[((name,), i, i + 1) for i, name in enumerate(names)] for names in sequences]
    grams: dict[Gram, list[Occurrence]] = {}
    counts: Counter[Pair] = Counter()
    for sequence in tokens:
        counts.update(_pairs(sequence))
    while counts and len(grams) < merges:
        pair, count = max(counts.items(), key=lambda item: (item[1], -len(item[0][0] + item[0][1]), item[0]))
        if count < 2:
            break
        grams[pair[0] + pair[1]] = _merge(tokens, pair, counts)
    return grams


def typical(grams: dict[Gram, list[Occurrence]]) -> dict[Gram, list[Occurrence]]:
    """Return the n-grams that are long enough to be typical."""
    return {gram: places for gram, places in grams.items() if len(gram) >= MIN_LENGTH}


def _pairs(tokens: Sequence[Token]) -> Counter[Pair]:
    pairs = ((a[0], b[0]) for a, b in pairwise(tokens))
    return Counter(pair for pair in pairs if len(pair[0]) + len(pair[1]) <= MAX_LENGTH)


def _merge(sequences: list[list[Token]], pair: Pair, counts: Counter[Pair]) -> list[Occurrence]:
    """Fold ``pair`` everywhere, keep ``counts`` right, and return the places of the new token."""
    places = []
    for number, tokens in enumerate(sequences):
        if not any(a[0] == pair[0] and b[0] == pair[1] for a, b in pairwise(tokens)):
            continue
        counts.subtract(_pairs(tokens))
        folded = _fold_one(tokens, pair)
        places += [Occurrence(number, start, end) for gram, start, end in folded if gram == pair[0] + pair[1]]
        sequences[number] = folded
        counts.update(_pairs(folded))
    counts.pop(pair, None)
    for empty in [key for key, count in counts.items() if count <= 0]:
        del counts[empty]
    return places


def _fold_one(tokens: Sequence[Token], pair: Pair) -> list[Token]:
    folded: list[Token] = []
    for token in tokens:
        if folded and folded[-1][0] == pair[0] and token[0] == pair[1]:
            folded[-1] = (pair[0] + pair[1], folded[-1][1], token[2])
        else:
            folded.append(token)
    return folded


def typical_windows(corpus: Corpus, merges: int = MAX_MERGES) -> list[Window]:
    """Return the typical n-grams of the whole corpus: at most two windows per case and n-gram."""
    owners = [(case, place) for case, graphs in corpus.items() for place in first_size(graphs)]
    grams = typical(fold([names(corpus[case][place]) for case, place in owners], merges))
    groups: dict[tuple[str, Ops], list[Window]] = defaultdict(list)
    for gram, places in grams.items():
        for spot in places:
            case, place = owners[spot.sequence]
            if len(gram) <= MAX_OPERATORS and len(groups[case, gram]) < 2:
                groups[case, gram] += window(corpus[case], place, spot.start, spot.end, "typical")
    return [item for group in groups.values() for item in group]


def first_size(graphs: Sequence[Graph]) -> list[int]:
    """Return the places of the graphs that were captured at the case's first size."""
    return [place for place, graph in enumerate(graphs) if graph.variant == graphs[0].variant]


def siblings(graphs: Sequence[Graph], origin: Window) -> Iterator[Graph]:
    """Yield the graphs of every size that have the same operators in the same place."""
    for graph in graphs:
        same_graph = graph.index == graphs[origin.place].index
        if same_graph and real_ops(graph, origin.start, origin.end) == origin.ops:
            yield graph


def matching(graphs: Sequence[Graph], sequences: Collection[Ops], limit: int = 3) -> Iterator[Window]:
    """Yield the places of these sequences at a case's first size, at most ``limit`` of each.

    Bookkeeping operators may stand between and behind the operators of a sequence.
    """
    prefixes = {ops[:length] for ops in sequences for length in range(1, len(ops) + 1)}
    counts: Counter[Ops] = Counter()
    for place in first_size(graphs):
        named = [None if is_metadata(node) else op_name(node) for node in calls(graphs[place].graph)]
        for start in (i for i, name in enumerate(named) if name is not None):
            ops: Ops = ()
            last: Ops = ()
            for end in range(start, len(named)):
                name = named[end]
                ops = ops if name is None else (*ops, name)
                if ops not in prefixes:
                    break
                if ops in sequences and ops != last and counts[ops] < limit:
                    for match in window(graphs, place, start, end + 1, "matching"):
                        counts[ops] += 1
                        last = ops
                        yield match


def _kernel_count(piece: GraphPiece) -> int | None:
    """Return the number of kernels (extern calls included) after fusion, or None if an operator has no lowering."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import NopKernelSchedulerNode, Scheduler
    from torch._inductor.virtualized import V
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    mode = FakeTensorMode()
    try:
        with mode, torch.no_grad():
            values = [torch.empty(s.shape, dtype=getattr(torch, s.dtype)) for s in piece.inputs]
            lowered = make_fx(piece.module, decomposition_table=select_decomp_table(), tracing_mode="real")(*values)
            graph: Any = GraphLowering(lowered, example_inputs=values)
            with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(DebugContext()):
                graph.run(*values)
                scheduler: Any = Scheduler(graph.operations)
    except Exception:  # not every operator has a lowering on fake inputs
        return None
    return sum(not isinstance(node, NopKernelSchedulerNode) for node in scheduler.nodes)


def fusible_runs(run: Sequence[fx.Node], values: dict[str, TensorSpec]) -> list[tuple[int, int]]:
    """Return the ranges (start, end) of ``run`` that fuse into no more kernels than their first operator, in order.

    A range has two operators or more. It grows until the next operator would raise the number of kernels. It is
    then cut back to the longest part that can be a graph of its own.
    """
    ranges, start = [], 0
    while start < len(run) - 1:
        end = last = start
        count: int | None = None
        while end < len(run):
            piece = cut(run[start : end + 1], values)
            wider = None if piece is None else _kernel_count(piece)
            if wider is not None and count is not None and wider > max(count, 1):
                break
            end, count = end + 1, wider if wider is not None else count
            last = end if piece is not None else last
        if last - start >= 2:
            ranges.append((start, last))
        start = max(last, start + 1)
    return ranges
