"""The operators of the graphs: how each is read from a graph's text, and its expression on vectors in a kernel."""

from __future__ import annotations

import ast
from dataclasses import dataclass

ELEMENT = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "pb::max({0}, {1})",
    "minimum": "pb::min({0}, {1})",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "relu": "pb::relu({0})",
    "gelu": "pb::gelu({0})",
    "gelu_tanh": "pb::gelu_tanh({0})",
    "silu": "pb::silu({0})",
    "sigmoid": "pb::sigmoid({0})",
    "tanh": "pb::tanh({0})",
    "softplus": "pb::softplus({0})",
    "exp": "pb::exp({0})",
    "log": "pb::log({0})",
    "sqrt": "pb::sqrt({0})",
    "rsqrt": "1 / pb::sqrt({0})",
    "abs": "pb::abs({0})",
    "erf": "pb::erf({0})",
    "sin": "pb::sin({0})",
    "cos": "pb::cos({0})",
    "clamp_min": "pb::max({0}, pb::all({1}))",
    "clamp_max": "pb::min({0}, pb::all({1}))",
    "leaky_relu": "{0} > 0 ? {0} : {0} * {1}",
}
"""The expression of each operator by element; {0}, {1} are names of vectors, or numbers."""
ROW = ("softmax", "layer_norm")
REDUCTION = ("mean", "sum")
SIGNS = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.Div: "div"}
IN_PLACE = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"}
PLAIN = {name for name, text in ELEMENT.items() if "{1}" not in text}


@dataclass(frozen=True)
class Call:
    """A call of a graph: the operator, its operands as written, and its other arguments.

    ``operands`` are names of tensors, or numbers' texts. ``numbers`` are a norm's shape and epsilon.
    ``in_place`` is True if it writes to its first operand.
    """

    name: str
    operands: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    in_place: bool = False

    @property
    def kind(self) -> str:
        """The kind of operator: "element", "row" or "reduction"."""
        return "row" if self.name in ROW else "reduction" if self.name in REDUCTION else "element"

    @property
    def tensors(self) -> tuple[str, ...]:
        """The operands that are tensors."""
        return tuple(text for text in self.operands if text.startswith(("in_", "tmp_")))


def call_of(node: ast.expr) -> Call | None:
    """Return the call that an expression of a graph is, None if no rule fits."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Name):
        return Call("neg", (node.operand.id,))
    if isinstance(node, ast.BinOp):
        return _binary(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    name, args = node.func.attr, [ast.unparse(item) for item in node.args]
    if not ast.unparse(node.func.value).startswith(("torch", "operator")):  # a method
        args = [ast.unparse(node.func.value), *args]
    keywords = {item.arg or "": ast.unparse(item.value) for item in node.keywords}
    call = _named(name, args, keywords)
    return call if call and call.tensors and all(map(_is_operand, call.operands)) else None


def _is_operand(text: str) -> bool:
    if text.startswith(("in_", "tmp_")):
        return text.replace("_", "").isalnum()
    try:
        return abs(float(text)) < 1e30  # neither infinite nor NaN
    except ValueError:
        return False


def _binary(node: ast.BinOp) -> Call | None:
    left, right = ast.unparse(node.left), ast.unparse(node.right)
    if isinstance(node.op, ast.Pow) and right in ("2", "2.0") and _is_operand(left):
        return Call("square", (left,))
    name = SIGNS.get(type(node.op))
    call = Call(name, (left, right)) if name else None
    return call if call and call.tensors and _is_operand(left) and _is_operand(right) else None


def _named(name: str, args: list[str], keywords: dict[str, str]) -> Call | None:
    in_place = keywords.pop("inplace", "False") == "True" or name in IN_PLACE
    name = IN_PLACE.get(name, name)
    if name in PLAIN and len(args) == 1:
        if name == "gelu" and keywords == {"approximate": "'tanh'"}:
            return Call("gelu_tanh", tuple(args))
        return Call(name, tuple(args), (), in_place) if keywords in ({}, {"approximate": "'none'"}) else None
    if name == "pow" and args[1:] in (["2"], ["2.0"]) and not keywords:
        return Call("square", tuple(args[:1]))
    if name in ("add", "sub", "mul", "div", "maximum", "minimum") and len(args) == 2 and not keywords:
        return Call(name, tuple(args), (), in_place)
    if name == "clamp" and len(args) == 1 and len(keywords) == 1:
        return Call(f"clamp_{next(iter(keywords))}", (args[0], *keywords.values()))
    if name == "leaky_relu" and len(args) == 2 and not keywords:
        return Call(name, tuple(args), (), in_place)
    return _along_rows(name, args, keywords)


def _along_rows(name: str, args: list[str], keywords: dict[str, str]) -> Call | None:
    if name == "softmax" and [*args[1:], *keywords.items()] in (["-1"], [("dim", "-1")]):
        return Call(name, (args[0],))
    if name in REDUCTION and [*args[1:], *keywords.items()] in (
        ["-1", ("keepdim", "True")], [("dim", "-1"), ("keepdim", "True")]
    ):  # fmt: skip
        return Call(name, (args[0],))
    if name == "layer_norm" and len(args) == 5 and not keywords:
        weights = () if args[2:4] == ["None", "None"] else tuple(args[2:4])
        return None if "None" in weights else Call(name, (args[0], *weights), (args[1], args[4]))
    return None


def number(text: str) -> str:
    """Return a number of a graph as a kernel has it."""
    return text if text.lstrip("-").isdigit() else f"{text}f"


def expression(call: Call) -> str:
    """Return the expression of an operator by element on vectors of its operands' names."""
    operands = [text if text in call.tensors else number(text) for text in call.operands]
    return ELEMENT[call.name].format(*operands)
