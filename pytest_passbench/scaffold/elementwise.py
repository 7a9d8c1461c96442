"""C++ expressions for operators that compute each element by itself, with the rounding of eager's kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold.emitter import NoPlainKernel, literal, refuse
from pytest_passbench.scaffold.formulas import ARITHMETIC, COMPARISONS, FORMULAS, Formula

Operand = Callable[[Any], str]
"""Gives the C++ text of an argument: a loaded element, a local value or a number."""


def number(value: Any, kind: str) -> str:
    """Return a Python number as C++ text, for a computation in ``kind`` (float, double, int, bool)."""
    if not isinstance(value, (bool, int, float)):
        raise NoPlainKernel(f"the argument {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        return "NAN" if math.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"
    if kind in ("int", "bool") and isinstance(value, (bool, int)):
        return repr(value).lower()
    text = repr(float(value))
    return f"{text}f" if kind == "float" else text


def expression(call: CanonicalCall, kind: str, rounded: Callable[[str], str], at: Operand) -> str:
    """Return the expression of a call. Raises NoPlainKernel if none is known.

    ``kind`` is what is computed in, ``rounded`` rounds an expression to the result's type.
    """
    make = _MAKERS.get(call.op)
    if make is None:
        raise NoPlainKernel(call.op)
    return make(call, kind, rounded, at)


def _unary(template: Formula) -> Callable[..., str]:
    def make(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
        refuse(kind in ("int", "bool") and not template.whole, f"{call.op} of whole numbers")
        return formula(template.cpp, at(call.args["input"]))

    return make


def formula(text: str, value: str) -> str:
    """Return a formula of x with a value in place of x. The value is a name or a number, so it may stand often."""
    out, word = "", ""
    for char in text + " ":
        if char.isalnum() or char in "_:.":
            word += char
        else:
            out += (value if word == "x" else word) + char
            word = ""
    return out[:-1]


def _infix(sign: str) -> Callable[..., str]:
    def make(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
        refuse(call.get("rounding_mode") is not None, f"{call.op} with a rounding mode")
        refuse(sign == "/" and kind in ("int", "bool"), "a division of whole numbers")
        alpha = call.get("alpha")
        left, right = at(call.args["input"]), at(call.args["other"])
        return f"{left} {sign} {right}" if alpha in (1, None) else f"{left} {sign} {at(alpha)} * {right}"

    return make


def _compare(sign: str) -> Callable[..., str]:
    return lambda call, _kind, _rounded, at: f"{at(call.args['input'])} {sign} {at(call.args['other'])}"


def _power(call: CanonicalCall, kind: str, rounded: Callable[[str], str], at: Operand) -> str:
    base, exponent = at(call.args["input"]), literal(call.args["exponent"])
    if not isinstance(exponent, (int, float)):
        raise NoPlainKernel("pow with a tensor as exponent")
    if exponent == 2:
        return f"{base} * {base}"
    if exponent == 3:  # eager cubes bfloat16 in two rounded steps, other types in one
        stored = rounded_type(rounded)
        return f"cube<{stored}>({base}, {rounded(f'{base} * {base}')})" if stored else f"{base} * {base} * {base}"
    refuse(kind != "float", "pow of this type")
    special = {0.5: "std::sqrt({})", -0.5: "1 / std::sqrt({})", -1.0: "1 / {}", 1.0: "{}"}
    text = special.get(float(exponent))
    return text.format(base) if text else f"float(std::pow(double({base}), {float(exponent)!r}))"


def rounded_type(rounded: Callable[[str], str]) -> str:
    """Return the C++ type that expressions are rounded to, or nothing if they are not rounded."""
    return rounded("").partition("<")[2].partition(">")[0]


def _gelu(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    refuse(kind != "float", "gelu of this type")
    x = at(call.args["input"])
    approximate = literal(call.get("approximate") or "none")
    if approximate == "tanh":
        inner = f"0.797884561f * ({x} + 0.044715f * {x} * {x} * {x})"
        return f"0.5f * {x} * (1 + std::tanh({inner}))"
    return f"0.5f * {x} * (1 + std::erf({x} * 0.707106781f))"


def limits(call: CanonicalCall) -> tuple[Any, Any]:
    """Return the bounds of ``clamp`` or ``hardtanh``, None for one that is not there."""
    if call.op == "clamp":
        return call.get("min"), call.get("max")
    low, high = call.get("min_val"), call.get("max_val")
    return -1.0 if low is None else low, 1.0 if high is None else high


def _clamp(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    low, high = limits(call)
    text = at(call.args["input"])
    if low is not None:
        text = f"std::max({_cast(kind)}({text}), {_cast(kind)}({at(low)}))"
    if high is not None:
        text = f"std::min({_cast(kind)}({text}), {_cast(kind)}({at(high)}))"
    return text


def _cast(kind: str) -> str:
    return "int64_t" if kind == "int" else kind


def _leaky(call: CanonicalCall, _kind: str, _rounded: Any, at: Operand) -> str:
    x, slope = at(call.args["input"]), call.get("negative_slope")
    return f"{x} > 0 ? {x} : {x} * {at(0.01 if slope is None else slope)}"


def _prelu(call: CanonicalCall, _kind: str, _rounded: Any, at: Operand) -> str:
    x, weight = at(call.args["input"]), at(call.args["weight"])
    return f"{x} > 0 ? {x} : {x} * {weight}"


def _softplus(call: CanonicalCall, _kind: str, _rounded: Any, at: Operand) -> str:
    x, beta, threshold = at(call.args["input"]), call.get("beta"), call.get("threshold")
    refuse(beta not in (None, 1, 1.0) or threshold not in (None, 20, 20.0), "softplus with other constants")
    return f"{x} > 20 ? {x} : float(std::log1p(std::exp(double({x}))))"


def _where(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    condition, when_true, other = (at(call.args[name]) for name in ("condition", "input", "other"))
    return f"{condition} ? {_cast(kind)}({when_true}) : {_cast(kind)}({other})"


def _masked_fill(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    x, mask, value = (at(call.args[name]) for name in ("input", "mask", "value"))
    return f"{mask} ? {_cast(kind)}({value}) : {x}"


def _lerp(call: CanonicalCall, _kind: str, _rounded: Any, at: Operand) -> str:
    start, end, weight = at(call.args["input"]), at(call.args["end"]), at(call.args["weight"])
    low, high = f"{start} + {weight} * ({end} - {start})", f"{end} - ({end} - {start}) * (1 - {weight})"
    return f"std::fabs({weight}) < 0.5f ? {low} : {high}"


def _remainder(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    refuse(kind != "int", "remainder of this type")
    x, y = at(call.args["input"]), at(call.args["other"])
    return f"({x} % {y} + {y}) % {y}"


def _bitwise_not(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    return f"{'!' if kind == 'bool' else '~'}{at(call.args['input'])}"


def _to(call: CanonicalCall, kind: str, _rounded: Any, at: Operand) -> str:
    refuse(kind == "bool", "a cast to bool")
    return f"{_cast(kind)}({at(call.args['input'])})"


def _batch_norm(call: CanonicalCall, kind: str, rounded: Callable[[str], str], at: Operand) -> str:
    """Return a call of the helper that has eager's formula."""
    refuse(literal(call.get("training")) is True, "batch_norm in training")
    refuse(kind != "float", "batch_norm of this type")
    eps, unit, zero = call.get("eps"), at(1.0), at(0.0)
    weight, bias = (call.get(name) for name in ("weight", "bias"))
    values = [at(call.args[name]) for name in ("input", "running_mean", "running_var")]
    values += [unit if weight is None else at(weight), zero if bias is None else at(bias)]
    return f"batch_norm<{rounded_type(rounded) or 'float'}>({', '.join(values)}, {at(1e-5 if eps is None else eps)})"


_MAKERS: dict[str, Callable[..., str]] = {
    **{op: _unary(formula) for op, formula in FORMULAS.items()},
    **{op: _infix(sign) for op, sign in ARITHMETIC.items()},
    **{op: _compare(sign) for op, sign in COMPARISONS.items()},
    "bitwise_xor": _infix("^"),
    "pow": _power, "gelu": _gelu, "clamp": _clamp, "hardtanh": _clamp, "leaky_relu": _leaky,
    "prelu": _prelu,
    "softplus": _softplus, "where": _where, "masked_fill": _masked_fill, "lerp": _lerp, "remainder": _remainder,
    "bitwise_not": _bitwise_not, "logical_not": _bitwise_not, "to": _to, "batch_norm": _batch_norm,
    "glu": lambda call, _kind, _rounded, at: f"{at(call.args['input'])} / (1 + std::exp(-{at(call.args['other'])}))",
    "copy": lambda call, _kind, _rounded, at: at(call.args["input"]),
}  # fmt: skip
OPERATORS = frozenset(_MAKERS)
ROUNDING_NUMBERS = frozenset({"add", "sub", "eq", "ne", "lt", "le", "gt", "ge"})
"""The operators for which eager stores a number in its tensor's dtype. For others it takes the number as it is."""
