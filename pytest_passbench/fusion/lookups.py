"""Rules of operators that read elsewhere than they write: subscripts, counts, triangles, resizing."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pytest_passbench.fusion.ir import Affine, Call, Expression, Index, Kind, Unsupported, Value, kind_of
from pytest_passbench.fusion.lower import EXACT, Lowering, Rule, rules_into

RULES: dict[str, Rule] = {}
"""The rules by the operator's name."""

rule = rules_into(RULES)


def _whole(lowering: Lowering, value: Value, index: Index) -> Expression:
    return lowering.cast(lowering.read(value, index), Kind.WHOLE)


def _instead(index: Index, dims: Sequence[int], lowering: Lowering) -> Index:
    """Return an index that is 0 in some dimensions."""
    return tuple(Affine(0, lowering.zero) if d in dims else at for d, at in enumerate(index))


@rule("embedding", "index_select", exact=True)
def _rows(lowering: Lowering, call: Call, index: Index) -> Expression:
    a = call.arguments
    table, numbers = (a["weight"], a["indices"]) if call.name == "embedding" else (a["self"], a["index"])
    dim, rank = a.get("dim", 0) % len(table.sizes), len(numbers.sizes)
    at = _whole(lowering, numbers, index[dim : dim + rank])
    rest = (*index[:dim], Affine(0, lowering.zero), *index[dim + rank :])
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
    rest = [*index[: dims[0]], *[Affine(0, lowering.zero)] * len(dims), *index[dims[0] + rank :]]
    rest += [Affine(0, lowering.zero)] * (len(value.sizes) - len(rest))
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
    """Compare by how much an element lies to the right of the main diagonal with ``border``."""
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
