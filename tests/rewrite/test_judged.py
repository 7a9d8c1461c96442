"""Passes of the kinds that people and models write, from their files to a verdict."""

from __future__ import annotations

from typing import Any

import pytest

POOL = """
def forward(in_0):
    tmp_0 = torch.nn.functional.hardtanh(in_0, 0.0, 6.0, True)
    tmp_1 = torch.nn.functional.adaptive_avg_pool2d(tmp_0, (1, 1))
    return (tmp_1,)
"""
KERNEL = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""#include <algorithm>
#include <cstdint>
extern "C" void pool(const float* x, float* out, int64_t rows, int64_t columns, float low, float high) {
    for (int64_t i = 0; i < rows; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < columns; ++j) sum += std::min(std::max(x[i * columns + j], low), high);
        out[i] = sum / columns;
    }
}""")

def pool(x, low, high):
    n, c, h, w = x.shape
    out = torch.empty((n, c, 1, 1), dtype=x.dtype, device=x.device)
    lib.pool(x, out, n * c, h * w, low, high)
    return out
'''
IN_PLACE = """
def pattern(x, low, high):
    t = torch.nn.functional.hardtanh(x, low, high, True)
    return torch.nn.functional.adaptive_avg_pool2d(t, (1, 1))

def replacement_args(x, low, high):
    return (x, low, high)

def replacement_func():
    return pool
"""
GRAPH_AND_CLOSURE = """
def searched(x, low, high, inplace):
    t = torch.nn.functional.hardtanh(x, low, high, inplace)
    return torch.nn.functional.adaptive_avg_pool2d(t, (1, 1))

pattern = torch.fx.symbolic_trace(searched).graph

def replacement_args(x, low, high, inplace):
    return (x, low, high)

def replacement_func():
    return lambda *args: pool(*args)
"""
ANOTHER_PLAN = """
MADE = []

def pattern(x, low, high):
    t = torch.nn.functional.hardtanh(x, low, high)
    return torch.nn.functional.adaptive_avg_pool2d(t, (1, 1))

def replacement_args(x, low, high):
    return (x, low, high)

def replacement_func():
    MADE.append(None)
    number = len(MADE)
    return lambda x, low, high: pool(x, low, high + number)
"""


def judged(bench: Any, code: str, **settings: Any) -> Any:
    bench.task("pool", POOL, ((2, 3, 4, 4),), ops=("hardtanh", "adaptive_avg_pool2d"))
    bench.candidate({"pool_pass": KERNEL + code})
    return bench.judge(**settings)["pool/float32-x1"]


@pytest.mark.parametrize("pipeline", ["direct", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_graph_input_written_in_place(bench: Any, pipeline: str) -> None:
    record = judged(bench, IN_PLACE, pipeline=pipeline, budget=0.5)
    assert record.arm.status == "ran", record.arm.message
    assert record.correct
    assert record.passes[0].operators == ["adaptive_avg_pool2d"]


@pytest.mark.slow
def test_a_graph_for_a_pattern_and_a_closure_for_a_wrapper(bench: Any) -> None:
    record = judged(bench, GRAPH_AND_CLOSURE, budget=0.5)
    assert record.arm.status == "ran", record.arm.message
    assert record.correct


def test_a_closure_with_another_plan_each_time_is_refused(bench: Any) -> None:
    arm = judged(bench, ANOTHER_PLAN).arm
    assert (arm.status, arm.phase) == ("runtime_fail", "plan")
    assert "recorded twice, differs at step 2" in arm.message


AT_A_LEVEL = """
def forward(in_0):
    tmp_0 = torch.nn.functional.relu(in_0)
    tmp_1 = tmp_0 * 2.0
    tmp_2 = torch._functorch.predispatch._vmap_increment_nesting(6, 'error')
    tmp_3 = torch._functorch.predispatch._add_batch_dim(tmp_1, 0, 1)
    tmp_4 = torch.softmax(tmp_3, 0)
    tmp_5 = torch._functorch.predispatch._remove_batch_dim(tmp_4, 1, 6, 0)
    tmp_6 = torch._functorch.predispatch._vmap_decrement_nesting()
    return (tmp_5,)
"""
DOUBLED_RELU = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""#include <cstdint>
extern "C" void doubled(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = x[i] > 0 ? 2 * x[i] : 0;
}""")

def doubled(x):
    out = torch.empty_like(x)
    lib.doubled(x, out, x.numel())
    return out

def pattern(x):
    return torch.nn.functional.relu(x) * 2.0

def replacement_args(x):
    return (x,)

def replacement_func():
    return doubled
'''


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["direct", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_graph_with_a_level_of_vmap(bench: Any, pipeline: str) -> None:
    bench.task("level", AT_A_LEVEL, ((6, 8),), ops=("relu", "mul", "softmax"))
    bench.candidate({"doubled": DOUBLED_RELU})
    record = bench.judge(pipeline=pipeline, budget=0.5)["level/float32-x1"]
    assert record.arm.status == "ran", record.arm.message
    assert record.correct
    assert record.passes[0].operators == ["relu", "mul"]
