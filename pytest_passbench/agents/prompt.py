"""The prompt of a task: its graphs, the rules in short, an example of a pass, and how much there is to gain."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import indent

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.task import Subgraph, Task

MAX_GRAPHS_CHARACTERS = 12_000
MAX_SUBGRAPHS = 6  # subgraphs of a graph whose inputs are listed

RULES = """\
Write passes that make these graphs faster on a CPU and give the same results.

A pass is a Python file with three functions. `pattern` has the operators that it replaces, written in PyTorch; its
arguments bind whatever stands there, and values that are used outside are returned. `replacement_args` names what the
kernel's wrapper gets. `replacement_func` returns the wrapper: it allocates the results and calls a kernel in C++.

- The wrapper is recorded, not timed. It may allocate, take views, and branch on shapes, strides and dtypes. Any torch
  operator that computes, a cast included, breaks the rules; so does reading a tensor's values, or keeping state.
- Results have eager's shape, dtype and strides. Round where eager stores a value: `pb::round<T>(x)`.
- `passbench.h` has, on registers of floats: exp expm1 log log1p tanh erf sigmoid sqrt gelu gelu_tanh silu softplus
  relu min max abs all(constant); over n elements: map, sum, greatest, map_sum, map_greatest.
- Inputs differ in every call, and are not written to. Anything that deceives the judge makes the attempt worth 0.
- A judged attempt counts more the further it gets: its files are read, a pattern matches, kernels compile and run,
  more subgraphs are right, and, once all are right, it is faster than eager. The best attempt counts.
"""

EXAMPLE = '''\
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
template <class T> void run(const T* x, const T* y, T* out, int64_t n) {
  pb::map(n, out, [](vec a, vec b) { return pb::round<T>(pb::tanh(a)) - b; }, x, y);
}
extern "C" void tanh_sub(pb::in x, pb::in y, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) { run<decltype(t)>(x, y, out, n); });
}
""")


def pattern(x, y):
    return torch.tanh(x) - y


def replacement_args(x, y):
    return x, y


def tanh_sub(x, y):
    if x.shape != y.shape or not x.is_contiguous() or not y.is_contiguous():
        raise ValueError("tanh_sub: no kernel for these operands")
    out = torch.empty_like(x)
    lib.tanh_sub(x, y, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return tanh_sub
'''
"""A pass for another graph than any task's: tanh(x) - y on contiguous operands of one shape."""


def prompt(task: Task) -> str:
    """Return the prompt of a task."""
    most = task.header.headroom
    gain = f"The head-room: at most {float(f'{most:.2g}'):,.15g} times as fast as eager.\n" if most else ""
    return "\n".join([
        RULES,
        f"An example, for another graph, tanh_sub.py:\n\n{indent(EXAMPLE, '    ')}",
        f"The task {task.id}: {', '.join(task.header.ops)}; {counted(len(task.subgraphs), 'subgraph')} to get right.",
        gain + "\n".join(_graphs(task)),
    ])  # fmt: skip


def _graphs(task: Task) -> Iterator[str]:
    """Yield each graph with the inputs of some of its subgraphs, as many as there is room for."""
    room = MAX_GRAPHS_CHARACTERS
    for number, (name, source) in enumerate(task.graphs.items()):
        subgraphs = [item for item in task.subgraphs if item.graph == name]
        rows = [_inputs(item) for item in subgraphs[:MAX_SUBGRAPHS]]
        if len(subgraphs) > MAX_SUBGRAPHS:
            rows.append(f"  and {len(subgraphs) - MAX_SUBGRAPHS} more with other shapes or dtypes")
        text = "\n".join([f"\n{name}:", indent(source.rstrip(), "    "), *rows])
        if number and len(text) > room:
            yield f"\nand {counted(len(task.graphs) - number, 'more graph')} of the same operators"
            return
        room -= len(text)
        yield text


def _inputs(subgraph: Subgraph) -> str:
    inputs = ", ".join(f"{spec.name} {spec.dtype} {list(spec.shape)}" for spec in subgraph.inputs)
    return f"  {subgraph.id}: {inputs}"
