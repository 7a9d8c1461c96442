"""Canonical source text: what is printed builds the same graph, and prints the same again."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite.allowlist import resolve, spelling
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.opnames import is_random, op_name, operator_sequence
from pytest_passbench.suite.printing import to_source


def node(target, *args, method=False, **kwargs):
    """Return a node whose None arguments stand for tensors."""
    graph = torch.fx.Graph()
    values = [graph.placeholder("x") if a is None else a for a in args]
    return graph.create_node("call_method" if method else "call_function", target, tuple(values), kwargs)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (node(operator.add, None, 1), "add"),
        (node(operator.iadd, None, 1), "add"),
        (node(torch.add, None, 1), "add"),
        (node("add_", None, 1, method=True), "add"),
        (node("__radd__", None, 1, method=True), "add"),
        (node(torch.ops.aten.add.Tensor, None, 1), "add"),
        (node(torch._C._nn.gelu, None), "gelu"),
        (node(torch.nn.functional.layer_norm, None, (2,)), "layer_norm"),
        (node("view", None, 2, method=True), "view"),
        (node(operator.truediv, None, 2), "div"),
        (node(operator.and_, None, None), "bitwise_and"),
        (node(operator.getitem, None, 0), "getitem"),
        (node(getattr, None, "shape"), "size"),
        (node(torch.fft.rfft, None), "fft_rfft"),
        (node(torch.ops.aten._softmax.default, None, 1, False), "softmax"),
        (node(torch.rand, 2), "rand"),
        (node("float", None, method=True), "to"),
    ],
)
def test_operator_names(made, name):
    assert op_name(made) == name


@pytest.mark.parametrize(
    ("made", "random"),
    [
        (node(F.dropout, None, 0.1), True),
        (node(F.dropout, None, 0.1, False), False),
        (node(F.dropout, None, 0.0, True), False),
        (node(F.dropout, None, p=0.1, training=False), False),
        (node(torch.dropout, None, 0.1, True), True),
        (node(torch.dropout, None, p=0.5, train=False), False),
        (node("bernoulli_", None, 0.5, method=True), True),
        (node(torch.randn, 2), True),
        (node(F.rrelu, None), False),
        (node(F.scaled_dot_product_attention, None, None, None, dropout_p=0.1), True),
        (node(F.scaled_dot_product_attention, None, None, None), False),
        (node(torch._VF.lstm, None, None, [], True, 2, 0.1, True, False, True), True),
        (node(torch._VF.lstm, None, None, [], True, 2, 0.1, False, False, True), False),
        (node(torch._VF.lstm, None, None, None, [], True, 1, 0.0, False, False), False),
        (node(torch._VF.gru, None, None, None, [], True, 2, 0.1, True, False), True),
        (node(torch.add, None, 1), False),
    ],
)
def test_random_operators(made, random):
    assert is_random(made) is random


def test_spellings_resolve_to_what_they_spell():
    for target in (torch.conv2d, F.gelu, F.relu, torch.relu, F.pad, operator.matmul, torch.fft.rfft, F.linear):
        dotted = spelling(target)
        assert dotted is not None
        assert resolve(dotted) == target
    assert spelling(F.gelu) == "torch.nn.functional.gelu"
    assert spelling(torch.load) is None


def test_work_is_told_from_metadata():
    gm = build_graph(
        """
def forward(x, y):
    n = x.shape[0] // 2
    m = x.size(1) * 2
    a, b = torch.split(x, 2, dim=1)
    v, i = a.max(-1)
    c = b[:, 0] + v + n
    return (c.view(n, m), x.mT)
""",
        "m.py",
    )
    assert operator_sequence(gm.graph.nodes) == ("split", "max", "getitem", "add", "add", "view", "transpose")


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.conv, self.norm = torch.nn.Linear(8, 8), torch.nn.Conv1d(3, 3, 3), torch.nn.LayerNorm(8)
        self.embedding, self.batch, self.drop = torch.nn.Embedding(5, 8), torch.nn.BatchNorm1d(3), torch.nn.Dropout()
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x, ids):
        y = self.norm(self.drop(F.gelu(self.linear(x))) + x)
        z = F.pad(self.batch(self.conv(y)), (1, 1)) + self.embedding(ids)[:, None][..., 1:8:2].repeat(1, 1, 2)
        a, b = F.scaled_dot_product_attention(z, z, z).chunk(2, -1)
        v, i = torch.einsum("bij,bkj->bik", a, b).max(-1)
        u = torch.cat([v, i.to(x.dtype)], -1) ** -2
        u -= 1
        u[:, 0] = 2
        mask = torch.triu(torch.full((3, 3), float("-inf"), device=x.device), 1)
        flags = torch.where(x > 0, -x, ~(x > 1))
        return u, mask, flags, torch.fft.rfft(x).real, x.mT.contiguous().view(-1, 8), self.attention(x, x, x)[0]


def captured(model, *inputs, dynamic=False):
    graphs = []

    def backend(gm, example_inputs):
        graphs.append((gm, example_inputs))
        return gm

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=dynamic)(*inputs)
    return graphs


@pytest.mark.parametrize("dynamic", [False, True])
def test_dynamo_graphs_survive(dynamic):
    graphs = captured(Model().eval(), torch.randn(2, 3, 8), torch.tensor([1, 2]), dynamic=dynamic)
    assert graphs
    for gm, inputs in graphs:
        source = to_source(gm)
        again = build_graph(source, "g0")
        assert to_source(again) == source
        assert operator_sequence(again.graph.nodes) == operator_sequence(gm.graph.nodes)
        if not dynamic:
            with torch.no_grad():
                torch.testing.assert_close(again(*inputs), tuple(gm(*inputs)), equal_nan=True)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("torch._C._nn.gelu(x, approximate = 'tanh')", "torch.nn.functional.gelu(in_0, approximate='tanh')"),
        ("operator.add(x, 1)", "in_0 + 1"),
        ("operator.getitem(x, (slice(None), slice(1, None, 2)))", "in_0[:, 1::2]"),
        ("x[0,]", "in_0[0,]"),
        ("x[(), None]", "in_0[(), None]"),
        ("(-2.0) ** x", "(-2.0) ** in_0"),
        ("x.new_full([2], -inf, dtype=torch.half)", "in_0.new_full([2], -inf, dtype=torch.float16)"),
        ("x.to(device('cuda', 0))", "in_0.to(device(type='cpu'))"),
        ("getattr(x, 'mT')", "in_0.mT"),
        ("operator.add(1, 2) + x", None),
    ],
)
def test_one_spelling(body, line):
    source = to_source(build_graph(f"def forward(x):\n    y = {body}\n    return y", "m.py"))
    assert to_source(build_graph(source, "m.py")) == source
    if line is not None:
        assert source == f"def forward(in_0):\n    tmp_0 = {line}\n    return (tmp_0,)\n"


def test_what_has_no_spelling_is_named():
    traced = torch.fx.Graph()
    x = traced.placeholder("x")
    traced.output((traced.call_function(torch.compile, (x,)),))
    with pytest.raises(UserError, match=r"operator 'torch\.compile' has no allowed spelling"):
        to_source(torch.fx.GraphModule(torch.nn.Module(), traced))
    with pytest.raises(UserError, match="lift it to an input"):
        to_source(torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(2, 2))))


LEAF = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.sampled_from([torch.float32, torch.channels_last, torch.strided, torch.device("cpu"), ...]),
    st.builds(slice, st.none() | st.integers(-3, 3), st.none() | st.integers(-3, 3), st.none() | st.just(2)),
    st.complex_numbers(allow_nan=False, allow_infinity=False),
)
VALUE = st.recursive(
    LEAF,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=2),
    ),
    max_leaves=5,
)
FUNCTIONS = [
    torch.relu,
    F.gelu,
    operator.getitem,
    operator.add,
    operator.iadd,
    operator.neg,
    torch.ops.aten.add.Tensor,
]
STEPS = st.lists(
    st.tuples(st.sampled_from([*FUNCTIONS, "view", "add_"]), st.integers(0, 9), st.lists(VALUE, max_size=2)),
    max_size=6,
)


@settings(max_examples=50)
@given(STEPS)
def test_any_graph_prints_stably(steps):
    traced = torch.fx.Graph()
    nodes = [traced.placeholder("x"), traced.placeholder("y")]
    for target, source, values in steps:
        if target in (operator.getitem, operator.add, operator.iadd):
            values = [*values, 0][:1]
        if target is operator.neg:
            values = []
        arguments = (nodes[source % len(nodes)], *values)
        op = "call_method" if isinstance(target, str) else "call_function"
        nodes.append(traced.create_node(op, target, arguments, {}))
    traced.output((nodes[-1],))
    gm = torch.fx.GraphModule(torch.nn.Module(), traced)
    source = to_source(gm)
    again = build_graph(source, "m.py")
    assert to_source(again) == source
    before = [(n.op, n.target) for n in gm.graph.nodes if n.op != "placeholder"]
    assert before == [(n.op, n.target) for n in again.graph.nodes if n.op != "placeholder"]
