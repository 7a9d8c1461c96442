"""Arguments of a kernel wrapper, and outputs, that are the same tensor or share memory."""

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
TWO_OUTPUTS = """
def forward(in_0, in_1):
    tmp_0 = torch.nn.functional.gelu(in_0)
    tmp_1 = tmp_0 + in_1
    tmp_2 = tmp_1[1:]
    tmp_3 = tmp_2.clone()
    return (tmp_1, tmp_3)
"""
TWO_RESULTS = """    both = torch.nn.functional.gelu(x) + y
    part = both[1:]
    return both, part.clone()
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


@pytest.mark.parametrize(("second", "status"), [("out[1:]", "type_mismatch"), ("out[1:].clone()", "ran")])
def test_an_output_inside_anothers_memory_is_no_copy(bench, second, status):
    bench.task(source=TWO_OUTPUTS, ops=("gelu", "add", "getitem", "clone"))
    text = make_cpp_pass().replace("    return torch.nn.functional.gelu(x) + y\n", TWO_RESULTS)
    bench.candidate({"p": text.replace("    return out\n", f"    return out, {second}\n")})
    (record,) = bench.judge().values()
    assert record.arm.status == status
    assert status == "ran" or record.arm.message == "output 1 shares memory that eager's does not share"
