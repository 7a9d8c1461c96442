"""Arguments of a kernel wrapper that are the same tensor, or that lie in each other's memory."""

from __future__ import annotations

import pytest

#: gelu(x) + y by a kernel of the wrapper's own; the body says where its answer goes.
CPP = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include <cmath>
#include <cstdint>
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];
}""")

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args(x, y):
    return (x, y)

def gelu_add(x, y):
    BODY
    lib.gelu_add(x, y, out, x.numel())
    return out

def replacement_func():
    return gelu_add
'''
TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    at_out = out + at
    tl.store(at_out, 0.5 * v * (1 + tl.erf(v * 0.70710678118654752)) + tl.load(y + at, mask=at < n), mask=at < n)

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args(x, y):
    return (x, y)

def gelu_add(x, y):
    BODY
    kernel[(1,)](x, y, out, x.numel(), BLOCK=512)
    return out

def replacement_func():
    return gelu_add
"""
ONE = """
def forward(in_0):
    return (torch.nn.functional.gelu(in_0) + in_0,)
"""
#: The second operand lies in the first one's memory.
SHARED = """
def forward(in_0):
    x = torch.relu(in_0)
    y = x.view(-1).view(16, 32)
    return (torch.nn.functional.gelu(x) + y,)
"""
APART, IN_PLACE = "out = torch.empty_like(x)", "out = x"
SAID = "argument a0, which the plan writes to, shares memory with argument a1"


def judged(bench, source, code, body, **settings):
    bench.task("t", source=source, shapes=((16, 32),))
    bench.candidate({"p": code.replace("BODY", body)})
    (record,) = bench.judge(**settings).values()
    return record.arm


def test_a_value_that_is_passed_twice_is_one_tensor(bench):
    body = f"if x is not y or x.data_ptr() != y.data_ptr(): raise ValueError('two')\n    {APART}"
    arm = judged(bench, ONE, CPP, body)
    assert (arm.status, arm.message) == ("ran", "")


@pytest.mark.parametrize("pipeline", ["direct", "dynamo", pytest.param("inductor", marks=pytest.mark.slow)])
def test_reading_shared_memory_is_fine(bench, pipeline):
    arm = judged(bench, SHARED, CPP, APART, pipeline=pipeline)
    assert (arm.status, arm.message) == ("ran", "")


def test_writing_to_shared_memory_is_refused(bench):
    arm = judged(bench, SHARED, CPP, IN_PLACE)
    assert arm.status == "runtime_fail"
    assert SAID in arm.message.splitlines()[-1]


def test_triton_kernels_may_read_shared_memory(bench):
    pytest.importorskip("triton")
    assert judged(bench, SHARED, TRITON, APART).status == "ran"


def test_triton_kernels_may_not_write_to_shared_memory(bench):
    pytest.importorskip("triton")
    arm = judged(bench, SHARED, TRITON, IN_PLACE)
    assert arm.status == "runtime_fail"
    assert SAID in arm.message.splitlines()[-1]
