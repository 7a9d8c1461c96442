"""C++ expressions of the generator in Triton's language: a parser of their few forms, and the helpers they call."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_passbench.core.grouping import reached
from pytest_passbench.fusion.ir import Kind, Unsupported

DTYPES = {
    "float": "tl.float32", "pb::bf16": "tl.bfloat16", "pb::f16": "tl.float16", "int32_t": "tl.int32",
    "int16_t": "tl.int16", "int8_t": "tl.int8", "uint8_t": "tl.uint8", "int64_t": "tl.int64", "T": "T",
}  # fmt: skip
"""Triton's dtypes by the C++ types of elements."""
INLINE = {
    "pb::sqrt": "tl.sqrt({0})", "pb::exp": "tl.exp({0})", "pb::exp_nonpositive": "tl.exp({0})",
    "pb::log": "tl.log({0})", "pb::erf": "tl.erf({0})", "pb::sin": "tl.sin({0})", "pb::cos": "tl.cos({0})",
    "pb::abs": "tl.abs({0})", "pb::relu": "tl.where({0} < 0, 0.0, {0})",
    "pb::sigmoid": "(1.0 / (1.0 + tl.exp(-{0})))", "pb::silu": "({0} / (1.0 + tl.exp(-{0})))",
    "pb::tanh": "tanh({0})", "pb::log1p": "log1p({0})", "pb::expm1": "expm1({0})", "pb::gelu": "gelu({0})",
    "pb::gelu_tanh": "gelu_tanh({0})", "pb::softplus": "softplus({0})", "pb::round": "rounded({0}, {T})",
    "wrapped": "({0}).to({T}).to(tl.int64)", "greater": "greater({0}, {1})", "lesser": "lesser({0}, {1})",
    "remainder": "remainder({0}, {1})", "fused": "fused({0}, {1}, {2})", "shift": "shift({0}, {1}, {2}, {T})",
    "inverse_root": "(1.0 / tl.sqrt({0} + {1}))",
    "bf16_rounded": "bf16_rounded({0}, {T})", "pb::all": "{0}", "every": "{0}",
    "equal": "({0} == {1})", "below": "({0} < {1})", "chosen": "tl.where({0}, {1}, {2})",
}  # fmt: skip
"""The C++ functions in Triton's language. Functions that it lacks are helpers."""
EACH = {
    "__builtin_exp2": "tl.exp2({0})",
    "__builtin_log2": "tl.log2({0})", "__builtin_log10": "(tl.log({0}) * 0.4342944819032518)",
    "__builtin_tan": "(tl.sin({0}) / tl.cos({0}))", "__builtin_sqrt": "tl.sqrt({0})", "__builtin_fabs": "tl.abs({0})",
}  # fmt: skip
HELPERS = {
    "rounded": '''\
@triton.jit
def rounded(x, kind: tl.constexpr):
    """float32 `x` as it is after a store as `kind`. The interpreter would cut bfloat16's last bits off."""
    if kind == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        near = bits.to(tl.float32, bitcast=True)
        x = tl.where(x == x, near, x)  # NaN stays
    return x.to(kind).to(tl.float32)
''',
    "greater": '''\
@triton.jit
def greater(a, b):
    """The greater of two numbers: NaN, if one of them is."""
    return tl.where((a != a) | (a > b), a, b)
''',
    "lesser": '''\
@triton.jit
def lesser(a, b):
    """The lesser of two numbers: NaN, if one of them is."""
    return tl.where((a != a) | (a < b), a, b)
''',
    "greatest": '''\
@triton.jit
def greatest(x):
    """The greatest element of each row: NaN, if there is one, which `tl.max` leaves out."""
    nans = tl.sum((x != x).to(tl.int32), 1, keep_dims=True)
    return tl.where(nans > 0, float("nan"), tl.max(x, 1, keep_dims=True))
''',
    "fused": '''\
@triton.jit
def fused(a, b, c):
    """a * b + c, rounded once: float64 holds the product of two floats."""
    return (tl.cast(a, tl.float64) * b + c).to(tl.float32)
''',
    "shift": '''\
@triton.jit
def shift(bias, mean, scale, kind: tl.constexpr):
    """The offset of batch norm, which eager rounds twice in float16, and once elsewhere."""
    once = (bias - tl.cast(mean, tl.float64) * scale).to(tl.float32)
    twice = bias - mean * scale
    return twice if kind == tl.float16 else once
''',
    "bf16_rounded": '''\
@triton.jit
def bf16_rounded(x, kind: tl.constexpr):
    """`x` rounded to bfloat16, which eager cubes in two steps. Other types it cubes in one."""
    return rounded(x, tl.bfloat16) if kind == tl.bfloat16 else x
''',
    "remainder": '''\
@triton.jit
def remainder(x, y):
    """The remainder of whole numbers, with the sign of `y`."""
    r = tl.abs(x) % tl.abs(y)
    r = tl.where(x < 0, -r, r)
    return tl.where((r != 0) & ((r < 0) != (y < 0)), r + y, r)
''',
    "gelu_tanh": """\
@triton.jit
def gelu_tanh(x):
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
""",
    "tanh": """\
@triton.jit
def tanh(x):
    power = expm1(-2.0 * tl.abs(x))
    y = -power / (2.0 + power)
    return tl.where(x < 0, -y, y)
""",
    "expm1": '''\
@triton.jit
def expm1(x):
    """exp(x) - 1, precise near 0."""
    power = tl.exp(x)
    near = (power - 1.0) * x / tl.where(power == 1.0, 1.0, tl.log(power))
    far = power - 1.0
    return tl.where(power == 1.0, x, tl.where((x > -1.0) & (x < 1.0), near, far))
''',
    "log1p": '''\
@triton.jit
def log1p(x):
    """log(1 + x), precise near 0."""
    y = 1.0 + x
    return tl.where((y == 1.0) | (y == float("inf")), x, tl.log(y) * x / tl.where(y == 1.0, 1.0, y - 1.0))
''',
    "gelu": """\
@triton.jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
""",
    "softplus": """\
@triton.jit
def softplus(x):
    return tl.where(x > 20.0, x, log1p(tl.exp(tl.minimum(x, 20.0))))
""",
}
"""The functions that kernels call beside those of the language, by name."""
TOKEN = re.compile(
    r"\s*(@-?[\d|]+!?@|#[^#]+#|\{\d\}|\d+\.?\d*(?:e[-+]?\d+)?f?|(?:pb::)?[A-Za-z_]\w*|==|!=|<=|>=|[-+*/%&|^~?:(),<>\"{}])"
)
INFIX = frozenset({"|", "^", "&", "==", "!=", "<", ">", "<=", ">=", "+", "-", "*", "/", "%"})
"""The operators of two operands. Their order of precedence stays with the text."""


def helpers(body: str) -> list[str]:
    """Return the texts of the helpers that a text calls, and of those that these call, in order."""

    def called(text: str) -> list[str]:
        return [helper for name, helper in HELPERS.items() if re.search(rf"(?<![\w.]){name}\(", text)]

    texts = reached(called(body), called)
    return [text for text in HELPERS.values() if text in texts]


def in_triton(text: str, operands: Sequence[str], kind: Kind) -> str:
    """Return a C++ expression in Triton's language, with its operands. Raises Unsupported if Triton lacks a part."""
    if text.startswith("-__builtin_convertvector({0}"):  # a mask's true is -1 in C++, and 1 in Triton
        text = text[1:]
    if text.startswith("({0} ? pb::all(1)"):
        return f"{operands[0]}.to(tl.float32)"
    return _Parser(text, operands, kind).whole()


class _Parser:
    """A parser of one C++ expression, whose methods return Triton's text."""

    def __init__(self, text: str, operands: Sequence[str], kind: Kind) -> None:
        self.tokens, self.operands, self.kind = TOKEN.findall(text), operands, kind
        self.text, self.at = text, 0

    def whole(self) -> str:
        result = self.choice()
        if self.at != len(self.tokens):
            raise Unsupported(f"{self.text} in Triton")
        return result

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, token: str = "") -> str:
        item = self.peek()
        if token and item != token:
            raise Unsupported(f"{self.text} in Triton")
        self.at += 1
        return item

    def choice(self) -> str:
        condition = self.infix()
        if self.peek() != "?":
            return condition
        self.take("?")
        x = self.choice()
        self.take(":")
        bare = condition.removesuffix(".to(tl.int64)")  # only C++ needs it
        return f"tl.where({bare}, {x}, {self.choice()})"

    def infix(self) -> str:
        text = self.prefix()
        while self.peek() in INFIX:
            symbol = self.take()
            symbol = "//" if symbol == "/" and self.kind == Kind.WHOLE else symbol
            text = f"{text} {symbol} {self.prefix()}"
        return text

    def prefix(self) -> str:
        if self.peek() in ("-", "~"):
            symbol = self.take()
            return f"{symbol}{self.prefix()}"
        return self.term()

    def term(self) -> str:
        token = self.take()
        if token == "(":
            inside = self.choice()
            self.take(")")
            return inside if inside.startswith("tl.where(") and _closed(inside) else f"({inside})"
        if re.fullmatch(r"\{\d\}", token):
            return self.operands[int(token[1])]
        if token[0] in "@#":
            return token
        if token[0].isdigit():
            return token.removesuffix("f")
        return self.call(token)

    def call(self, name: str) -> str:
        if name in ("pb::vec", "doubles"):
            while self.peek() in ("{", "}"):
                self.take()
            return "0.0"
        if name in ("__builtin_inff", "__builtin_nanf"):
            self.take("(")
            while self.take() != ")":
                pass
            return 'float("inf")' if name == "__builtin_inff" else 'float("nan")'
        dtype = ""
        if self.peek() == "<" and name in ("pb::round", "wrapped", "shift", "bf16_rounded"):
            self.take("<")
            dtype = DTYPES[self.take()]
            self.take(">")
        self.take("(")
        if name == "mask":
            word = self.take()
            self.take(")")
            return f"tl.full((), {word.capitalize()}, tl.int1)"
        arguments = [self.choice()]
        while self.peek() == ",":
            self.take(",")
            if name in ("each", "__builtin_convertvector"):
                arguments.append(self.take())
                break
            arguments.append(self.choice())
        self.take(")")
        if name == "__builtin_convertvector":
            dtypes = {"vec": "tl.float32", "doubles": "tl.float64", "whole": "tl.int64"}
            return f"{arguments[0]}.to({dtypes[arguments[1]]})" if arguments[1] in dtypes else arguments[0]
        form = EACH.get(arguments[1]) if name == "each" else INLINE.get(name)
        if form is None:
            raise Unsupported(f"{arguments[1] if name == 'each' else name} in Triton")
        return form.format(*arguments, T=dtype)


def _closed(text: str) -> bool:
    """Return True if the bracket that opens a call is closed by the last of a text."""
    depth = 0
    for place, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == ")" and not depth:
            return place == len(text) - 1
    return False
