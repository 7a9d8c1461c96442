"""Arguments of a kernel wrapper that are the same tensor, or that lie in each other's memory."""

from __future__ import annotations

import pytest

from shared.workspace import make_cpp_pass, make_wrapper

TRITON = """
import triton
import triton.language as tl

@triton.jit
def gelu_add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    at_out = out + at
    tl.store(at_out, 0.5 * v * (1 + tl.erf(v * 0.70710678118654752)) + tl.load(y + at, mask=at < n), mask=at < n)
"""


def by_cpp(out):
    return make_cpp_pass(out=out)


def by_triton(out):
    return make_wrapper(f"out = {out}\ngelu_add[(1,)](x, y, out, x.numel(), BLOCK=512)\nreturn out", TRITON)


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
APART, IN_PLACE = "torch.empty_like(x)", "x"
SAID = "argument a0, which the plan writes to, shares memory with argument a1"


def judged(bench, source, code, out, **settings):
    bench.task("t", source=source, shapes=((16, 32),))
    bench.candidate({"p": code(out)})
    (record,) = bench.judge(**settings).values()
    return record.arm


def test_a_value_that_is_passed_twice_is_one_tensor(bench):
    arm = judged(bench, ONE, by_cpp, f"{APART} if x is y and x.data_ptr() == y.data_ptr() else None")
    assert (arm.status, arm.message) == ("ran", "")


@pytest.mark.parametrize(
    "pipeline", ["direct", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dynamo", "inductor"))]
)
def test_reading_shared_memory_is_fine(bench, pipeline):
    arm = judged(bench, SHARED, by_cpp, APART, pipeline=pipeline)
    assert (arm.status, arm.message) == ("ran", "")


def test_writing_to_shared_memory_is_refused(bench):
    arm = judged(bench, SHARED, by_cpp, IN_PLACE)
    assert arm.status == "runtime_fail"
    assert SAID in arm.message.splitlines()[-1]


def test_triton_kernels_may_read_shared_memory(bench):
    pytest.importorskip("triton")
    assert judged(bench, SHARED, by_triton, APART).status == "ran"


def test_triton_kernels_may_not_write_to_shared_memory(bench):
    pytest.importorskip("triton")
    arm = judged(bench, SHARED, by_triton, IN_PLACE)
    assert arm.status == "runtime_fail"
    assert SAID in arm.message.splitlines()[-1]
