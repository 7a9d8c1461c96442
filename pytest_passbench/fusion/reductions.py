"""Rules of operators that reduce: sums along dimensions, softmax, norms. Sums are in float and rounded once."""

from __future__ import annotations

import math

import torch

from pytest_passbench.fusion.ir import (
    HALVES,
    SQUARED_DISTANCE,
    Affine,
    Call,
    Expression,
    Index,
    Kind,
    Loops,
    Unsupported,
    Value,
    c_type,
    kind_of,
)
from pytest_passbench.fusion.lower import EXACT, Lowering, Needed, double_text, rule


def along(call: Call) -> Loops:
    """Return the loops of a reduction along ``dim``: all dimensions if none is stated."""
    sizes, dim = call.arguments["self"].sizes, call.arguments.get("dim")
    dims = [dim] if isinstance(dim, int) else dim or range(len(sizes))
    return Loops(sizes or (1,), frozenset(d % len(sizes) for d in dims if sizes))


def along_shape(call: Call) -> Loops:
    """Return the loops of a norm over the last dimensions."""
    sizes, last = call.arguments["input"].sizes, len(call.arguments["normalized_shape"])
    return Loops(sizes, frozenset(range(len(sizes) - last, len(sizes))))


def _input(lowering: Lowering, item: Value) -> Expression:
    return lowering.real(lowering.read(item, lowering.home))


def _count(lowering: Lowering) -> int:
    return math.prod(lowering.loops.sizes[d] for d in lowering.loops.reduced)


def _mean(lowering: Lowering, x: Expression) -> Expression:
    return lowering.apply("{0} / {1}", lowering.reduce("sum", x), lowering.size(_count(lowering)))


def _squares(lowering: Lowering, x: Expression, mean: Expression) -> Expression:
    """Return the sum of the squared distances to a mean."""
    return lowering.reduce("sum", lowering.apply(SQUARED_DISTANCE, x, mean, kind=x.kind))


def _moments(lowering: Lowering, x: Expression) -> tuple[Expression, Expression]:
    """Return the mean and the variance of a row."""
    mean = _mean(lowering, x)
    return mean, lowering.apply("{0} / {1}", _squares(lowering, x, mean), lowering.size(_count(lowering)))


def _moments_in_order(lowering: Lowering, x: Expression, dtype: torch.dtype) -> tuple[Expression, Expression]:
    """Return the mean and the variance of a row of a dtype. In half precision they have the bits of eager's."""
    if dtype not in (*HALVES, lowering.generic):
        return _moments(lowering, x)
    mean = lowering.reduce(f"mean {c_type(dtype, lowering.generic)}", x)
    squares = lowering.reduce("squares", lowering.apply(SQUARED_DISTANCE, x, mean), mean)
    return mean, lowering.apply("{0} / {1}", squares, lowering.size(_count(lowering)))


@rule("sum", "mean", "var", "std", loops=along)
def _sum(lowering: Lowering, call: Call, _index: Index) -> Expression:
    value, dtype = call.arguments["self"], call.results[0].dtype
    x = lowering.read(value, lowering.home)
    if kind_of(dtype) == Kind.WHOLE:
        return lowering.reduce("sum", lowering.cast(x, Kind.WHOLE))
    if value.dtype != dtype and dtype != torch.float32:
        raise Unsupported(f"{call.name} of {value.dtype} in {dtype}".replace("torch.", ""))
    if call.name in ("sum", "mean"):
        x = lowering.real(x)
        total = lowering.reduce("total", x)  # halves are added as float32 by eager too
        return total if call.name == "sum" else lowering.apply("{0} / {1}", total, lowering.size(_count(lowering)))
    correction = call.arguments["correction"]
    count = _count(lowering)
    sizes = count, max(count - (1 if correction is None else correction), 0)
    terms, divisor = (lowering.cast(lowering.integer(size), Kind.DOUBLE) for size in sizes)
    x = lowering.cast(x, Kind.DOUBLE)  # eager computes in doubles too, and rounds once
    squares = _squares(lowering, x, lowering.apply("{0} / {1}", lowering.reduce("sum", x), terms, kind=x.kind))
    variance = lowering.apply("{0} / {1}", squares, divisor, kind=x.kind)
    if call.name == "std":
        variance = lowering.apply("each({0}, __builtin_sqrt)", variance, kind=x.kind)
    return lowering.cast(variance, kind_of(dtype))


@rule("linalg_vector_norm", loops=along)
def _vector_norm(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = _input(lowering, call.arguments["self"])
    if call.arguments["ord"] == 1:
        return lowering.reduce("sum", lowering.apply("pb::abs({0})", x))
    if call.arguments["ord"] != 2:
        raise Unsupported(f"the norm of order {call.arguments['ord']}")
    value, reduced = call.arguments["self"], lowering.loops.reduced
    # eager adds the squares one by one in float16, and if they lie apart. A row of results shows how it rounded sums
    apart = not any(step == 1 and value.sizes[d] > 1 for d, step in enumerate(value.strides) if d in reduced)
    in_turn = "chain" if apart or value.dtype == torch.float16 else ""
    how = in_turn or ("chain T" if value.dtype == lowering.generic else "sum")
    return lowering.apply("pb::sqrt({0})", lowering.reduce(how, lowering.apply("{0} * {0}", x)))


@rule("amax", "amin", "max", "min", loops=along, exact=True)
def _greatest(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = lowering.read(call.arguments["self"], lowering.home)
    if x.kind == Kind.MASK:
        raise Unsupported(f"{call.name} of bools")
    if call.name in ("amax", "max"):
        return lowering.reduce("greatest", x)
    return lowering.apply("-{0}", lowering.reduce("greatest", lowering.apply("-{0}", x, kind=x.kind)), kind=x.kind)


@rule("argmax", "argmin", loops=along)
def _place(lowering: Lowering, call: Call, _index: Index) -> Expression:
    """Return the index of the greatest element: the first of equal ones, or of NaNs if there are any."""
    x = lowering.read(call.arguments["self"], lowering.home)
    if x.kind == Kind.MASK:
        raise Unsupported(f"{call.name} of bools")
    x = lowering.apply("-{0}", x, kind=x.kind) if call.name == "argmin" else x
    steps, count = list(lowering.zero.steps), 1
    for d in sorted(lowering.loops.reduced, reverse=True):
        steps[d], count = count * (lowering.loops.sizes[d] > 1), count * lowering.loops.sizes[d]
    kind = Kind.REAL if count <= EXACT else Kind.WHOLE  # floats have twice the lanes
    before = lowering.apply("-{0}", lowering.count(Affine(0, tuple(steps)), kind), kind=kind)
    none = lowering.size(-count) if kind == Kind.REAL else lowering.integer(-count)
    hit = lowering.compare("==", x, lowering.reduce("greatest", x))
    hit = lowering.apply("({0} | {1})", hit, lowering.compare("!=", x, x), kind=Kind.MASK)
    first = lowering.reduce("greatest", lowering.choose(hit, before, none))
    return lowering.apply("-{0}", lowering.cast(first, Kind.WHOLE), kind=Kind.WHOLE)


def _over_losses(call: Call) -> Loops:
    sizes = call.arguments["self"].sizes
    return Loops(sizes, frozenset(range(len(sizes))) if call.arguments["reduction"] else frozenset())


@rule("mse_loss", loops=_over_losses)
def _squared_error(lowering: Lowering, call: Call, index: Index) -> Expression:
    x, y = (lowering.operand(call.arguments[name], index or lowering.home) for name in ("self", "target"))
    square = lowering.apply(SQUARED_DISTANCE, x, y)
    if not call.arguments["reduction"]:
        return square
    square = lowering.rounded(square, call.results[0].dtype)  # eager stores it
    return _mean(lowering, square) if call.arguments["reduction"] == 1 else lowering.reduce("sum", square)


@rule("any", "all", loops=along)
def _any(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = lowering.cast(lowering.read(call.arguments["self"], lowering.home), Kind.MASK)
    x = lowering.apply("~{0}", x, kind=Kind.MASK) if call.name == "all" else x
    return lowering.compare("!=" if call.name == "any" else "==", lowering.reduce("greatest", lowering.real(x)),
                            lowering.number(0))  # fmt: skip


def _order(lowering: Lowering, call: Call) -> str:
    """Return the order in which a row's exponentials are added: eager's, which shows once results are rounded."""
    value, dim = call.arguments["self"], call.arguments["dim"]
    if call.name != "_softmax" or not value.sizes or dim % len(value.sizes) != len(value.sizes) - 1:
        return "sum"
    return "lanes T" if value.dtype == lowering.generic else "lanes true" if value.dtype in HALVES else "lanes false"


@rule("_softmax", "_log_softmax", loops=along)
def _softmax(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = _input(lowering, call.arguments["self"])
    distance = lowering.apply("{0} - {1}", x, lowering.reduce("greatest number", x))
    power = lowering.apply("pb::exp_nonpositive({0})", distance)
    total = lowering.reduce(_order(lowering, call), power)
    if call.name == "_log_softmax":
        return lowering.apply("{0} - pb::log({1})", distance, total)
    return lowering.apply("{0} * {1}", power, lowering.apply("1 / {0}", total))  # as eager does, once a row


def _parameters(lowering: Lowering, call: Call, index: Index, *names: str) -> list[Expression]:
    """Return parameters of a norm, with the default of each that is left out."""
    defaults = {"running_mean": 0.0, "running_var": 1.0, "weight": 1.0, "bias": 0.0}
    stated = ((call.arguments[name], defaults[name]) for name in names)
    return [lowering.operand(default if item is None else item, index) for item, default in stated]


@rule("native_layer_norm", loops=along_shape)
def _layer_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = _input(lowering, call.arguments["input"])
    mean, variance = _moments_in_order(lowering, x, call.arguments["input"].dtype)
    scale = lowering.apply("1 / pb::sqrt({0} + {1})", variance, call.arguments["eps"])
    y = lowering.apply("fused({0}, {1}, -{2} * {1})", x, scale, mean)
    weight, bias = _parameters(lowering, call, index, "weight", "bias")
    return lowering.apply("fused({0}, {1}, {2})", y, weight, bias)


def by_channel(call: Call) -> Loops:
    """Return the loops of batch norm, which reduce if the statistics are those of the batch."""
    sizes = call.arguments["input"].sizes
    training = call.arguments.get("training", False)
    return Loops(sizes, frozenset(d for d in range(len(sizes)) if d != 1) if training else frozenset())


@rule("native_batch_norm", "_native_batch_norm_legit_no_training", "_native_batch_norm_legit",
      "_batch_norm_no_update", loops=by_channel)  # fmt: skip
def _batch_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    a = call.arguments
    if a.get("training", False) and a.get("running_mean") is not None:
        raise Unsupported("a batch norm that updates its statistics")
    weight, bias = _parameters(lowering, call, index[1:2], "weight", "bias")
    x = lowering.read(a["input"], index)
    if a.get("training", False):
        mean = _mean(lowering, x)
        dtype = (a["weight"] or a["input"]).dtype  # eager stores mean and inverse in the dtype of the parameters
        terms = _squares(lowering, x, mean), lowering.size(_count(lowering))
        ratio = lowering.apply("{0} / {1}", *(lowering.bf16_rounded(term, dtype) for term in terms))
        variance = lowering.bf16_rounded(ratio, dtype)
        inverse = lowering.apply("1 / pb::sqrt({0} + {1})", variance, a["eps"])
        mean, inverse = lowering.rounded(mean, dtype), lowering.rounded(inverse, dtype)
        scale = lowering.apply("{0} * {1}", inverse, weight)
    else:
        mean, variance = _parameters(lowering, call, index[1:2], "running_mean", "running_var")
        scale = lowering.apply("1 / pb::sqrt({0} + {1}) * {2}", variance, a["eps"], weight)
    # eager's kernel for float16 has no fused multiplication here
    texts = {torch.float16: "{0} - {1} * {2}", lowering.generic: "shift<T>({0}, {1}, {2})"}
    offset = lowering.apply(texts.get(a["input"].dtype, "fused(-{1}, {2}, {0})"), bias, mean, scale)
    return lowering.apply("fused({0}, {1}, {2})", x, scale, offset)


def by_row_of(call: Call) -> Loops:
    """Return the loops of a weight's norm over all dimensions but one."""
    sizes = call.arguments["v"].sizes
    return Loops(sizes, frozenset(d for d in range(len(sizes)) if d != call.arguments["dim"] % len(sizes)))


@rule("_weight_norm_interface", loops=by_row_of)
def _weight_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = _input(lowering, call.arguments["v"])
    norm = lowering.apply("pb::sqrt({0})", lowering.reduce("sum", lowering.apply("{0} * {0}", x)))
    length = lowering.operand(call.arguments["g"], index)
    return lowering.apply("{0} * ({1} / {2})", x, length, norm)


@rule("cumsum", loops=along)
def _running_sum(lowering: Lowering, call: Call, index: Index) -> Expression:
    if index != lowering.home:
        raise Needed(call.results[0])
    kind = kind_of(call.results[0].dtype)
    return lowering.running(lowering.cast(lowering.read(call.arguments["self"], lowering.home), kind))


def by_group(call: Call) -> Loops:
    """Return the loops of group norm: examples, groups, a group's channels, and places."""
    value, groups = call.arguments["input"], call.arguments["group"]
    each = value.sizes[1] // groups
    places = tuple((d, 1) for d in range(2, len(value.sizes)))
    sizes = (value.sizes[0], groups, each, *value.sizes[2:])
    return Loops(sizes, frozenset(range(2, len(sizes))), ((0, 1), (1, each), (1, 1), *places))


@rule("native_group_norm", loops=by_group)
def _group_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = _input(lowering, call.arguments["input"])
    mean, variance = _moments_in_order(lowering, x, call.arguments["input"].dtype)
    # eager adds eps and takes the root in double
    inverse = lowering.apply(f"inverse_root({{0}}, {double_text(call.arguments['eps'])})", variance)
    if call.arguments["weight"] is None and call.arguments["bias"] is None:
        return lowering.apply("({0} - {1}) * {2}", x, mean, inverse)
    weight, bias = _parameters(lowering, call, index[1:2], "weight", "bias")
    scale = lowering.apply("{0} * {1}", inverse, weight)
    offset = lowering.apply("fused(-{1}, {2}, {0})", bias, mean, scale)
    return lowering.apply("fused({0}, {1}, {2})", x, scale, offset)
