"""Rules of operators that compute each element by itself, with the roundings of eager's kernels."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pytest_passbench.fusion.ir import Call, Expression, Index, Unsupported, Value
from pytest_passbench.fusion.lower import Lowering, Rule

RULES: dict[str, Rule] = {}
"""The rules by the operator's name."""

_Element = Callable[[Lowering, Call, Index], Expression]

UNARY = {
    "sqrt": "pb::sqrt({0})", "rsqrt": "1 / pb::sqrt({0})", "reciprocal": "1 / {0}", "exp": "pb::exp({0})",
    "log": "pb::log({0})", "log1p": "pb::log1p({0})", "expm1": "pb::expm1({0})", "erf": "pb::erf({0})",
    "tanh": "pb::tanh({0})", "sigmoid": "pb::sigmoid({0})", "silu": "pb::silu({0})",
    "hardsigmoid": "lesser(greater({0} + 3, pb::vec{{}}), pb::all(6)) / 6",
    "hardswish": "{0} * lesser(greater({0} + 3, pb::vec{{}}), pb::all(6)) / 6",
}  # fmt: skip
EXACT = {"relu": "pb::relu({0})", "neg": "-{0}", "abs": "pb::abs({0})"}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def rule(*names: str, exact: bool = False) -> Callable[[_Element], _Element]:
    """Return a decorator that enters a function as the rule of operators."""

    def enter(element: _Element) -> _Element:
        RULES.update({name: Rule(element, exact=exact) for name in names})
        return element

    return enter


def _same_dtype(call: Call) -> None:
    """Raise Unsupported for a tensor without dimensions that eager would cast to another operand's dtype."""
    values = [value for value in call.values() if value.dtype != torch.bool]
    if len({value.dtype for value in values}) > 1 and any(not value.sizes for value in values):
        raise Unsupported(f"{call.name} with a tensor without dimensions of another dtype")


def _result(call: Call) -> torch.dtype:
    return call.results[0].dtype


def _float(lowering: Lowering, call: Call, name: str, index: Index, dtype: torch.dtype | None = None) -> Expression:
    return lowering.real(lowering.operand(call.arguments[name], index, dtype))


def _unary(text: str) -> _Element:
    return lambda lowering, call, index: lowering.apply(text, _float(lowering, call, "self", index))


RULES.update({name: Rule(_unary(text)) for name, text in UNARY.items()})
RULES.update({name: Rule(_unary(text), exact=True) for name, text in EXACT.items()})


@rule("add", "sub", "rsub")
def _add(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    x, y = (_float(lowering, call, name, index, _result(call)) for name in ("self", "other"))
    if call.name == "rsub":
        x, y = y, x
    alpha = call.arguments.get("alpha", 1)
    if alpha != 1:
        if call.name == "rsub" or _result(call) != torch.float32:
            raise Unsupported(f"{call.name} with alpha")
        return lowering.apply("fused({1}, {2}, {0})", x, y, alpha if call.name == "add" else -alpha)
    return lowering.apply("{0} + {1}" if call.name == "add" else "{0} - {1}", x, y)


@rule("mul", "div")
def _mul(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    if call.arguments.get("rounding_mode") is not None:
        raise Unsupported("a division with a rounding mode")
    x, y = (_float(lowering, call, name, index) for name in ("self", "other"))
    return lowering.apply("{0} * {1}" if call.name == "mul" else "{0} / {1}", x, y)


@rule("maximum", "minimum", exact=True)
def _extremum(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    x, y = (_float(lowering, call, name, index) for name in ("self", "other"))
    return lowering.apply("greater({0}, {1})" if call.name == "maximum" else "lesser({0}, {1})", x, y)


@rule(*COMPARISONS)
def _compare(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    dtype, other = call.arguments["self"].dtype, call.arguments["other"]
    if not isinstance(other, Value) and dtype == torch.bool:
        raise Unsupported("a bool compared with a number")
    x, y = _float(lowering, call, "self", index), _float(lowering, call, "other", index, dtype)
    return lowering.apply(f"({{0}} {COMPARISONS[call.name]} {{1}})", x, y, mask=True)


@rule("logical_not", "bitwise_not", "logical_and", "bitwise_and", "logical_or", "bitwise_or", exact=True)
def _logic(lowering: Lowering, call: Call, index: Index) -> Expression:
    operands = [lowering.operand(call.arguments[name], index) for name in ("self", "other") if name in call.arguments]
    if not all(x.mask for x in operands):
        raise Unsupported(f"{call.name} of numbers")
    text = {"not": "~{0}", "and": "({0} & {1})", "_or": "({0} | {1})"}[call.name[-3:]]
    return lowering.apply(text, *operands, mask=True)


@rule("where")
def _where(lowering: Lowering, call: Call, index: Index) -> Expression:
    if _result(call) == torch.bool:
        raise Unsupported("where with bools")
    condition = lowering.operand(call.arguments["condition"], index)
    x, y = (  # eager casts both to the result's dtype first
        lowering.rounded(_float(lowering, call, name, index), _result(call))
        if call.arguments[name].dtype != _result(call)
        else _float(lowering, call, name, index)
        for name in ("self", "other")
    )
    return lowering.apply("({0} ? {1} : {2})", condition, x, y)


@rule("masked_fill", exact=True)
def _masked_fill(lowering: Lowering, call: Call, index: Index) -> Expression:
    mask, value = (
        lowering.operand(call.arguments["mask"], index),
        _float(lowering, call, "value", index, _result(call)),
    )
    if isinstance(call.arguments["value"], Value) and call.arguments["value"].dtype != _result(call):
        raise Unsupported("masked_fill with a tensor of another dtype")
    return lowering.apply("({0} ? {1} : {2})", mask, value, _float(lowering, call, "self", index))


@rule("clamp", "clamp_min", "clamp_max", "hardtanh", exact=True)
def _clamp(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    low, high = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
    x = _float(lowering, call, "self", index)
    if call.arguments.get(low) is not None:
        x = lowering.apply("greater({0}, {1})", x, _float(lowering, call, low, index, _result(call)))
    if call.arguments.get(high) is not None:
        x = lowering.apply("lesser({0}, {1})", x, _float(lowering, call, high, index, _result(call)))
    return x


@rule("pow")
def _power(lowering: Lowering, call: Call, index: Index) -> Expression:
    texts = {2: "{0} * {0}", 0.5: "pb::sqrt({0})", -0.5: "1 / pb::sqrt({0})", -1: "1 / {0}", 1: "{0}"}
    exponent = call.arguments["exponent"]
    if not isinstance(exponent, (int, float)) or not isinstance(call.arguments["self"], Value):
        raise Unsupported("pow with a tensor as exponent")
    x = _float(lowering, call, "self", index)
    if exponent == 3:  # eager cubes bfloat16 in two rounded steps, other types in one
        square = lowering.apply("{0} * {0}", x)
        square = lowering.rounded(square, torch.bfloat16) if _result(call) == torch.bfloat16 else square
        return lowering.apply("{0} * {1}", square, x)
    if exponent not in texts:
        raise Unsupported(f"pow {exponent}")
    return lowering.apply(texts[exponent], x)


@rule("gelu")
def _gelu(lowering: Lowering, call: Call, index: Index) -> Expression:
    name = "gelu" if call.arguments["approximate"] == "none" else "gelu_tanh"
    return lowering.apply(f"pb::{name}({{0}})", _float(lowering, call, "self", index))


@rule("leaky_relu")
def _leaky_relu(lowering: Lowering, call: Call, index: Index) -> Expression:
    slope = lowering.number(call.arguments["negative_slope"])
    return lowering.apply("({0} > 0 ? {0} : {0} * {1})", _float(lowering, call, "self", index), slope)


@rule("softplus")
def _softplus(lowering: Lowering, call: Call, index: Index) -> Expression:
    if call.arguments["beta"] != 1 or call.arguments["threshold"] != 20:
        raise Unsupported("softplus with other constants")
    return lowering.apply("pb::softplus({0})", _float(lowering, call, "self", index))


@rule("clone", "_to_copy", "copy", exact=True)
def _copy(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = lowering.operand(call.arguments.get("src", call.arguments.get("self")), index)
    if _result(call) != torch.bool:
        return lowering.real(x)
    return x if x.mask else lowering.apply("({0} != 0)", x, mask=True)


@rule(
    "full", "full_like", "new_full", "fill", "zeros", "zeros_like", "ones", "ones_like", "scalar_tensor", exact=True
)
def _constant(lowering: Lowering, call: Call, _index: Index) -> Expression:
    named = {"zeros": 0, "zeros_like": 0, "ones": 1, "ones_like": 1}
    number = next((call.arguments[name] for name in ("fill_value", "value", "s") if name in call.arguments), None)
    number = named.get(call.name, number)
    if not isinstance(number, (bool, int, float)):
        raise Unsupported(f"{call.name} of a tensor")
    return lowering.truth(bool(number)) if _result(call) == torch.bool else lowering.operand(
        float(number), (), _result(call))  # fmt: skip
