"""The teacher: it prints a whole pass for a graph, as regularly as can be, so that a small model can learn the text.

Names are the graph's own, the pattern is the graph's text, and the kernel has a statement for each operator. There
are three kernels: one sweep over all elements, one over rows if an input is a row, and a sweep of the row for each
operator if one works along rows. Values are rounded where eager stores them.
"""

from __future__ import annotations

from collections.abc import Sequence

from trained_model.graphs import Form, Statement, check, statements
from trained_model.operators import expression, number

HEAD = '''import operator

import torch

from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
'''
TAIL = '''
}}
extern "C" void fused({inputs}, pb::out {out}, {sizes}, pb::dtype dtype) {{
  pb::dispatch(dtype, [&](auto t) {{ run<decltype(t)>({names}, {out}, {size_names}); }});
}}
""", flags=("-ffp-contract=off",))


def pattern({names}):
{pattern}


def replacement_args({names}):
    return ({tuple})


def fused({names}):
    {out} = {empty}
    lib.fused({names}, {out}, {size_values}, {out}.dtype)
    return ({out},)


def replacement_func():
    return fused
'''
HELPERS = {
    "softmax": """template <class T, class X, class Y> void softmax(int64_t d, const X* x, float* space, Y* y) {
  float most = pb::greatest(d, [](vec x) { return x; }, x);
  float total = pb::map_sum(d, space, [=](vec x) { return pb::exp(x - most); }, x);
  pb::map(d, y, [=](vec x) { return pb::round<T>(x / total); }, space);
}
""",
    "layer_norm": """template <class T, class X, class Y, class... W>
void layer_norm(int64_t d, float eps, Y* y, const X* x, const W*... w) {
  float mean = pb::sum(d, [](vec x) { return x; }, x) / d;
  float var = pb::sum(d, [=](vec x) { return (x - mean) * (x - mean); }, x) / d;
  float scale = 1 / __builtin_sqrtf(var + eps);
  pb::map(d, y, [=](vec x, auto... w) { return pb::round<T>(affine((x - mean) * scale, w...)); }, x, w...);
}
""",
}
AFFINE = """inline vec affine(vec x) { return x; }
inline vec affine(vec x, vec w, vec b) { return x * w + b; }
"""


def answer(source: str, shapes: dict[str, tuple[int, ...]]) -> str:
    """Return the pass for a graph. Raises Unfit if there is none."""
    form, body = check(source, shapes), statements(source)
    if any(item.call.kind != "element" for item in body):
        return HEAD + _helpers(body) + _along_rows(body, shapes, form) + _tail(source, shapes, form, body, "rows")
    kernel = _over_rows(body, shapes, form) if form.has_rows else _over_all(body, shapes)
    return HEAD + kernel + _tail(source, shapes, form, body, "rows" if form.has_rows else "all")


def body_of(text: str) -> str:
    """Return the kernel's statements, the one part of a pass that its other parts do not determine."""
    return text[text.index(") {\n", text.index("void run(")) + 4 : text.index('\n}\nextern "C"')]


def with_body(text: str, body: str) -> str:
    """Return a pass with ``body`` in place of the statements of its kernel."""
    begin = text.index(body_of(text))
    return text[:begin] + body + text[begin + len(body_of(text)) :]


def _signature(shapes: dict[str, tuple[int, ...]], out: str, sizes: str) -> str:
    inputs = ", ".join(f"const T* {name}" for name in shapes)
    return f"template <class T> void run({inputs}, T* {out}, {sizes}) {{\n"


def _lambda(body: Sequence[Statement], shapes: dict[str, tuple[int, ...]], count: str, indent: str) -> str:
    """Return one sweep that has a statement for each operator."""
    lines = [f"{indent}pb::map({count}, {body[-1].target}, []({', '.join(f'vec {name}' for name in shapes)}) {{"]
    lines += [f"{indent}  vec {item.target} = pb::round<T>({expression(item.call)});" for item in body[:-1]]
    lines += [f"{indent}  return {expression(body[-1].call)};", f"{indent}}}, {', '.join(shapes)});"]
    return "\n".join(lines)


def _over_all(body: Sequence[Statement], shapes: dict[str, tuple[int, ...]]) -> str:
    return _signature(shapes, body[-1].target, "int64_t n") + _lambda(body, shapes, "n", "  ")


def _steps(shapes: dict[str, tuple[int, ...]], form: Form, out: str) -> str:
    """Return the head of the loop over rows: the pointers of full values go on by a row."""
    full = [name for name in (*shapes, out) if form.forms[name] == "full"]
    return f"  for (int64_t i = 0; i < rows; i++{''.join(f', {name} += d' for name in full)}) {{\n"


def _over_rows(body: Sequence[Statement], shapes: dict[str, tuple[int, ...]], form: Form) -> str:
    out = body[-1].target
    head = _signature(shapes, out, "int64_t rows, int64_t d") + _steps(shapes, form, out)
    return head + _lambda(body, shapes, "d", "    ") + "\n  }"


def _helpers(body: Sequence[Statement]) -> str:
    names = [name for name in HELPERS if any(item.call.name == name for item in body)]
    return (AFFINE if "layer_norm" in names else "") + "".join(HELPERS[name] for name in names)


def _along_rows(body: Sequence[Statement], shapes: dict[str, tuple[int, ...]], form: Form) -> str:
    """Return a kernel with a sweep of the row for each operator; a column's value is a vector of equal lanes."""
    out = body[-1].target
    text = _signature(shapes, out, "int64_t rows, int64_t d")
    for item in body[:-1]:
        if form.forms[item.target] != "column":
            text += f"  pb::buffer {item.target}_row(d);\n  float* {item.target} = {item.target}_row.data;\n"
    if any(item.call.name == "softmax" for item in body):
        text += "  pb::buffer space(d);\n"
    text += _steps(shapes, form, out)
    return text + "\n".join(f"    {_sweep(item, form, item is body[-1])}" for item in body) + "\n  }"


def _sweep(item: Statement, form: Form, last: bool) -> str:
    """Return the statement of an operator in a kernel along rows."""
    name, call = item.target, item.call
    if call.name == "softmax":
        return f"softmax<T>(d, {call.operands[0]}, space.data, {name});"
    if call.name == "layer_norm":
        return f"layer_norm<T>(d, {number(call.numbers[1])}, {name}, {', '.join(call.operands)});"
    if form.forms[name] == "column":
        value = f"pb::round<T>({_column(item)})"
        return f"pb::store({name} + i, {value}, 1);" if last else f"vec {name} = {value};"
    names = list(dict.fromkeys(name for name in call.tensors if form.forms[name] != "column"))
    parameters = ", ".join(f"vec {name}" for name in names)
    value = f"pb::round<T>({expression(call)})"
    return f"pb::map(d, {name}, [=]({parameters}) {{ return {value}; }}, {', '.join(names)});"


def _column(item: Statement) -> str:
    if item.call.kind == "element":
        return expression(item.call)
    total = f"pb::sum(d, [](vec x) {{ return x; }}, {item.call.operands[0]})"
    return f"pb::all({total} / d)" if item.call.name == "mean" else f"pb::all({total})"


def _tail(source: str, shapes: dict[str, tuple[int, ...]], form: Form, body: Sequence[Statement], loops: str) -> str:
    out, names = body[-1].target, list(shapes)
    full = next(name for name in names if form.forms[name] == "full")
    column = form.forms[out] == "column"
    rows = f"{full}.numel() // {full}.shape[-1], {full}.shape[-1]"
    return TAIL.format(
        out=out,
        names=", ".join(names),
        inputs=", ".join(f"pb::in {name}" for name in names),
        tuple=", ".join(names) + ("," if len(names) == 1 else ""),
        sizes="int64_t n" if loops == "all" else "int64_t rows, int64_t d",
        size_names="n" if loops == "all" else "rows, d",
        size_values=f"{full}.numel()" if loops == "all" else rows,
        empty=f"torch.empty((*{full}.shape[:-1], 1), dtype={full}.dtype)" if column else f"torch.empty_like({full})",
        pattern="\n".join(source.strip().splitlines()[1:]),
    )
