"""Recording kernel wrappers: a plan's steps, what is refused with which message, and a replay with the same bits."""

from __future__ import annotations

import json
import random

import pytest
import torch

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.kernels import cpp
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import Allocate, Argument, Copy, Fill, Form, Launch, Operator, Request, contiguous
from pytest_passbench.plans.written import written
from pytest_passbench.reader import launches
from pytest_passbench.reader.importing import load_passes
from pytest_passbench.reader.main import record
from pytest_passbench.runner.plan_runtime import WrongArgument
from pytest_passbench.runner.replay import cpp_function, poison, replay
from support.paths import ROOT

SOURCE = """
#include <cstdint>
extern "C" void twice(const float* x, float* out, int64_t n) { for (int64_t i = 0; i < n; i++) out[i] = 2 * x[i]; }
extern "C" int64_t count(const float* x) { return 1; }
"""
FUSED = ROOT / "candidates" / "cpu-fused"


@pytest.fixture
def lib(monkeypatch):
    monkeypatch.setattr(launches, "libraries", [])
    return launches.load_library(SOURCE)


def recorded(wrapper, *forms, policy="kernels", sequence=False, outputs=1, arguments=None, seed=0):
    tensors = tuple(Argument(form if isinstance(form, Form) else contiguous("float32", form)) for form in forms)
    given = arguments if arguments is not None else tuple({"tensor": index} for index in range(len(tensors)))
    request = Request("p", given, tensors, outputs, sequence)
    return record(request, wrapper, policy, random.Random(seed))


def test_allocate_and_launch(lib):
    def wrapper(x):
        out = torch.empty_like(x)
        lib.twice(x, out, x.numel())
        return out

    plan = recorded(wrapper, (4, 8))
    assert [type(step) for step in plan.steps] == [Allocate, Launch]
    assert plan.steps[1].arguments[2] == 32
    assert plan == recorded(wrapper, (4, 8), seed=5)
    assert parse.plan(json.loads(json.dumps(plan.to_data())), plan.tensors) == plan


def test_what_did_nothing_is_not_in_the_plan_and_views_are_operands(lib):
    def wrapper(x):
        y = x.contiguous().view(8, 4).t()
        out = torch.zeros(4, 8)
        lib.twice(y.data_ptr() + 16, out[1:], 24)
        return out.t()

    plan = recorded(wrapper, (4, 8))
    assert [type(step) for step in plan.steps] == [Allocate, Launch]
    assert plan.steps[0].fill == 0
    assert [operand.offset for operand in plan.steps[1].arguments[:2]] == [16, 32]
    assert (plan.returns[0].form.shape, plan.returns[0].form.strides) == ((8, 4), (1, 8))


@pytest.mark.parametrize(
    "reshaped",
    [lambda x: x.t().reshape(-1), lambda x: x.t().flatten(), lambda x: x[:, None].expand(4, 2, 8).reshape(8, 8)],
)
def test_a_reshape_that_copies_is_a_copy_and_a_view_of_it(lib, reshaped):
    def wrapper(x):
        flat, out = reshaped(x), torch.empty(1)
        lib.twice(flat, out, 1)
        return out

    plan = recorded(wrapper, (4, 8))
    assert [type(step) for step in plan.steps] == [Allocate, Copy, Allocate, Launch]
    assert plan.steps[3].arguments[0].form == contiguous("float32", tuple(reshaped(torch.empty(4, 8)).shape))


def test_a_reshape_without_a_copy_gives_no_memory_that_a_view_does_not(lib):
    def wrapper(x):
        out = torch.empty(8)
        lib.twice(torch.ops.aten._unsafe_view(x, [32])[8:], out, 8)
        return out

    plan = recorded(wrapper, (4, 8))
    operand = plan.steps[1].arguments[0]
    assert (operand.source, operand.offset, operand.form.shape) == ("argument", 32, (24,))


def test_copies(lib):
    def wrapper(x):
        dense = x.t().contiguous()
        out = torch.full((8, 4), 3.0)
        out[0].copy_(dense[1])
        out[2:].fill_(1.5)
        lib.twice(dense, out, 4)
        return out

    kinds = [type(step) for step in recorded(wrapper, (4, 8)).steps]
    assert kinds == [Allocate, Copy, Allocate, Copy, Fill, Launch]


def test_a_tensor_that_is_passed_twice_is_the_same_and_others_share_nothing(lib):
    def wrapper(x, y):
        out = torch.empty_like(x)
        lib.twice(x, out, 1 if x is y else 2 if x.data_ptr() == y.data_ptr() else 3)
        return out

    same = recorded(wrapper, (4,), arguments=({"tensor": 0}, {"tensor": 0}))
    assert same.steps[1].arguments[2] == 1
    assert recorded(wrapper, (4,), (4,)).steps[1].arguments[2] == 3


def test_a_constant_table(lib):
    table = torch.arange(4.0)

    def wrapper(x):
        out = torch.empty(4)
        lib.twice(table, out, 4)
        return out

    plan = recorded(wrapper, (4,))
    assert plan.steps[1].arguments[0].source == "table"
    assert bytes.fromhex(plan.tables[0].content) == table.numpy().tobytes()
    big = torch.zeros(1 << 20)
    with pytest.raises(Rejected, match=r"uses a tensor of 4194304 bytes made outside the call; .* 512 KiB"):
        recorded(lambda x: lib.twice(big, x, 4) or x, (4,))


def test_the_open_policy_records_operators():
    def wrapper(x, y):
        return torch.nn.functional.gelu(x).mul_(2).view(8, 4) @ y, x + 1

    plan = recorded(wrapper, (4, 8), (4, 2), policy="open", sequence=True, outputs=2)
    assert [step.name for step in plan.steps if isinstance(step, Operator)] == [
        "aten.gelu.default", "aten.mul_.Tensor", "aten.mm.default", "aten.add.Tensor",
    ]  # fmt: skip
    call = replay(plan, [], "cpu", True, []).call
    x, y = torch.randn(4, 8), torch.randn(4, 2)
    for one, other in zip(call(x, y), wrapper(x, y), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    ("wrapper", "said"),
    [
        (lambda lib, x: torch.relu(x), r"computes with torch \(aten.relu.default\)"),
        (lambda lib, x: x.to(torch.float16), r"computes with torch \(aten._to_copy.default\)"),
        (lambda lib, x: x * x.sum().item(), "computes with torch"),
        (lambda lib, x: x[int(x[0, 0])], "reads a tensor's value"),
        (lambda lib, x: x.numpy() + 1, r"reads a tensor's values \(.numpy\)"),
        (lambda lib, x: x.tolist(), r"reads a tensor's values \(.tolist\)"),
        (lambda lib, x: lib.twice(x, x, x.data_ptr()), "passes an address as a number"),
        (lambda lib, x: lib.twice(1 << 40, x, 1), "passes an address that lies in no tensor of this call"),
        (lambda lib, x: lib.count(x), "uses the number that the kernel count returns"),
        (lambda lib, x: None, "returns nothing, not a tensor"),
        (lambda lib, x: (x, x), "returns a tuple, not a tensor"),
        (lambda lib, x: x.as_strided((4,), (1,), 0).resize_(64), "changes what memory a tensor has"),
        (lambda lib, x: x.nonzero(), "computes a shape from a tensor's values"),
    ],
)
def test_refusals(lib, wrapper, said):
    with pytest.raises(Rejected, match=said):
        recorded(lambda x: wrapper(lib, x), (4, 8))


def test_a_wrong_number_of_results():
    with pytest.raises(Rejected, match="returns 3 values, and the pattern returns 2"):
        recorded(lambda x: (x, x, x), (4,), sequence=True, outputs=2)


def test_a_kernel_s_arguments_are_checked_as_when_it_is_called(lib):
    with pytest.raises(TypeError, match=r"argument 1 of twice: a tensor of shape .* is not contiguous"):
        recorded(lambda x: lib.twice(x.t(), x, 1), (4, 8))
    with pytest.raises(TypeError, match="argument 3 of twice: an integer is needed here, not float"):
        recorded(lambda x: lib.twice(x, x, 1.5), (4, 8))


# -- replay --


def built(plan):
    kernels = []
    for kernel in plan.kernels:
        library = cpp.CppLibrary(kernel.source, cpp.BASE_FLAGS).build()
        parameters = launches.signatures.parse(kernel.source)[kernel.function].parameters
        kernels.append(cpp_function(__import__("ctypes").CDLL(str(library.path)), kernel.function, parameters))
    return kernels


def passes(monkeypatch, stand_in):
    with monkeypatch.context() as patched:
        if stand_in:
            patched.setattr(cpp, "load", launches.load_library)
        return {item.name: item.wrapper for item in load_passes(FUSED, list(CASES))}


CASES = {
    "quick_gelu": ([(4, 96)], ()),
    "silu_mul": ([(4, 96), (4, 96)], ()),
    "gelu_mul": ([(4, 96), (4, 96)], ()),
    "relu_squared": ([(4, 96)], ()),
    "add_relu": ([(4, 96), (4, 96)], ()),
    "sigmoid_mul": ([(4, 96), (4, 96)], ()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_replay_gives_the_wrapper_s_bits(monkeypatch, name, dtype):
    shapes, more = CASES[name]
    forms = [contiguous(dtype, shape) for shape in shapes]
    given = (*({"tensor": index} for index in range(len(forms))), *more)
    try:
        plan = recorded(passes(monkeypatch, True)[name], *forms, arguments=given)
    except TypeError as error:
        pytest.fail(f"the case does not fit the pass: {error}")
    call = replay(plan, built(plan), "cpu", False, []).call
    tensors = [torch.randn(shape, dtype=getattr(torch, dtype)) for shape in shapes]
    expected = passes(monkeypatch, False)[name](*tensors, *more)
    assert torch.equal(call(*tensors), expected)
    assert call(*tensors).stride() == expected.stride()


def test_replay_guards_what_was_assumed(lib):
    plan = recorded(lambda x: lib.twice(x, x, 4) or x, (4,))
    call = replay(plan, built(plan), "cpu", False, []).call
    with pytest.raises(AssertionError):
        call(torch.zeros(5))
    with pytest.raises(WrongArgument, match="another dtype"):
        call(torch.zeros(4, dtype=torch.float64))
    with pytest.raises(WrongArgument, match="alignment"):
        call(torch.zeros(5)[1:])


def guarded(plan):
    """Return the plan as a template calls it: its kernels' signatures determine what it writes to."""
    parameters = [launches.signatures.parse(kernel.source)[kernel.function].written for kernel in plan.kernels]
    return replay(plan, built(plan), "cpu", False, [], written(plan, parameters)).call


def into_x(lib, x, y):
    lib.twice(y, x, 4)
    return x


def filled(lib, x, y):
    out = torch.empty(4)
    lib.twice(y, out, 4)
    x.fill_(3)
    return out


def copied(lib, x, y):
    out = torch.empty(4)
    lib.twice(y, out, 4)
    x[1:].copy_(out[1:])
    return out


@pytest.mark.parametrize("wrapper", [into_x, filled, copied])
def test_memory_that_is_written_to_is_no_other_argument_s(lib, wrapper):
    call = guarded(recorded(lambda x, y: wrapper(lib, x, y), (4,), (4,)))
    memory = torch.ones(16)
    assert call(memory[:4], memory[4:8]).eq(2).all()
    assert call(memory[8:12], memory[4:8]).eq(2).all()
    said = "argument a0, which the plan writes to, shares memory with argument a1; a plan is recorded on"
    for x, y in ((0, 0), (0, 3), (3, 0)):
        with pytest.raises(WrongArgument, match=said):
            call(memory.as_strided((4,), (1,), x), memory.as_strided((4,), (1,), y))


def test_memory_that_is_only_read_may_be_shared(lib):
    def wrapper(x, y):
        out = torch.empty(8)
        lib.twice(x, out, 4)
        lib.twice(y, out[4:], 4)
        return out

    memory = torch.arange(8.0)
    call = guarded(recorded(wrapper, (4,), (4,)))
    assert torch.equal(call(memory[:4], memory[:4]), 2 * memory[:4].repeat(2))


def test_an_operator_in_place_writes_to_its_argument():
    plan = recorded(lambda x, y: x.add_(y), (4,), (4,), policy="open")
    assert written(plan, []) == {0}
    assert written(recorded(lambda x, y: x.add(y).mul_(y), (4,), (4,), policy="open"), []) == set()


def test_poisoned_memory_shows_what_is_not_written(lib):
    def wrapper(x):
        out = torch.empty(8)
        lib.twice(x, out, 4)
        return out

    plan = recorded(wrapper, (4,))
    replayed = replay(plan, built(plan), "cpu", False, [])
    poison([replayed], seed=1)
    found = replayed.call(torch.ones(4))
    assert found[:4].eq(2).all()
    assert not found[4:].eq(0).any()
