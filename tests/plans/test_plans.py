"""Launch plans and traced functions as data: they survive the way there and back, and malformed ones are refused."""

from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans import graphs, parse, values
from pytest_passbench.plans.launch import (
    Allocate,
    Argument,
    ConstantTable,
    Copy,
    CppKernel,
    Fill,
    Form,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    Request,
    TritonKernel,
    TritonLaunch,
    TritonType,
    Tuned,
    contiguous,
)
from pytest_passbench.plans.written import written
from pytest_passbench.reader.trace import parameters, trace

PLAIN = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(max_size=20)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool])
LEAVES = PLAIN | DTYPES | st.just(Ellipsis) | st.complex_numbers() | st.just(torch.device("cuda", 1))
CONSTANTS = st.recursive(LEAVES, lambda item: st.lists(item, max_size=4) | st.tuples(item, item), max_leaves=12)


@given(CONSTANTS)
def test_constants_travel(value):
    assert repr(values.decode(json.loads(json.dumps(values.encode(value))))) == repr(value)


def test_slices_and_dictionaries_travel():
    value = (slice(None, 3, -1), {"k": [1, torch.float16]})
    assert values.decode(values.encode(value)) == value


@pytest.mark.parametrize(
    "data",
    [1 << 63, {"dtype": "float99"}, {"node": 0}, {}, {"a": 1, "b": 2}, {"slice": [1]}, {"float": "1e5"}, "x" * 5000,
     {"device": "nowhere"}, {"dict": [[1, 2]]}, {"tuple": 3}],
)  # fmt: skip
def test_what_is_no_constant_is_refused(data):
    with pytest.raises(Rejected):
        values.decode(data)


def pattern(x, w, n):
    y = F.layer_norm(x.view(x.size(0), n, -1), (8,), w, None, 1e-5)
    y = torch.ops.aten.mul.Tensor(y, 2.0)
    return y[..., 1:].contiguous(), torch.cat([y, y], dim=-1).to(torch.float16)


def test_a_traced_function_travels():
    data = json.loads(json.dumps(graphs.to_data(trace("p", "pattern", pattern, parameters(pattern)))))
    back = graphs.from_data(data)
    assert graphs.to_data(back) == data
    x, w = torch.randn(2, 24), torch.randn(8)
    module = torch.fx.GraphModule({}, back.graph)
    for one, other in zip(module(x, w, 3), pattern(x, w, 3), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"calls": [["call_function", "os.system", ["true"], {}]]}, "no function of torch"),
        ({"calls": [["call_function", "torch.ops.aten.from_file", [], {}]]}, "no function of torch"),
        ({"calls": [["call_method", "x y", [], {}]]}, "not an identifier"),
        ({"calls": [["get_attr", "x", [], {}]]}, "not one of call_function, call_method"),
        ({"calls": [["call_function", "torch.relu", [{"node": 5}], {}]]}, "an earlier call"),
        ({"arguments": ["x"] * 5000}, "has 5000 items"),
        ({"result": {"node": -1}}, "an earlier call"),
    ],
)
def test_what_is_no_traced_function_is_refused(change, said):
    data = {"arguments": ["x"], "calls": [], "result": {"node": 0}, **change}
    with pytest.raises(Rejected, match=said):
        graphs.from_data(data)


X = Argument(contiguous("float32", (4, 8)))
WHOLE = Operand("argument", 0, 0, X.form)
OUT = Operand("buffer", 0, 0, X.form)
ROW = Operand("argument", 0, 32, Form("float32", (8,), (1,)))
PLAN = LaunchPlan(
    (X,),
    (ConstantTable("00112233"),),
    (CppKernel("source", ("-O2",), True, "f"), TritonKernel("{}")),
    (
        Allocate(X.form),
        Allocate(contiguous("int32", (3,)), 7),
        Fill(OUT, math.inf),
        Copy(Operand("buffer", 0, 32, ROW.form), ROW),
        Copy(Operand("buffer", 1, 0, Form("int32", (1,), (1,))), Operand("table", 0, 0, Form("int32", (1,), (1,)))),
        Launch(0, (WHOLE, OUT, None, 3, 2.5, True, torch.bfloat16)),
        TritonLaunch(1, (4, 1, 1), (("x", WHOLE), ("n", 8), ("t", TritonType("float32"))), (("num_warps", 4),)),
        Tuned(((TritonLaunch(1, (1, 1, 1), (), ()),), (Fill(OUT, 0), TritonLaunch(1, (2, 1, 1), (), ())))),
        Operator("aten.mul.Tensor", (WHOLE, 2.0), (), (Operand("buffer", 2, 0, X.form),)),
    ),
    (OUT, Operand("buffer", 1, 4, Form("int32", (1,), (1,)))),
)
TABLE = Operand("table", 0, 0, Form("int32", (1,), (1,)))


def test_a_plan_travels():
    assert parse.plan(json.loads(json.dumps(PLAN.to_data())), PLAN.tensors) == PLAN
    request = Request("p", ({"tensor": 0}, 3, {"dtype": "float32"}), (X,), 2, True)
    assert parse.request(json.loads(json.dumps(request.to_data()))) == request


BEYOND = Operand("argument", 0, 4, X.form)


@pytest.mark.parametrize(
    ("steps", "returns", "said"),
    [
        ((), (OUT,), "in the buffer 0, which does not exist"),
        ((Allocate(X.form),), (OUT,), "returns memory that no step wrote"),
        ((), (BEYOND,), "goes beyond its argument"),
        ((), (TABLE,), "returns a tensor made outside the call"),
        ((Allocate(contiguous("float32", (1 << 40,))),), (), "larger than any memory"),
        ((Allocate(contiguous("uint8", (1 << 34,))),), (), "allocates more than"),
        ((Fill(TABLE, 0),), (), "writes to a tensor made outside the call"),
        ((Copy(WHOLE, ROW),), (), "different dtypes or shapes"),
        ((Launch(1, ()),), (), "another kind of kernel"),
        ((Launch(9, ()),), (), "a kernel that the plan does not have"),
        ((TritonLaunch(1, (-1, 1, 1), (), ()),), (), "is -1, not in 0 to"),
        ((TritonLaunch(1, (1, 1, 1), (("x y", 1),), ()),), (), "not an identifier"),
        ((Tuned(()),), (), "has 0 items, not 1 to 256"),
        ((Allocate(X.form),) * 600, (), "has 600 items, not 0 to 512"),
    ],
)
def test_what_is_no_plan_is_refused(steps, returns, said):
    plan = LaunchPlan(PLAN.tensors, PLAN.tables, PLAN.kernels, steps, returns)
    with pytest.raises(Rejected, match=said):
        parse.plan(plan.to_data(), PLAN.tensors)


def test_what_a_plan_writes_to():
    tensors = tuple(X for _ in range(7))
    x = [Operand("argument", index, 0, X.form) for index in range(7)]
    tuned = Tuned(((Fill(x[3], 0), TritonLaunch(1, (1, 1, 1), (("p", x[4]), ("q", x[5])), ())),))
    steps = (Allocate(X.form), Fill(x[0], 1), Copy(x[1], x[6]), Launch(0, (x[6], x[2], OUT)), tuned)
    plan = LaunchPlan(tensors, (), PLAN.kernels, steps, (OUT,))
    assert written(plan, [frozenset({1, 2}), frozenset({"q"})]) == {0, 1, 2, 3, 5}


@pytest.mark.parametrize("content", [" " * 40 + "00", "0", "0x", "é0"])
def test_a_table_has_the_bytes_that_it_says(content):
    with pytest.raises(Rejected, match="hexadecimal"):
        parse.plan(LaunchPlan((X,), (ConstantTable(content),), (), (), ()).to_data(), (X,))


def test_tables_are_small():
    plan = LaunchPlan((X,), (ConstantTable("00" * 600_000),), (), (), ())
    with pytest.raises(Rejected):
        parse.plan(plan.to_data(), (X,))
