"""Rules of operators that reduce: sums along dimensions, softmax, norms. Sums are in float and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pytest_passbench.fusion.elements import RULES as ELEMENTS
from pytest_passbench.fusion.ir import Affine, Call, Expression, Index, Loops, Unsupported, Value
from pytest_passbench.fusion.lower import Lowering, Rule, broadcast

RULES: dict[str, Rule] = dict(ELEMENTS)
"""All rules by the operator's name."""

_Element = Callable[[Lowering, Call, Index], Expression]


def rule(*names: str, loops: Callable[[Call], Loops], exact: bool = False) -> Callable[[_Element], _Element]:
    """Return a decorator that enters a function as the rule of operators that reduce over ``loops``."""

    def enter(element: _Element) -> _Element:
        RULES.update({name: Rule(element, loops, exact) for name in names})
        return element

    return enter


def along(call: Call) -> Loops:
    """Return the loops of a reduction along ``dim``: all dimensions if none is stated."""
    sizes, dim = call.arguments["self"].sizes, call.arguments.get("dim")
    dims = [dim] if isinstance(dim, int) else dim or range(len(sizes))
    return Loops(sizes, frozenset(d % len(sizes) for d in dims))


def along_shape(call: Call) -> Loops:
    """Return the loops of a norm over the last dimensions."""
    sizes, last = call.arguments["input"].sizes, len(call.arguments["normalized_shape"])
    return Loops(sizes, frozenset(range(len(sizes) - last, len(sizes))))


def _input(lowering: Lowering, item: Value) -> Expression:
    return lowering.real(lowering.read(item, lowering.home))


def _count(lowering: Lowering) -> int:
    return math.prod(lowering.loops.sizes[d] for d in lowering.loops.reduced)


def _mean(lowering: Lowering, x: Expression) -> Expression:
    return lowering.apply("{0} / {1}", lowering.reduce("sum", x), _count(lowering))


def _squares(lowering: Lowering, x: Expression, mean: Expression) -> Expression:
    """Return the sum of the squared distances to a mean."""
    return lowering.reduce("sum", lowering.apply("({0} - {1}) * ({0} - {1})", x, mean))


@rule("sum", "mean", "var", loops=along)
def _sum(lowering: Lowering, call: Call, _index: Index) -> Expression:
    value, dtype = call.arguments["self"], call.results[0].dtype
    if value.dtype != dtype and dtype != torch.float32:
        raise Unsupported(f"{call.name} of {value.dtype} in {dtype}")
    x = _input(lowering, value)
    if call.name != "var":
        return lowering.reduce("sum", x) if call.name == "sum" else _mean(lowering, x)
    correction = call.arguments["correction"]
    divisor = max(_count(lowering) - (1 if correction is None else correction), 0)
    return lowering.apply("{0} / {1}", _squares(lowering, x, _mean(lowering, x)), divisor)


@rule("amax", "amin", loops=along, exact=True)
def _greatest(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = _input(lowering, call.arguments["self"])
    if call.name == "amax":
        return lowering.reduce("greatest", x)
    return lowering.apply("-{0}", lowering.reduce("greatest", lowering.apply("-{0}", x)))


@rule("_softmax", loops=along)
def _softmax(lowering: Lowering, call: Call, _index: Index) -> Expression:
    x = _input(lowering, call.arguments["self"])
    power = lowering.apply("pb::exp({0} - {1})", x, lowering.reduce("greatest", x))
    return lowering.apply("{0} / {1}", power, lowering.reduce("sum", power))


def _parameter(lowering: Lowering, item: Any, index: Index, default: float) -> Expression:
    if item is None:
        return lowering.number(default)
    return lowering.read(item, broadcast(item.sizes, index, lowering.zero))


@rule("native_layer_norm", loops=along_shape)
def _layer_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = _input(lowering, call.arguments["input"])
    mean = _mean(lowering, x)
    variance = lowering.apply("{0} / {1}", _squares(lowering, x, mean), _count(lowering))
    scale = lowering.apply("1 / pb::sqrt({0} + {1})", variance, call.arguments["eps"])
    y = lowering.apply("fused({0}, {1}, -{2} * {1})", x, scale, mean)
    weight, bias = (_parameter(lowering, call.arguments[n], index, d) for n, d in (("weight", 1.0), ("bias", 0.0)))
    return lowering.apply("fused({0}, {1}, {2})", y, weight, bias)


def _batch_norm(lowering: Lowering, call: Call, index: Index) -> Expression:
    """Return an element of batch norm with the statistics that it is handed: scale and offset are per channel."""
    a = call.arguments
    if a.get("training", False):
        raise Unsupported("batch norm with the statistics of the batch")
    at: tuple[Affine, ...] = index[1:2]
    names = (("running_mean", 0.0), ("running_var", 1.0), ("weight", 1.0), ("bias", 0.0))
    mean, variance, weight, bias = (_parameter(lowering, a[name], at, default) for name, default in names)
    scale = lowering.apply("1 / pb::sqrt({0} + {1}) * {2}", variance, a["eps"], weight)
    half = a["input"].dtype == torch.float16  # eager's kernel for it has no fused multiplication here
    offset = lowering.apply("{0} - {1} * {2}" if half else "fused(-{1}, {2}, {0})", bias, mean, scale)
    return lowering.apply("fused({0}, {1}, {2})", lowering.read(a["input"], index), scale, offset)


RULES.update({name: Rule(_batch_norm) for name in ("native_batch_norm", "_native_batch_norm_legit_no_training",
                                                   "_native_batch_norm_legit", "_batch_norm_no_update")})  # fmt: skip
