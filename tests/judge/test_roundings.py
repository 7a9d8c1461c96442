"""A wrong answer in half precision names the first operator whose rounding it leaves out, and how to round."""

from __future__ import annotations

import pytest
import torch

from pytest_passbench.api.feedback import text as feedback
from pytest_passbench.core.escape import line
from pytest_passbench.report.failure_text import describe
from pytest_passbench.runner.roundings import rounding_search
from pytest_passbench.suite.build import build_graph

GRAPH = """
def forward(in_0, in_1):
    tmp_0 = in_0 + in_1
    tmp_1 = tmp_0 * 1.7
    tmp_2 = tmp_1.reshape(-1, 32)
    tmp_3 = tmp_2 - in_0
    return (tmp_3,)
"""
PASS = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
template <class T> void run(const T* x, const T* y, T* out, int64_t n) {{
  pb::map(n, out, [](pb::vec a, pb::vec b) {{
    pb::vec sum = {0};
    pb::vec g = {1};
    return g - a;
  }}, x, y);
}}
extern "C" void fused(pb::in x, pb::in y, pb::out out, int64_t n, pb::dtype dtype) {{
  pb::dispatch(dtype, [&](auto t) {{ run<decltype(t)>(x, y, out, n); }});
}}
""")


def pattern(x, y):
    return ((x + y) * 1.7).reshape(-1, 32) - x


def replacement_args(x, y):
    return x, y


def fused(x, y):
    out = torch.empty_like(x)
    lib.fused(x, y, out, x.numel(), x.dtype)
    return out


def replacement_func():
    return fused
'''
ROUNDED = "pb::round<T>(a + b)", "pb::round<T>(sum * 1.7f)"
UNROUNDED = "a + b", "sum * 1.7f"
CASES = {
    "first": (UNROUNDED[0], ROUNDED[1], "tmp_0 = in_0 + in_1"),
    "second": (ROUNDED[0], UNROUNDED[1], "tmp_1 = tmp_0 * 1.7"),
    "both": (UNROUNDED[0], UNROUNDED[1], "tmp_0 = in_0 + in_1"),
    "none": (*ROUNDED, None),
    "wrong": ("a - b", ROUNDED[1], None),
}


@pytest.mark.parametrize(
    "change",
    ["tmp_0 += in_0", "tmp_0[0] = 1.0", "tmp_0.mul_(in_0)", "torch.mul(tmp_0, in_0, out=tmp_0)",
     "torch.nn.functional.relu(tmp_0, inplace=True)", ""],
)  # fmt: skip
def test_a_graph_that_changes_values_in_place_is_not_searched(change):
    text = f"def forward(in_0):\n    tmp_0 = in_0 * 1.7\n    {change}\n    tmp_1 = tmp_0 * 3\n    return (tmp_1,)"
    x = torch.linspace(1, 2, 64, dtype=torch.bfloat16).reshape(8, 8)
    (result,) = rounding_search(build_graph(text, "test"))(x, torch.zeros_like(x))
    assert bool(result.any()) == (change == "")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_first_rounding_that_an_answer_leaves_out_is_named(bench, dtype):
    for name, (first, second, _line) in CASES.items():
        bench.task(name, source=GRAPH, ops=("add", "mul", "reshape", "sub"), dtypes=(dtype,))
        text = PASS.replace("{0}", first).replace("{1}", second).replace("{{", "{").replace("}}", "}")
        bench.candidate({"fused": text}, task=name)
    records = bench.judge()
    for name, (_first, _second, assignment) in CASES.items():
        record = records[f"{name}/{dtype}-x1"]
        assert record.correct == (name == "none"), (name, record.arm)
        if assignment is None:
            assert record.arm.rounding == ""
        else:
            begin = f"eager rounds the result of {assignment}, and the answer fits a kernel that does not"
            assert record.arm.rounding.startswith(begin), name
            assert ("(with tmp_1 unrounded too)" in record.arm.rounding) == (name == "both")
            assert "\n  rounding  eager rounds the result of" in describe([record])
            assert line(record.arm.rounding, 500) in feedback([record], 1, "")
            assert record.arm.rounding.endswith("v = v.to(x.dtype).to(tl.float32)")
