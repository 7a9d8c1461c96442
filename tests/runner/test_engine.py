"""Launch plans by the engine: the same bits as in Python, whatever the plan; and whole blocks of calls."""

from __future__ import annotations

import ctypes
import math
import operator
import os
import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.fx import Graph, GraphModule, symbolic_trace
from torch.nn import functional as F

from pytest_passbench.core.paths import ENGINE
from pytest_passbench.core.task import TensorSpec
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.judge.native_library import compiled, descriptor
from pytest_passbench.kernels import cpp, toolchain
from pytest_passbench.plans.launch import (
    Allocate,
    Argument,
    ConstantTable,
    Copy,
    Fill,
    Form,
    Launch,
    LaunchPlan,
    Operand,
    contiguous,
)
from pytest_passbench.protocol import ENTRY
from pytest_passbench.rewrite.meta import forget_values, record_values
from pytest_passbench.runner.engine import Engine
from pytest_passbench.runner.native_code import NotNative
from pytest_passbench.runner.native_graph import empty_block, native_graph
from pytest_passbench.runner.output_tables import OutputTables
from pytest_passbench.runner.pages import MappedPages
from pytest_passbench.runner.replay import cpp_function, poison, replay
from shared.workspace import GELU_ADD_KERNEL, Workspace, make_cpp_pass

#: Kinds of parameters, as ``kernels.signatures`` names them, and the types in C++.
TYPES = {
    "int8": "int8_t", "uint8": "uint8_t", "int16": "int16_t", "uint16": "uint16_t", "int32": "int32_t",
    "uint32": "uint32_t", "int64": "int64_t", "uint64": "uint64_t", "bool": "bool", "float32": "float",
    "float64": "double", "dtype": "int32_t",
}  # fmt: skip
#: Parameters after the output's pointer. They are passed in registers and on the stack, with kinds in any order.
SIGNATURES = [
    ("int64", "float32"),
    ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"),
    ("float64", "int64") * 7,
    ("float32",) * 8 + ("int32",) * 12,
    ("int8", "float32", "bool", "float64", "uint64", "int16") * 2 + ("int64",) * 20,
    ("uint16",) * 50,
    ("float32", "int64", "float64") * 12,
    ("float64",) * 30 + ("int8", "float32"),
]
WORKS = """
extern "C" void add(const float* x, const float* y, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + y[i];
}
"""


def source():
    """Return kernels that write each argument's value to their output, 8 bytes for each, and one that adds."""
    text = "#include <cstdint>\n#include <cstring>\n" + WORKS
    for number, kinds in enumerate(SIGNATURES):
        parameters = ", ".join(f"{TYPES[kind]} p{index}" for index, kind in enumerate(kinds))
        lines = "".join(f"std::memcpy(out + {8 * i}, &p{i}, sizeof p{i});" for i in range(len(kinds)))
        text += f'extern "C" void f{number}(char* out, {parameters}) {{ {lines} }}\n'
    return text


@pytest.fixture(scope="module")
def engine():
    with compiled(ENGINE) as path:
        return Engine(str(path))


@pytest.fixture(scope="module")
def library():
    return ctypes.CDLL(str(cpp.CppLibrary(source(), cpp.BASE_FLAGS).build().path))


def values(kind):
    if kind == "bool":
        return st.booleans()
    if kind == "dtype":
        return st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
    if kind.startswith("float"):
        width = int(kind.removeprefix("float"))
        return st.floats(width=width, allow_nan=False) | st.just(math.nan) | st.integers(-(1 << 20), 1 << 20)
    bits, signed = int(kind.removeprefix("u").removeprefix("int")), kind.startswith("int")
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


@st.composite
def launches(draw):
    number = draw(st.sampled_from(range(len(SIGNATURES))))
    return number, [draw(values(kind)) for kind in SIGNATURES[number]]


def both(plan, kernels, engine, *, sequence=False):
    plain = replay(plan, kernels, "cpu", sequence, [])
    native = replay(plan, kernels, "cpu", sequence, [], engine=engine)
    assert native.native is not None
    return plain, native


@settings(deadline=None, max_examples=150)
@given(launches())
def test_a_kernel_gets_the_same_arguments_as_in_python(engine, library, launch):
    number, arguments = launch
    out = contiguous("uint8", (8 * len(arguments),))
    kernel = cpp_function(library, f"f{number}", ["pointer", *SIGNATURES[number]])
    steps = Allocate(out, 0), Launch(0, (Operand("buffer", 0, 0, out), *arguments))
    plan = LaunchPlan((), (), (None,), steps, (Operand("buffer", 0, 0, out),))
    plain, native = both(plan, [kernel], engine)
    assert torch.equal(plain.call(), native.call())


FORMS = [
    Form("float32", (4, 6), (6, 1)), Form("float32", (4, 6), (1, 4)), Form("bfloat16", (3, 8), (8, 1)),
    Form("int64", (5,), (1,)), Form("bool", (7,), (1,)), Form("float64", (2, 3), (3, 1)),
    Form("float32", (0, 4), (4, 1)),
    Form("complex64", (3,), (1,)), Form("uint8", (), ()),
]  # fmt: skip


@st.composite
def plans(draw):
    """Draw a plan of fills, copies and additions. Buffers have any form; some are returned, others are scratch."""
    forms = draw(st.lists(st.sampled_from(FORMS), min_size=1, max_size=6))
    steps = [Allocate(form, draw(st.sampled_from([0, 1, True, 2]))) for form in forms]
    operands = [Operand("buffer", index, 0, form) for index, form in enumerate(forms)]
    pairs = [(one, other) for one in operands for other in operands if one.form == other.form and one != other]
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["fill", "copy", "add"]))
        if kind == "fill":
            steps.append(Fill(draw(st.sampled_from(operands)), draw(st.sampled_from([0, 1, 0.5, -3]))))
        elif pairs and kind == "copy":
            steps.append(Copy(*draw(st.sampled_from(pairs))))
        elif kind == "add":
            floats = [item for item in operands if item.form.dtype == "float32" and item.form.nbytes]
            if floats:
                x, y, out = (draw(st.sampled_from(floats)) for _ in range(3))
                skip = draw(st.integers(0, 5))
                target = Operand("buffer", out.index, 4 * skip, Form("float32", (24 - skip,), (1,)))
                steps.append(Launch(0, (x, y, target, 24 - skip)))
    returned = draw(st.lists(st.sampled_from(operands), min_size=1, max_size=4))
    return LaunchPlan((), (), (None,), tuple(steps), tuple(returned))


@settings(deadline=None, max_examples=200)
@given(plans())
def test_fills_copies_and_scratch_give_the_bits_that_python_gives(engine, library, plan):
    kernel = cpp_function(library, "add", ["pointer", "pointer", "pointer", "int64"])
    plain, native = both(plan, [kernel], engine, sequence=True)
    for expected, value in zip(plain.call(), native.call(), strict=True):
        assert (value.dtype, value.shape, value.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(value, expected)


def test_arguments_tables_and_places_within_them(engine, library):
    row, whole = contiguous("float32", (4,)), contiguous("float32", (12,))
    table = ConstantTable(struct.pack("<8f", *range(8)).hex())
    kernel = cpp_function(library, "add", ["pointer", "pointer", "pointer", "int64"])
    steps = Allocate(whole, 0.0), Launch(0, (
        Operand("argument", 0, 16, row), Operand("table", 0, 16, row), Operand("buffer", 0, 32, row), 4,
    ))  # fmt: skip
    returns = Operand("buffer", 0, 16, contiguous("float32", (8,))), Operand("argument", 0, 4, row)
    plan = LaunchPlan((Argument(whole),), (table,), (None,), steps, returns)
    plain, native = both(plan, [kernel], engine, sequence=True)
    x = torch.arange(12.0)
    for expected, value in zip(plain.call(x), native.call(x), strict=True):
        assert torch.equal(value, expected)
    assert native.call(x)[0][4:].tolist() == [8.0, 10.0, 12.0, 14.0]
    with pytest.raises(AssertionError):
        native.call(torch.zeros(11))
    with pytest.raises(Exception, match="alignment"):
        native.call(torch.zeros(13)[1:])


def test_a_plan_at_rest_launches_nothing_and_an_audited_one_finds_no_zeros(engine, library):
    form = contiguous("float32", (24,))
    kernel = cpp_function(library, "add", ["pointer", "pointer", "pointer", "int64"])
    x, out, scratch = (Operand("argument", 0, 0, form), *(Operand("buffer", i, 0, form) for i in range(2)))
    steps = Allocate(form), Allocate(form), Launch(0, (x, scratch, out, 24))
    _plain, native = both(LaunchPlan((Argument(form),), (), (None,), steps, (out,)), [kernel], engine)
    native.rest()
    assert not native.call(torch.ones(24)).any()
    native.wake()
    poison([native], seed=1)
    assert not native.call(torch.ones(24)).eq(1).any()  # the scratch memory is not zero


@pytest.mark.parametrize(
    "step",
    [
        Fill(Operand("buffer", 0, 0, Form("float32", (2, 3), (12, 1))), 1.0),
        Copy(Operand("buffer", 0, 0, Form("float32", (4, 6), (6, 1))), Operand("buffer", 1, 0, FORMS[1])),
    ],
)
def test_what_the_engine_does_not_know_stays_with_python(engine, library, step):
    steps = Allocate(FORMS[0], 0), Allocate(FORMS[1], 1), step
    plan = LaunchPlan((), (), (), steps, (Operand("buffer", 0, 0, FORMS[0]),))
    replayed = replay(plan, [], "cpu", False, [], engine=engine)
    assert replayed.native is None
    assert torch.equal(replayed.call(), replay(plan, [], "cpu", False, []).call())


# -- whole blocks --


def added(engine, library, shape, *, written=()):
    """Return the plan of x + y, with a scratch tensor in between."""
    form = contiguous("float32", shape)
    kernel = cpp_function(library, "add", ["pointer", "pointer", "pointer", "int64"])
    x, y = (Operand("argument", i, 0, form) for i in range(2))
    between, out = (Operand("buffer", i, 0, form) for i in range(2))
    count = form.nbytes // 4
    launches = Launch(0, (x, between, between, count)), Launch(0, (between, y, out, count))
    steps = Allocate(form, 1.0), Allocate(form), *launches
    plan = LaunchPlan((Argument(form), Argument(form)), (), (None,), steps, (out,))
    return replay(plan, [kernel], "cpu", False, [], written, engine=engine)


def graph_of(function):
    """Return the graph that ``function`` writes: it gets a function that adds a call, and the two inputs' nodes."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(function(lambda target, *tensors: graph.call_function(target, tensors), x, y))
    return graph


GRAPHS = {
    "one plan": lambda call, f, x, y: (call(f, x, y),),
    "a value between": lambda call, f, x, y: (call(f, call(f, x, y), y),),
    "inputs and a value twice": lambda call, f, x, y: (x, value := call(f, x, y), value, call(f, value, value), y),
}


@pytest.fixture
def inputs():
    specs = [TensorSpec(name, (4, 6), "float32") for name in ("in_0", "in_1")]
    pages = Pages(plan_layout(specs, 5))
    yield pages
    pages.close()


def tensors_at(tables, forms, calls):
    """Return the outputs of all calls, as their tables describe them."""
    found = []
    for place, form in struct.iter_unpack("<QQ", bytes(tables.entries)[: calls * tables.width * ENTRY.size]):
        data = ctypes.string_at(place, forms[form].nbytes)
        flat = torch.frombuffer(bytearray(data), dtype=torch.float32)
        found.append(flat.as_strided(forms[form].shape, forms[form].strides))
    return found


@pytest.mark.parametrize("name", GRAPHS)
def test_a_block_gives_each_call_s_outputs_memory_of_their_own(engine, library, inputs, name):
    mapped = MappedPages(os.dup(inputs.fd), inputs.layout)
    inputs.memory[:] = torch.arange(inputs.layout.size // 4, dtype=torch.float32).numpy().tobytes()
    replayed = added(engine, library, (4, 6))
    graph = graph_of(lambda call, x, y: GRAPHS[name](call, replayed.call, x, y))
    block = native_graph(graph, [replayed], engine, inputs.layout)
    call = GraphModule({}, graph).forward
    width = len(call(*mapped.slots[0]))
    tables = OutputTables(len(mapped.slots), width)
    block.place(mapped.address, tables)
    blocks = []
    for _ in range(3):
        block.run(len(mapped.slots))
        expected = [value for slot in mapped.slots for value in call(*slot)]
        outputs = tensors_at(tables, block.forms, len(mapped.slots))
        assert all(torch.equal(a, b) for a, b in zip(expected, outputs, strict=True))
        blocks.append([place for place, _form in struct.iter_unpack("<QQ", bytes(tables.entries))])
    places = blocks[0]
    assert blocks == [places] * 3  # a block uses the memory of the one before
    assert all(place % 64 == 0 for place in places)
    assert len(set(places)) == len(mapped.slots) * len(set(map(torch.Tensor.data_ptr, call(*mapped.slots[0]))))


def test_a_block_at_rest_launches_nothing_and_an_empty_one_describes_as_many_outputs(engine, library, inputs):
    mapped = MappedPages(os.dup(inputs.fd), inputs.layout)
    inputs.memory[:] = torch.ones(inputs.layout.size // 4).numpy().tobytes()
    replayed = added(engine, library, (4, 6))
    graph = graph_of(lambda call, x, y: (call(replayed.call, x, y),))
    block, tables = native_graph(graph, [replayed], engine, inputs.layout), OutputTables(5, 1)
    block.place(mapped.address, tables)
    block.rest()
    block.run(5)
    assert not any(value.any() for value in tensors_at(tables, block.forms, 5))
    block.wake()
    block.run(5)
    assert all((value == 3).all() for value in tensors_at(tables, block.forms, 5))
    empty = empty_block(engine, inputs.layout, 1)
    empty.place(mapped.address, tables)
    empty.run(5)
    assert not any(bytes(tables.entries))


VIEWS = {
    "a view of a plan's result": lambda f, x, y: (f(x, y).view(2, 12),),
    "a view between plans": lambda f, x, y: (f(f(x, y).view(24).view(4, 6), x),),
    "views of an input": lambda f, x, y: (x.view(24)[8:], y.t(), f(x, y)),
}


def recorded(function, replayed, slot):
    """Return the graph of a function of two tensors and of a plan's call, with the forms of its values."""

    def forward(x, y):
        return function(lambda *values: x.tracer.create_proxy("call_function", replayed.call, values, {}), x, y)

    module = symbolic_trace(forward)
    record_values(module, list(slot))
    forget_values(module)
    return module


@pytest.mark.parametrize("name", VIEWS)
@torch.no_grad()
def test_views_in_the_engine_give_the_bits_that_python_gives(engine, library, inputs, name):
    mapped = MappedPages(os.dup(inputs.fd), inputs.layout)
    replayed = added(engine, library, (4, 6))
    module = recorded(VIEWS[name], replayed, mapped.slots[0])
    block = native_graph(module.graph, [replayed], engine, inputs.layout)
    tables = OutputTables(len(mapped.slots), len(module(*mapped.slots[0])))
    block.place(mapped.address, tables)
    values = torch.randn(inputs.layout.size // 4, generator=torch.Generator().manual_seed(1))
    inputs.memory[:] = values.numpy().tobytes()
    block.run(len(mapped.slots))
    expected = [value for slot in mapped.slots for value in module(*slot)]
    outputs = tensors_at(tables, block.forms, len(mapped.slots))
    assert all(torch.equal(a, b) for a, b in zip(expected, outputs, strict=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda f, x, y: (torch.relu(f(x, y)),),
        lambda f, x, y: (torch.relu_(f(x, y)),),
        lambda f, x, y: (F.linear(f(x, y), x),),
        lambda f, x, y: (f(x, y), x.clone()),
    ],
)
@torch.no_grad()
def test_an_operator_that_is_not_the_engine_s_stays_with_python(engine, library, inputs, function):
    mapped = MappedPages(os.dup(inputs.fd), inputs.layout)
    replayed = added(engine, library, (4, 6))
    module = recorded(function, replayed, mapped.slots[0])
    with pytest.raises(NotNative):
        native_graph(module.graph, [replayed], engine, inputs.layout)


@pytest.mark.parametrize(
    "function",
    [
        lambda call, f, x, y: (call(torch.relu, call(f, x, y)),),
        lambda call, f, x, y: call(f, x, y),
        lambda call, f, x, y: (call(f, x, y), 1),
        lambda call, f, x, y: (call(operator.getitem, x, 0), call(f, x, y)),
    ],
)
def test_a_graph_of_more_than_plans_stays_with_python(engine, library, inputs, function):
    replayed = added(engine, library, (4, 6))
    graph = graph_of(lambda call, x, y: function(call, replayed.call, x, y))
    with pytest.raises(NotNative):
        native_graph(graph, [replayed], engine, inputs.layout)


def test_tensors_that_do_not_fit_a_plan_stay_with_python(engine, library, inputs):
    other, writing = added(engine, library, (6, 4)), added(engine, library, (4, 6), written={0})
    with pytest.raises(NotNative, match="another layout"):
        native_graph(graph_of(lambda call, x, y: (call(other.call, x, y),)), [other], engine, inputs.layout)
    with pytest.raises(NotNative, match="may share memory"):
        native_graph(graph_of(lambda call, x, _y: (call(writing.call, x, x),)), [writing], engine, inputs.layout)
    native_graph(graph_of(lambda call, x, y: (call(writing.call, x, y),)), [writing], engine, inputs.layout)


# -- through the judge --


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["direct", "dynamo"])
def test_only_whole_graphs_under_direct_are_blocks_of_the_engine_s(bench, monkeypatch, pipeline):
    from pytest_passbench.judge.measure.cpu_clock import CpuClock

    makers, fresh = set(), CpuClock.fresh

    def noted(self):
        makers.update((arm, self.maker(arm)) for arm in self.arms)
        fresh(self)

    monkeypatch.setattr(CpuClock, "fresh", noted)
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    (record, *_) = bench.records(pipeline=pipeline, audit="standard")
    assert record.correct, record.arm.message
    assert not record.findings
    assert makers == {("eager", "python"), ("candidate", "engine" if pipeline == "direct" else "python")}


@pytest.mark.slow
def test_without_a_compiler_for_the_engine_plans_run_in_python(tmp_path, monkeypatch):
    def refuse(*_arguments, **_settings):
        raise toolchain.CompileError("no compiler")

    monkeypatch.setattr(toolchain, "build", refuse)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    descriptor.cache_clear()
    try:
        bench = Workspace(tmp_path)
        bench.task()
        bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
        (record, *_) = bench.records()
        assert descriptor() is None
        assert record.correct, record.arm.message
    finally:
        descriptor.cache_clear()
