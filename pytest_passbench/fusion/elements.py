"""Rules of operators that compute each element by itself, with the roundings of eager's kernels."""

from __future__ import annotations

import torch

from pytest_passbench.fusion.ir import INTEGERS, Affine, Call, Expression, Index, Kind, Unsupported, Value, kind_of
from pytest_passbench.fusion.lower import Lowering, rule

# The last bit of eager's sqrt in float32, and of its rsqrt in half precision, depends on the tensor's size. The ones
# here are rounded once.
UNARY = {
    "sqrt": "pb::sqrt({0})", "rsqrt": "1 / pb::sqrt({0})", "reciprocal": "1 / {0}", "exp": "pb::exp({0})",
    "log": "pb::log({0})", "log1p": "pb::log1p({0})", "expm1": "pb::expm1({0})", "erf": "pb::erf({0})",
    "tanh": "pb::tanh({0})", "sigmoid": "pb::sigmoid({0})", "silu": "pb::silu({0})",
    "hardsigmoid": "lesser(greater({0} + 3, pb::vec{{}}), pb::all(6)) / 6",
    "hardswish": "{0} * lesser(greater({0} + 3, pb::vec{{}}), pb::all(6)) / 6",
    "sin": "pb::sin({0})", "cos": "pb::cos({0})",
    "log2": "each({0}, __builtin_log2)", "log10": "each({0}, __builtin_log10)", "exp2": "each({0}, __builtin_exp2)",
    "tan": "each({0}, __builtin_tan)", "atan": "each({0}, __builtin_atan)",
    "log_sigmoid_forward": "lesser({0}, pb::vec{{}}) - pb::log1p(pb::exp(-pb::abs({0})))",
}  # fmt: skip
# For other functions of doubles, eager is faster than calls of the C library, lane by lane.
IN_DOUBLE = {
    "sqrt": "each({0}, __builtin_sqrt)", "rsqrt": "1 / each({0}, __builtin_sqrt)", "reciprocal": "1 / {0}",
    "sin": "sine({0}, 0, __builtin_sin)", "cos": "sine({0}, 1, __builtin_cos)",
}  # fmt: skip
EXACT = {
    "relu": {Kind.REAL: "pb::relu({0})", Kind.WHOLE: "({0} < 0 ? every(0) : {0})"},
    "neg": {Kind.REAL: "-{0}", Kind.DOUBLE: "-{0}", Kind.WHOLE: "-{0}"},
    "abs": {
        Kind.REAL: "pb::abs({0})", Kind.DOUBLE: "each({0}, __builtin_fabs)", Kind.WHOLE: "({0} < 0 ? -{0} : {0})"
    },
}
LOGIC = {
    f"{how}_{word}": text
    for how in ("logical", "bitwise")
    for word, text in (("not", "~{0}"), ("and", "({0} & {1})"), ("or", "({0} | {1})"), ("xor", "({0} ^ {1})"))
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def _same_dtype(call: Call) -> None:
    """Raise Unsupported for a tensor without dimensions that eager would cast to another operand's dtype."""
    values = [value for value in call.values() if value.dtype not in (torch.bool, *INTEGERS)]
    if len({value.dtype for value in values}) > 1 and any(not value.sizes for value in values):
        raise Unsupported(f"{call.name} with a tensor without dimensions of another dtype")


def moved(index: Index, dim: int, by: int) -> Index:
    """Return the index of the element that lies ``by`` places further along a dimension."""
    return tuple(Affine(at.offset + by * (d == dim), at.steps) for d, at in enumerate(index))


def _result(call: Call) -> torch.dtype:
    return call.results[0].dtype


def _float(lowering: Lowering, call: Call, index: Index) -> Expression:
    return lowering.real(lowering.operand(call.arguments["self"], index))


@rule(*UNARY)
def _unary(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = lowering.operand(call.arguments["self"], index)
    if x.kind == Kind.DOUBLE:
        if call.name not in IN_DOUBLE:
            raise Unsupported(f"{call.name} of float64")
        return lowering.apply(IN_DOUBLE[call.name], x, kind=x.kind)
    return lowering.apply(UNARY[call.name], lowering.real(x))


@rule(*EXACT, exact=True)
def _exact(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = lowering.operand(call.arguments["self"], index)
    if x.kind not in EXACT[call.name]:
        raise Unsupported(f"{call.name} of {call.arguments['self'].dtype}".replace("torch.", ""))
    return lowering.apply(EXACT[call.name][x.kind], x, kind=x.kind)


def _operands(lowering: Lowering, call: Call, index: Index, *names: str, rounded: bool = False) -> list[Expression]:
    """Return operands in the result's kind. A number is rounded to a floating result's dtype only if ``rounded``."""
    kind, dtype, operands = kind_of(_result(call)), _result(call), []
    for name in names:
        item = call.arguments[name]
        x = lowering.operand(item, index, dtype if rounded or kind != Kind.REAL else None)
        factor = name == "other" and call.name in ("mul", "div") and not getattr(item, "sizes", ())  # not rounded
        operands.append(lowering.cast(x, kind) if factor else lowering.converted(x, dtype))
    return operands


@rule("add", "sub", "rsub")
def _add(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    x, y = _operands(lowering, call, index, "self", "other", rounded=True)
    if call.name == "rsub":
        x, y = y, x
    alpha = call.arguments.get("alpha", 1)
    if alpha != 1:
        if call.name == "rsub" or _result(call) != torch.float32:
            raise Unsupported(f"{call.name} with alpha")
        return lowering.apply("fused({1}, {2}, {0})", x, y, alpha if call.name == "add" else -alpha)
    if x.kind == Kind.MASK:
        return lowering.apply("({0} | {1})", x, y, kind=x.kind)
    return lowering.apply("{0} + {1}" if call.name == "add" else "{0} - {1}", x, y, kind=x.kind)


@rule("mul", "div")
def _mul(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    if call.arguments.get("rounding_mode") is not None:
        raise Unsupported("a division with a rounding mode")
    x, y = _operands(lowering, call, index, "self", "other")
    if x.kind == Kind.MASK:
        return lowering.apply("({0} & {1})", x, y, kind=x.kind)
    return lowering.apply("{0} * {1}" if call.name == "mul" else "{0} / {1}", x, y, kind=x.kind)


@rule("remainder")
def _remainder(lowering: Lowering, call: Call, index: Index) -> Expression:
    if kind_of(_result(call)) != Kind.WHOLE:
        raise Unsupported("a remainder of floats")
    x, y = _operands(lowering, call, index, "self", "other")
    return lowering.apply("remainder({0}, {1})", x, y, kind=Kind.WHOLE)


@rule("maximum", "minimum", exact=True)
def _extremum(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    x, y = _operands(lowering, call, index, "self", "other")
    greatest, least = "greater({0}, {1})", "lesser({0}, {1})"
    if x.kind == Kind.MASK:  # in which true, -1, is less than false
        greatest, least = "({0} | {1})", "({0} & {1})"
    return lowering.apply(greatest if call.name == "maximum" else least, x, y, kind=x.kind)


@rule(*COMPARISONS)
def _compare(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    other, dtype = call.arguments["other"], call.arguments["self"].dtype
    x, y = lowering.operand(call.arguments["self"], index), lowering.operand(other, index, dtype)
    plain = torch.float32 if Kind.REAL in (x.kind, y.kind) else torch.int64
    common = next((value.dtype for value in call.values() if kind_of(value.dtype) == Kind.REAL), plain)
    common = torch.float64 if Kind.DOUBLE in (x.kind, y.kind) else common
    return lowering.compare(COMPARISONS[call.name], *(lowering.converted(item, common) for item in (x, y)))


@rule(*LOGIC)
def _logic(lowering: Lowering, call: Call, index: Index) -> Expression:
    operands = [lowering.operand(call.arguments[name], index) for name in ("self", "other") if name in call.arguments]
    if call.name.startswith("bitwise") and _result(call) != torch.bool:
        raise Unsupported(f"{call.name} of numbers")
    return lowering.apply(LOGIC[call.name], *(lowering.cast(x, Kind.MASK) for x in operands), kind=Kind.MASK)


@rule("where")
def _where(lowering: Lowering, call: Call, index: Index) -> Expression:
    condition, dtype = lowering.operand(call.arguments["condition"], index), _result(call)
    x, y = (  # eager casts both to the result's dtype first
        lowering.rounded(item, dtype) if call.arguments[name].dtype != dtype else item
        for name, item in zip(("self", "other"), _operands(lowering, call, index, "self", "other"), strict=True)
    )
    return lowering.choose(condition, x, y)


@rule("masked_fill", exact=True)
def _masked_fill(lowering: Lowering, call: Call, index: Index) -> Expression:
    x, value = _operands(lowering, call, index, "self", "value", rounded=True)
    if isinstance(call.arguments["value"], Value):
        value = lowering.rounded(value, _result(call))
    return lowering.choose(lowering.operand(call.arguments["mask"], index), value, x)


@rule("clamp", "clamp_min", "clamp_max", "hardtanh", exact=True)
def _clamp(lowering: Lowering, call: Call, index: Index) -> Expression:
    _same_dtype(call)
    low, high = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
    (x,) = _operands(lowering, call, index, "self")
    for name, text in ((low, "greater({0}, {1})"), (high, "lesser({0}, {1})")):
        if call.arguments.get(name) is not None:
            x = lowering.apply(text, x, *_operands(lowering, call, index, name, rounded=True), kind=x.kind)
    return x


@rule("pow")
def _power(lowering: Lowering, call: Call, index: Index) -> Expression:
    texts = {2: "{0} * {0}", 0.5: "pb::sqrt({0})", -0.5: "1 / pb::sqrt({0})", -1: "1 / {0}", 1: "{0}"}
    exponent = call.arguments["exponent"]
    if not isinstance(exponent, (int, float)) or not isinstance(call.arguments["self"], Value):
        raise Unsupported("pow with a tensor as exponent")
    x = _float(lowering, call, index)
    if exponent == 3:  # eager cubes bfloat16 in two rounded steps, other types in one
        square = lowering.apply("{0} * {0}", x)
        square = lowering.bf16_rounded(square, _result(call))
        return lowering.apply("{0} * {1}", square, x)
    if exponent not in texts:
        raise Unsupported(f"pow {exponent}")
    return lowering.apply(texts[exponent], x)


@rule("gelu")
def _gelu(lowering: Lowering, call: Call, index: Index) -> Expression:
    name = "gelu" if call.arguments["approximate"] == "none" else "gelu_tanh"
    return lowering.apply(f"pb::{name}({{0}})", _float(lowering, call, index))


@rule("leaky_relu")
def _leaky_relu(lowering: Lowering, call: Call, index: Index) -> Expression:
    slope = lowering.number(call.arguments["negative_slope"])
    return lowering.apply("({0} > 0 ? {0} : {0} * {1})", _float(lowering, call, index), slope)


@rule("softplus")
def _softplus(lowering: Lowering, call: Call, index: Index) -> Expression:
    if call.arguments["beta"] != 1 or call.arguments["threshold"] != 20:
        raise Unsupported("softplus with other constants")
    return lowering.apply("pb::softplus({0})", _float(lowering, call, index))


@rule("elu")
def _elu(lowering: Lowering, call: Call, index: Index) -> Expression:
    alpha, scale, inner = (lowering.number(call.arguments[name]) for name in ("alpha", "scale", "input_scale"))
    x = _float(lowering, call, index)
    return lowering.apply("({0} > 0 ? {0} * {2} : pb::expm1({0} * {3}) * {1} * {2})", x, alpha, scale, inner)


@rule("_prelu_kernel")
def _prelu(lowering: Lowering, call: Call, index: Index) -> Expression:
    x, weight = _operands(lowering, call, index, "self", "weight")
    return lowering.apply("({0} > 0 ? {0} : {0} * {1})", x, weight)


@rule("lerp")
def _lerp(lowering: Lowering, call: Call, index: Index) -> Expression:
    x, end, weight = _operands(lowering, call, index, "self", "end", "weight")
    text = "(pb::abs({2}) < 0.5f ? {0} + {2} * ({1} - {0}) : {1} - ({1} - {0}) * (1 - {2}))"
    return lowering.apply(text, x, end, weight)


@rule("addcmul", "addcdiv")
def _addcmul(lowering: Lowering, call: Call, index: Index) -> Expression:
    x, y, z = _operands(lowering, call, index, "self", "tensor1", "tensor2")
    text = "{0} + {3} * {1} * {2}" if call.name == "addcmul" else "{0} + {3} * {1} / {2}"
    return lowering.apply(text, x, y, z, call.arguments["value"])


@rule("glu")
def _glu(lowering: Lowering, call: Call, index: Index) -> Expression:
    dim = call.arguments["dim"] % len(index)
    second = moved(index, dim, call.results[0].sizes[dim])
    x, gate = (lowering.read(call.arguments["self"], at) for at in (index, second))
    return lowering.apply("{0} * pb::sigmoid({1})", x, gate)


@rule("clone", "_to_copy", "copy", "contiguous", exact=True)
def _copy(lowering: Lowering, call: Call, index: Index) -> Expression:
    x = lowering.operand(call.arguments.get("src", call.arguments.get("self")), index)
    return lowering.converted(x, _result(call))


CONSTANTS = {"zeros": 0, "zeros_like": 0, "new_zeros": 0, "zero": 0, "ones": 1, "ones_like": 1, "new_ones": 1}


@rule("full", "full_like", "new_full", "fill", "scalar_tensor", *CONSTANTS, exact=True)
def _constant(lowering: Lowering, call: Call, _index: Index) -> Expression:
    stated = next((call.arguments[name] for name in ("fill_value", "value", "s") if name in call.arguments), 0)
    number = CONSTANTS.get(call.name, stated)
    if isinstance(number, Value):
        x = lowering.cast(lowering.read(number, ()), kind_of(_result(call)))
        return lowering.rounded(x, _result(call))
    if _result(call) == torch.bool:
        return lowering.truth(bool(number))
    return lowering.operand(int(number) if kind_of(_result(call)) == Kind.WHOLE else float(number), (), _result(call))
