"""Rules of operators that read at other places than they write: subscripts, counts, triangles, resizing, scatters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from pytest_passbench.fusion.ir import Affine, Call, Expression, Index, Kind, Loops, Unsupported, Value, kind_of
from pytest_passbench.fusion.lower import EXACT, Lowering, rule
from pytest_passbench.fusion.windows import over_window

MOST_PLACES, MOST_BINS = 8, 32
"""The most places along its dimension that a scatter may fill, and the most bins of a histogram. For each of them a
kernel reads all indices or elements: with more of them it is slower than eager (figures: benchmarks/LOG.md)."""
COUNTED_BY_HALVES = 256
"""The greatest number up to which bfloat16 holds every whole number: eager counts no further in it."""


def _whole(lowering: Lowering, value: Value, index: Index) -> Expression:
    return lowering.cast(lowering.read(value, index), Kind.WHOLE)


def _instead(index: Index, dims: Sequence[int], lowering: Lowering) -> Index:
    """Return an index that is 0 in some dimensions."""
    return tuple(lowering.zero if d in dims else at for d, at in enumerate(index))


@rule("embedding", "index_select", exact=True)
def _rows(lowering: Lowering, call: Call, index: Index) -> Expression:
    a = call.arguments
    table, numbers = (a["weight"], a["indices"]) if call.name == "embedding" else (a["self"], a["index"])
    dim, rank = a.get("dim", 0) % len(table.sizes), len(numbers.sizes)
    at = _whole(lowering, numbers, index[dim : dim + rank])
    rest = (*index[:dim], lowering.zero, *index[dim + rank :])
    return lowering.read(table, rest, ((at, table.strides[dim]),))


@rule("gather", exact=True)
def _gather(lowering: Lowering, call: Call, index: Index) -> Expression:
    value, dim = call.arguments["self"], call.arguments["dim"] % len(index)
    at = _whole(lowering, call.arguments["index"], index)
    return lowering.read(value, _instead(index, [dim], lowering), ((at, value.strides[dim]),))


@rule("index", exact=True)
def _index(lowering: Lowering, call: Call, index: Index) -> Expression:
    value, subscripts = call.arguments["self"], call.arguments["indices"]
    dims = [d for d, numbers in enumerate(subscripts) if numbers is not None]
    if kind_of(subscripts[dims[0]].dtype) != Kind.WHOLE or dims != list(range(dims[0], dims[-1] + 1)):
        raise Unsupported("a subscript with a mask, or with tensors apart")
    rank = max(len(subscripts[d].sizes) for d in dims)
    place = index[dims[0] : dims[0] + rank]
    rest = [*index[: dims[0]], *[lowering.zero] * len(dims), *index[dims[0] + rank :]]
    rest += [lowering.zero] * (len(value.sizes) - len(rest))
    lookups = []
    for d in dims:
        at = lowering.cast(lowering.operand(subscripts[d], place), Kind.WHOLE)
        at = lowering.apply("({0} < 0 ? {0} + {1} : {0})", at, lowering.integer(value.sizes[d]), kind=Kind.WHOLE)
        lookups.append((at, value.strides[d]))
    return lowering.read(value, tuple(rest), tuple(lookups))


@rule("arange")
def _arange(lowering: Lowering, call: Call, index: Index) -> Expression:
    start, step = call.arguments.get("start", 0), call.arguments.get("step", 1)
    if not isinstance(start, int) or not isinstance(step, int):
        raise Unsupported("arange of floats")
    at = Affine(start + step * index[0].offset, tuple(step * more for more in index[0].steps))
    return lowering.cast(lowering.count(at), kind_of(call.results[0].dtype))


def _diagonal(lowering: Lowering, index: Index, sign: str, border: int) -> Expression:
    """Return the comparison of an element's distance to the right of the main diagonal with ``border``."""
    row, column = index[-2:]
    steps = tuple(b - a for a, b in zip(row.steps, column.steps, strict=True))
    at = Affine(column.offset - row.offset - border, steps)
    turns = (size - 1 for size in lowering.loops.sizes)
    furthest = abs(at.offset) + sum(abs(step) * turn for step, turn in zip(steps, turns, strict=True))
    kind = Kind.REAL if furthest <= EXACT else Kind.WHOLE  # floats have twice the lanes
    return lowering.compare(sign, lowering.count(at, kind), lowering.cast(lowering.integer(0), kind))


@rule("tril", "triu", exact=True)
def _triangle(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = lowering.read(call.arguments["self"], index)
    inside = _diagonal(lowering, index, "<=" if call.name == "tril" else ">=", call.arguments["diagonal"])
    return lowering.choose(inside, x, lowering.cast(lowering.integer(0), x.kind))


@rule("eye")
def _eye(lowering: Lowering, call: Call, index: Index) -> Expression:
    return lowering.cast(_diagonal(lowering, index, "==", 0), kind_of(call.results[0].dtype))


@rule("flip", exact=True)
def _flip(lowering: Lowering, call: Call, index: Index) -> Expression:
    value, dims = call.arguments["self"], {d % len(index) for d in call.arguments["dims"]}
    back = (Affine(value.sizes[d] - 1 - at.offset, tuple(-step for step in at.steps)) for d, at in enumerate(index))
    return lowering.read(value, tuple(at if d in dims else index[d] for d, at in enumerate(back)))


@rule("upsample_bilinear2d")
def _bilinear(lowering: Lowering, call: Call, index: Index) -> Expression:
    value, result = call.arguments["self"], call.results[0]
    if value.dtype != torch.float32:
        raise Unsupported("bilinear resizing in half precision")
    lookups, weights = [], []
    for d in (2, 3):
        size, new, corners = value.sizes[d], result.sizes[d], call.arguments["align_corners"]
        stated = (call.arguments.get("scales_h"), call.arguments.get("scales_w"))[d - 2]
        scale = 1 / stated if stated and not corners else size / new
        scale = (size - 1) / max(new - 1, 1) if corners else scale
        place = lowering.real(lowering.count(index[d]))
        text = "{0} * {1}" if corners else "greater(({0} + 0.5f) * {1} - 0.5f, pb::vec{{}})"
        at = lowering.apply(text, place, scale)
        low = lowering.apply("lesser(__builtin_convertvector({0}, whole), {1})", at, lowering.integer(size - 1),
                             kind=Kind.WHOLE)  # fmt: skip
        high = lowering.apply("lesser({0} + 1, {1})", low, lowering.integer(size - 1), kind=Kind.WHOLE)
        part = lowering.apply("{0} - {1}", at, lowering.real(low))
        lookups.append(((low, value.strides[d]), (high, value.strides[d])))
        weights.append((lowering.apply("1 - {0}", part), part))
    start = _instead(index, (2, 3), lowering)
    rows = []
    for row in lookups[0]:
        left, right = (lowering.read(value, start, (row, column)) for column in lookups[1])
        rows.append(lowering.apply("{0} * {1} + {2} * {3}", weights[1][0], left, weights[1][1], right))
    return lowering.apply("{0} * {1} + {2} * {3}", weights[0][0], rows[0], weights[0][1], rows[1])


def _by_index(call: Call) -> Loops:
    """Return the loops of a scatter: those over its result, and one over the indices along its dimension."""
    sizes, numbers = call.arguments["self"].sizes, call.arguments["index"].sizes
    if not sizes or len(sizes) != len(numbers):
        raise Unsupported("a scatter into a tensor without dimensions")
    return over_window(call, [numbers[call.arguments["dim"]]])


@rule("scatter", loops=_by_index, exact=True)
def _scatter(lowering: Lowering, call: Call, _index: Index) -> Expression:
    """Return the value that the last index of an element writes there; the old value if no index has it."""
    a, home = call.arguments, lowering.home
    value, numbers, dim = a["self"], a["index"], a["dim"] % len(home)
    if "reduce" in a or any(size != numbers.sizes[d] for d, size in enumerate(value.sizes) if d != dim):
        raise Unsupported("a scatter that computes, or by an index that is smaller than the tensor")
    if value.sizes[dim] > MOST_PLACES:
        raise Unsupported(f"a scatter to more than {MOST_PLACES} places")
    turn = Affine(0, (*[0] * len(home), int(numbers.sizes[dim] > 1)))
    at = _whole(lowering, numbers, (*home[:dim], turn, *home[dim + 1 :]))
    hit = lowering.compare("==", at, lowering.count(home[dim]))
    x = lowering.read(value, home)
    turns = lowering.count(Affine(1, turn.steps), Kind.REAL) if "src" in a else lowering.number(1)
    last = lowering.reduce("greatest", lowering.choose(hit, turns, lowering.number(0)))
    if "src" in a:
        first = _instead(home, [dim], lowering)
        place = lowering.cast(lowering.apply("greater({0} - 1, pb::vec{{}})", last), Kind.WHOLE)
        new = lowering.read(a["src"], first, ((place, a["src"].strides[dim]),))
    else:
        number = {Kind.MASK: bool, Kind.WHOLE: int}.get(x.kind, float)(a["value"])
        new = lowering.operand(number, (), call.results[0].dtype)
    return lowering.choose(lowering.compare(">", last, lowering.number(0)), new, x)


def _by_element(call: Call) -> Loops:
    """Return the loops of a histogram: one over its bins, and those over the elements that it counts."""
    return over_window(call, call.arguments["self"].sizes or (1,))


@rule("histc", loops=_by_element)
def _histogram(lowering: Lowering, call: Call, _index: Index) -> Expression:
    """Return how many elements lie in a bin, by eager's arithmetic: the last bin has its upper edge too."""
    value, bins = call.arguments["self"], call.arguments["bins"]
    low, high = call.arguments["min"], call.arguments["max"]
    if bins > MOST_BINS or low >= high:
        raise Unsupported(f"a histogram of more than {MOST_BINS} bins, or between edges that are not stated")
    if math.prod(value.sizes) > (EXACT if value.dtype == torch.float32 else COUNTED_BY_HALVES):
        raise Unsupported("a histogram that counts further than its dtype")
    rank = len(value.sizes)
    steps = (tuple(int(loop == 1 + d and size > 1) for loop in range(1 + rank)) for d, size in enumerate(value.sizes))
    x = lowering.real(lowering.read(value, tuple(Affine(0, step) for step in steps)))
    edges = [lowering.operand(float(edge), (), value.dtype) for edge in (low, high)]
    inside = lowering.apply("(({0} >= {1}) & ({0} <= {2}))", x, *edges, kind=Kind.MASK)
    width = lowering.rounded(lowering.apply("{0} - {1}", edges[1], edges[0]), value.dtype)
    place = lowering.rounded(lowering.apply("{0} - {1}", x, edges[0]), value.dtype)
    place = lowering.rounded(lowering.apply("{0} * {1}", place, lowering.size(bins)), value.dtype)
    place = lowering.rounded(lowering.apply("{0} / {1}", place, width), value.dtype)
    place = lowering.apply("lesser({0}, {1} - 0.5f)", place, lowering.size(bins))
    bin_number = lowering.count(lowering.home[0], Kind.REAL)
    inside = lowering.apply("({0} & ({1} >= {2}) & ({1} < {2} + 1))", inside, place, bin_number, kind=Kind.MASK)
    return lowering.reduce("sum", lowering.real(inside))
