"""The Triton kernels of a pass: a program per block of elements, or of rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import elementwise, rows
from pytest_passbench.scaffold.assemble import pattern, wrapper
from pytest_passbench.scaffold.emitter import (
    Dtypes,
    EmittedKernel,
    NoPlainKernel,
    OnlyViews,
    PointerArg,
    literal,
    refuse,
    wrapped_call,
)
from pytest_passbench.scaffold.formulas import ARITHMETIC, COMPARISONS, FORMULAS
from pytest_passbench.scaffold.helpers import TEXTS
from pytest_passbench.scaffold.lowering.lower import CallLowering
from pytest_passbench.scaffold.lowering.wrapper import Stage
from pytest_passbench.scaffold.parts import Part

_FIXED = {"float": "tl.float32", "pb::bf16": "tl.bfloat16", "pb::f16": "tl.float16", "double": "tl.float64"}
_FORMULAS = {op: formula.triton for op, formula in FORMULAS.items() if formula.triton} | {"to": "(x).to(tl.float32)"}
_GELU = "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))"
_GELU_TANH = "x * (1.0 - 1.0 / (1.0 + tl.exp(1.5957691216057308 * (x + 0.044715 * x * x * x))))"
_SOFTPLUS = "tl.where(x > 20, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))"
_INFIX = ARITHMETIC | COMPARISONS

# A block of `HEIGHT` rows, each padded to `BLOCK` elements. The last block has the last row several times.
_ROW = """\
    row = tl.minimum(tl.program_id(0) * HEIGHT + tl.arange(0, HEIGHT)[:, None], rows - 1)
    at = tl.arange(0, BLOCK)[None, :]
    inside = at < n
    a = tl.load(x + row * n + at, mask=inside, other={other}).to(tl.float32)
"""
_PARAMETERS = """\
    if weight is not None:
        y *= tl.load(weight + at, mask=inside, other=0).to(tl.float32)
    if bias is not None:
        y += tl.load(bias + at, mask=inside, other=0).to(tl.float32)
"""
_STORE = "    tl.store(out + row * n + at, rounded(y, out.dtype.element_ty), mask=inside)"
_RESULT = "    tl.store(out + row, rounded({}, out.dtype.element_ty))"
_SUM, _MAX, _MIN = (f"tl.{name}({{}}, 1, keep_dims=True)".format for name in ("sum", "max", "min"))
# The same rows as in rows.py, by the text of the C++ kernel.
_ROWS = {
    rows.REDUCTIONS["sum"]: _ROW.format(other=0) + _RESULT.format(_SUM("a")),
    rows.REDUCTIONS["mean"]: _ROW.format(other=0) + _RESULT.format(f"{_SUM('a')} / n"),
    rows.REDUCTIONS["amax"]: _ROW.format(other='float("-inf")') + _RESULT.format(_MAX("a")),
    rows.REDUCTIONS["amin"]: _ROW.format(other='float("inf")') + _RESULT.format(_MIN("a")),
    rows.SOFTMAX: _ROW.format(other='float("-inf")')
    + f"    power = tl.exp(a - {_MAX('a')})\n    y = power / {_SUM('power')}\n"
    + _STORE,
    rows.LAYER_NORM: _ROW.format(other=0)
    + f"    centred = tl.where(inside, a - {_SUM('a')} / n, 0.0)\n"
    + f"    y = centred / tl.sqrt({_SUM('centred * centred')} / n + eps)\n"
    + _PARAMETERS
    + _STORE,
    rows.RMS_NORM: _ROW.format(other=0)
    + f"    y = a / tl.sqrt({_SUM('a * a')} / n + eps)\n"
    + _PARAMETERS.partition("    if bias")[0]
    + _STORE,
}
ROUNDED = '''\
@triton.jit
def rounded(x, kind: tl.constexpr):
    """float32 `x` as it is after a store as `kind`. The interpreter would cut bfloat16's last bits off."""
    if kind == tl.bfloat16:
        bits = x.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        x = bits.to(tl.float32, bitcast=True)
    return x.to(kind).to(tl.float32)
'''
FUNCTIONS = {
    "cube": '''\
@triton.jit
def cube(x, kind: tl.constexpr):
    """`x` cubed. Eager does it in two rounded steps in bfloat16, in one in other types."""
    square = x * x
    if kind == tl.bfloat16:
        square = rounded(square, kind)
    return square * x
''',
    "eager_batch_norm": '''\
@triton.jit
def eager_batch_norm(x, mean, variance, weight, bias, eps, kind: tl.constexpr):
    """Batch norm as eager does it, which rounds a product and its sum once. Here float64 does that."""
    scale = weight * (1.0 / tl.sqrt(variance + eps))
    if kind == tl.float16:
        offset = bias - mean * scale
    else:
        offset = (bias - mean.to(tl.float64) * scale).to(tl.float32)
    return (x.to(tl.float64) * scale + offset).to(tl.float32)
''',
}
"""Functions that a kernel may call, by name."""


def _leaky(x: str, slope: str) -> str:
    return f"tl.where({x} > 0, {x}, {x} * {slope})"


class TritonLowering(CallLowering):
    """The wrapper of a run of calls, and its kernels in Triton."""

    inexact = CallLowering.inexact | {"sum", "mean"}

    def _expression(
        self, call: CanonicalCall, kind: str, rounded: Callable[[str], str], at: elementwise.Operand
    ) -> str:
        refuse(kind not in ("float", "bool"), f"{call.op} of whole numbers or doubles in Triton")
        if call.op in _FORMULAS:
            return elementwise.formula(_FORMULAS[call.op], at(call.args["input"]))
        if call.op in _INFIX and call.get("alpha") in (1, None) and call.get("rounding_mode") is None:
            return f"{at(call.args['input'])} {_INFIX[call.op]} {at(call.args['other'])}"
        if call.op == "pow":
            return self._power(call, rounded, at)
        if call.op == "gelu":
            exact = (literal(call.get("approximate")) or "none") == "none"
            return elementwise.formula(_GELU if exact else _GELU_TANH, at(call.args["input"]))
        if call.op == "glu":
            return f"{at(call.args['input'])} / (1.0 + tl.exp(-{at(call.args['other'])}))"
        if call.op == "lerp":
            start, end, weight = (at(call.args[name]) for name in ("input", "end", "weight"))
            low, high = f"{start} + {weight} * ({end} - {start})", f"{end} - ({end} - {start}) * (1.0 - {weight})"
            return f"tl.where(tl.abs({weight}) < 0.5, {low}, {high})"
        if call.op == "where":
            return f"tl.where({at(call.args['condition'])}, {at(call.args['input'])}, {at(call.args['other'])})"
        if call.op == "masked_fill":
            return f"tl.where({at(call.args['mask'])}, {at(call.args['value'])}, {at(call.args['input'])})"
        if call.op == "leaky_relu":
            slope = call.get("negative_slope")
            return _leaky(at(call.args["input"]), at(0.01 if slope is None else slope))
        if call.op == "prelu":
            return _leaky(at(call.args["input"]), at(call.args["weight"]))
        if call.op == "softplus":
            return elementwise.formula(_SOFTPLUS, at(call.args["input"]))
        if call.op in ("clamp", "hardtanh"):
            low, high = elementwise.limits(call)
            text = at(call.args["input"])
            text = text if low is None else f"tl.maximum({text}, {at(low)})"
            return text if high is None else f"tl.minimum({text}, {at(high)})"
        if call.op == "batch_norm" and None not in (call.get("weight"), call.get("bias")):
            eps, names = call.get("eps"), ("input", "running_mean", "running_var", "weight", "bias")
            values = [*(at(call.args[name]) for name in names), at(1e-5 if eps is None else eps)]
            return f"eager_batch_norm({', '.join(values)}, <{elementwise.rounded_type(rounded) or 'float'}>)"
        raise NoPlainKernel(f"{call.op} in Triton")

    def _power(self, call: CanonicalCall, rounded: Callable[[str], str], at: elementwise.Operand) -> str:
        x, exponent = at(call.args["input"]), literal(call.args["exponent"])
        kind = elementwise.rounded_type(rounded)
        powers = {2: f"{x} * {x}", 3: f"cube({x}, <{kind}>)" if kind else f"{x} * {x} * {x}", 0.5: f"tl.sqrt({x})",
                 -0.5: f"1.0 / tl.sqrt({x})", -1: f"1.0 / {x}", 1: x}  # fmt: skip
        if exponent not in powers:
            raise NoPlainKernel("this power in Triton")
        return powers[exponent]

    def _rounded(self, text: str, c_type: str) -> str:
        return f"rounded({text}, <{c_type}>)"

    def _rounded_number(self, text: str, c_type: str) -> str:
        return self._rounded(f"tl.full((), {text}, tl.float32)", c_type) if c_type else text

    def _number(self, value: Any, kind: str) -> str:
        text = elementwise.number(value, "double" if kind == "float" else kind)
        return {"INFINITY": 'float("inf")', "-INFINITY": 'float("-inf")', "NAN": 'float("nan")'}.get(text, text)

    def _cast(self, name: str, _kind: str) -> str:
        return name

    def _loop(self, stage: Stage, pointers: tuple[PointerArg, ...], targets: dict[str, str]) -> EmittedKernel:
        lines = ["    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "    inside = at < n"]
        for name, dtypes, _same in stage.loads.values():
            wide = ".to(tl.float32)" if self.types.kind(dtypes) == "float" else ""
            refuse(self.types.kind(dtypes) in ("int", "double"), "whole numbers or doubles in Triton")
            lines.append(f"    {name}_i = tl.load({name} + at, mask=inside){wide}")
        for name, text in {name: text for name, _kind, text in stage.locals.values()}.items():
            lines.append(f"    {name} = {text}")
        lines += [f"    tl.store({target} + at, {name}, mask=inside)" for name, target in targets.items()]
        body = re.sub(r"<([\w:]+)>", lambda match: self._kind(match[1], pointers), "\n".join(lines))
        ops = [self.form.call(node).op for node in stage.nodes]
        comment = f"{', '.join(ops)}: a program per block of elements.\n"
        comment += "Faster: join this with the kernel before or behind it, so that no value goes through memory."
        numbers = (*((kind, name) for name, kind in stage.numbers.items()), ("int64_t", "n"))
        return EmittedKernel(self._loop_name(ops), pointers, numbers, comment, body)

    def _kind(self, c_type: str, pointers: Sequence[PointerArg]) -> str:
        """Return the dtype that a C++ type stands for, inside a kernel."""
        if c_type in _FIXED:
            return _FIXED[c_type]
        for pointer in reversed(pointers):
            if self.types.name(pointer.dtypes) == c_type:
                return f"{pointer.name}.dtype.element_ty"
        raise NoPlainKernel("a dtype that no operand of the kernel has")

    def _row_kernel(
        self, wish: str, body: str, pointers: Sequence[tuple[str, Dtypes, bool]], numbers: Sequence[tuple[str, str]],
        arguments: Sequence[str], comment: str,
    ) -> None:  # fmt: skip
        if body not in _ROWS:
            raise NoPlainKernel(f"{wish.removesuffix('_rows')} in Triton")
        comment = comment.partition("\n")[0] + "\nFaster: join this with what comes before or behind it."
        super()._row_kernel(wish, _ROWS[body], pointers, numbers, arguments, comment)

    def _mover(self, name: str, *_kernel: object) -> None:
        raise OnlyViews("only views") if name == "moved" else NoPlainKernel(f"{name} in Triton")

    def _launch(self, kernel: EmittedKernel, arguments: Sequence[str]) -> None:
        if not kernel.body.startswith("    "):
            raise NoPlainKernel(f"{kernel.name} in Triton")
        like = (kernel.pointers, kernel.numbers, kernel.body)
        earlier = next((k for k in self.kernels if (k.pointers, k.numbers, k.body) == like), None)
        if earlier is None:
            self._used.add(kernel.name)
            self.kernels.append(kernel)
        names = [*(p.name for p in kernel.pointers), *(name for _kind, name in kernel.numbers)]
        operands = dict(zip(names, arguments, strict=True))
        if "rows" in operands:
            self.lines.append(f"width = triton.next_power_of_2({operands['n']})")
            self.lines.append("height = max(1, SPAN // width)")
            grid, blocks = f"triton.cdiv({operands['rows']}, height)", ["BLOCK=width", "HEIGHT=height"]
        else:
            grid, blocks = f"triton.cdiv({operands['n']}, SPAN)", ["BLOCK=SPAN"]
        call = wrapped_call(f"{(earlier or kernel).name}_kernel[({grid},)]", [*operands.values(), *blocks], 0)
        self.lines += call.split("\n")
        self.launches += 1


def triton_pass(part: Part, stem: str, doc: str) -> str:
    """Return the file of a pass with Triton kernels."""
    lowered = part.lowered
    first = next(part.names[value] for value in part.arguments if value not in part.form.literals)
    lowered.lines = [_on_device(line, first) for line in lowered.lines]
    note = "the elements of a program; the interpreter pays per program"
    lowered.lines.insert(0, f"SPAN = 1024 if {first}.is_cuda else 1 << 16  # {note}")
    pieces = [
        f'"""{doc}"""\n\nimport torch\nimport triton\nimport triton.language as tl\n',
        ROUNDED,
        *(
            text
            for name, text in FUNCTIONS.items()
            if any(f" {name}(" in k.body or f"({name}(" in k.body for k in lowered.kernels)
        ),
        *map(_kernel, lowered.kernels),
        pattern(part),
        *(TEXTS[name] for name in lowered.helpers),
        wrapper(part, stem),
        f"def replacement_func():\n    return {stem}\n",
    ]
    if any("operator." in piece for piece in pieces[1:]):
        pieces[0] = pieces[0].replace("import torch\n", "import operator\n\nimport torch\n", 1)
    return "\n\n".join(pieces)


def _kernel(kernel: EmittedKernel) -> str:
    names = [*(p.name for p in kernel.pointers), *(name for _kind, name in kernel.numbers), "BLOCK: tl.constexpr"]
    names += ["HEIGHT: tl.constexpr"] if "HEIGHT" in kernel.body else []
    head = wrapped_call(f"def {kernel.name}_kernel", names, 0)
    comment = "".join(f"# {line}\n" for line in kernel.comment.splitlines())
    return f"{comment}@triton.jit\n{head}:\n{kernel.body}\n"


def _on_device(line: str, like: str) -> str:
    match = re.match(r"\w+ = torch\.(empty|zeros|ones|full)\(.*\)$", line)
    return f"{line[:-1]}, device={like}.device)" if match else line
