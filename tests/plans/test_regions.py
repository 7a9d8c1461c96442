"""Graphs with their values as data, and the check of what a reader answers about them."""

from __future__ import annotations

import json

import pytest
import torch
from torch.fx import Graph, Node

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.plans.regions import MAX_REGIONS, check_regions, graph_module, graph_text, is_described


def chain() -> Graph:
    """Return a graph: relu, then exp and abs of it, then their sum, and an opaque call of the sum."""
    graph = Graph()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    exp, absolute = graph.call_method("exp", (relu,)), graph.call_method("abs", (relu,))
    total = graph.call_function(torch.add, (exp, absolute))
    graph.output((graph.call_function(opaque_call, (total,)),))
    return graph


def text(graph: Graph, values: dict[str, object] | None = None, names: bool = True) -> str:
    values = values or {}
    return graph_text(graph, lambda node: values.get(node.name), names)


def test_a_graph_comes_back_with_its_names():
    graph = graph_module(text(chain())).graph
    assert [node.name for node in graph.nodes] == [node.name for node in chain().nodes]
    assert [node.target for node in graph.nodes if node.op == "call_function"] == [torch.relu, torch.add, opaque_call]


def test_values_have_their_forms_on_the_meta_device():
    graph, base = chain(), torch.zeros(4, 6)
    value = {"x": base, "relu": base[1:, ::2], "exp": (torch.zeros(2), 3), "abs_1": torch.zeros(2, dtype=torch.half)}
    nodes = {node.name: node.meta.get("val") for node in graph_module(text(graph, value)).graph.nodes}
    view = nodes["relu"]
    assert (view.device.type, view.shape, view.stride(), view.dtype) == ("meta", (3, 3), (6, 2), torch.float32)
    assert nodes["exp"][0].shape == (2,)
    assert nodes["exp"][1] == 3
    assert nodes["abs_1"].dtype == torch.half
    assert nodes["add"] is None


def test_values_share_memory_where_those_of_the_graph_do():
    base = torch.zeros(4, 6)
    value = {"x": base, "relu": base[1:], "exp": torch.zeros(4, 6)}
    nodes = {node.name: node.meta.get("val") for node in graph_module(text(chain(), value)).graph.nodes}
    memory = {name: nodes[name].untyped_storage()._cdata for name in value}
    assert memory["x"] == memory["relu"] != memory["exp"]
    assert nodes["relu"].storage_offset() == 6


def test_like_regions_of_a_graph_are_one_text():
    big = torch.zeros(100)
    texts = {text(chain(), {"x": big[start : start + 8]}, names=False) for start in (0, 8, 64)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.update(values=[]),
        lambda data: data.update(names=["x"]),
        lambda data: data.update(values=[{"tensor": [1]}, *data["values"][1:]]),
        lambda data: data.update(values=[{"tensor": ["float32", [-1], [1], 0, 0]}, *data["values"][1:]]),
        lambda data: data.update(values=[{"tensor": ["no dtype", [1], [1], 0, 0]}, *data["values"][1:]]),
        *(
            lambda data, form=form: data.update(values=[{"tensor": [*form, 0, 0]}, *data["values"][1:]])
            for form in (
                ["float32", [1 << 40, 1 << 40], [1, 1]],
                ["float32", [2, 3], [1]],
                ["quint8", [2], [1]],
                ["uint8", [2], [1 << 40]],
            )
        ),
        lambda data: data.update(graph=[]),
        lambda data: data.pop("graph"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*quint8:UserWarning")
def test_other_data_is_refused(change):
    data = json.loads(text(chain(), {"x": torch.zeros(2)}))
    change(data)
    with pytest.raises(Rejected):
        graph_module(json.dumps(data))


@pytest.mark.parametrize("data", ["", "[" * 100_000, "{}", "5"])
def test_what_is_no_graph_is_refused(data):
    with pytest.raises(Rejected):
        graph_module(data)


def test_a_graph_of_too_many_calls_is_refused():
    graph = Graph()
    node = graph.placeholder("x")
    for _ in range(2_001):
        node = graph.call_method("relu", (node,))
    graph.output((node,))
    with pytest.raises(Rejected, match="more than 2000 calls"):
        text(graph)


def test_what_data_cannot_state_is_told():
    graph = Graph()
    x = graph.placeholder("x")
    ours, odd = graph.call_function(chain, (x,)), graph.call_function(torch.relu, (object(),))
    assert not any(is_described(node) for node in (x, ours, odd))
    assert is_described(graph.call_function(torch.relu, (x,)))


def nodes_of(graph: Graph) -> dict[str, Node]:
    return {node.name: node for node in graph.nodes}


@pytest.mark.parametrize(
    "regions", [[], [["relu"]], [["relu", "exp", "abs_1", "add"]], [["add", "exp"], ["abs_1"], ["relu"]]]
)
def test_regions_of_a_graph_are_accepted(regions):
    check_regions(chain(), regions)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ([["sigmoid"]], "with 'sigmoid', which is no call"),
        ([["x"]], "with 'x', which is no call"),
        ([["output"]], "with 'output', which is no call"),
        ([["opaque_call"]], "with 'opaque_call', which is no call"),
        ([["relu", "relu"]], "'relu' twice"),
        ([["relu"], ["exp", "relu"]], "'relu' twice"),
        ([["relu"], []], "an empty region"),
        ([["relu", "add"]], "depends on its own results"),
        ([["relu", "add"], ["exp", "abs_1"]], "depends on its own results"),
        ([["relu"]] * (MAX_REGIONS + 1), "more than 128 regions"),
    ],
)
def test_other_regions_are_refused(regions, message):
    with pytest.raises(Rejected, match=message):
        check_regions(chain(), regions)


def test_regions_that_need_each_other_are_refused():
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    a, b = graph.call_method("exp", (x,)), graph.call_method("abs", (y,))
    c, d = graph.call_method("sin", (a,)), graph.call_method("cos", (b,))
    graph.output((c, d))
    names = [node.name for node in (a, b, c, d)]
    check_regions(graph, [[names[0], names[1]], [names[2], names[3]]])
    with pytest.raises(Rejected, match="depends on its own results"):
        check_regions(graph, [[names[0], names[3]], [names[1], names[2]]])
