"""What the generator takes of a graph, and what it leaves to eager, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, symbolic_trace

from pytest_passbench.fusion.ir import Unsupported
from pytest_passbench.fusion.kernel import kernel
from pytest_passbench.fusion.regions import launch, reason
from shared.regions import annotate


def annotated(function: Callable[..., Any], *inputs: torch.Tensor) -> GraphModule:
    module = symbolic_trace(function)
    annotate(module, inputs)
    return module


def reasons(function: Callable[..., Any], *inputs: torch.Tensor) -> list[str]:
    nodes = annotated(function, *inputs).graph.nodes
    return [reason(node) for node in nodes if node.op.startswith("call")]


def resized(x: torch.Tensor, size: int) -> torch.Tensor:
    return torch.nn.functional.interpolate(x, size=(size, size), mode="bilinear")


X, HUGE, IMAGE = torch.zeros(4, 6), torch.empty(2**31, device="meta"), torch.zeros(1, 2, 8, 8)


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: x.relu() + 1, [X], ["", ""]),
        (lambda x: torch.nn.functional.linear(x, x), [X], ["linear stays eager's"]),
        (lambda x: x @ x.t(), [X], ["", "matmul stays eager's"]),
        (lambda x: x.relu(), [HUGE], ["a tensor of 2147483648 elements"]),
        (lambda x: torch.polygamma(2, x), [X], ["polygamma"]),
        (lambda x: x.relu_(), [X], ["relu_ into an input"]),
        (lambda x: x.exp().relu_(), [X], ["", ""]),
        (lambda x: resized(x, 9), [IMAGE], ["bilinear resizing is faster in eager"]),
        (lambda x: resized(x, 8), [IMAGE], ["bilinear resizing is faster in eager"]),
        (lambda x: resized(x, 4), [IMAGE], [""]),
    ],
)
def test_each_call_has_a_kernel_or_a_reason(function, inputs, expected):
    for actual, start in zip(reasons(function, *inputs), expected, strict=True):
        assert actual.startswith(start) if start else not actual


@pytest.mark.parametrize(
    ("function", "inputs", "reason"),
    [
        (lambda x, y: torch.mm(x, y), [(9, 9), (9, 9)], ""),
        (lambda x, y: torch.nn.functional.conv2d(x, y), [(1, 2, 8, 8), (3, 2, 3, 3)], ""),
        (
            lambda x, y: torch.nn.functional.conv_transpose2d(x, y),
            [(1, 2, 8, 8), (2, 3, 3, 3)],
            "conv_transpose2d stays eager's",
        ),
        (lambda x, y: torch.addmm(x, x, y, beta=2), [(9, 9), (9, 9)], "addmm with factors"),
        (lambda x, y: torch.mm(x, y), [(9, 9), (9, 2)], "mm with a result of 2 columns"),
        (
            lambda x, y: torch.nn.functional.linear(x, y),
            [(1, 9), (90, 9)],
            "mm of 1 rows and 90 columns is fast in eager",
        ),
    ],
)
def test_products_are_taken_where_eager_has_no_instructions(function, inputs, reason, monkeypatch):
    values = [torch.zeros(sizes, dtype=torch.bfloat16) for sizes in inputs]
    monkeypatch.setattr("pytest_passbench.fusion.regions.eager_is_slow", lambda dtype: dtype is torch.bfloat16)
    assert reasons(function, *values) == [reason]
    assert reasons(function, *(value.float() for value in values))[0].endswith("stays eager's")
    monkeypatch.setattr("pytest_passbench.fusion.regions.eager_is_slow", lambda _dtype: False)
    assert reasons(function, *values)[0].endswith("stays eager's")


def test_a_call_in_place_that_shows_elsewhere_is_not_taken():
    def shared(x):
        a = x.exp()
        b = a.view(-1)
        return a.relu_(), b

    assert reasons(shared, X) == ["", "", "relu_ into an input"]


def test_a_region_is_one_launch():
    x = torch.randn(4, 6)
    region = annotated(lambda x: ((x.relu() + 1).softmax(-1),), x)
    torch.testing.assert_close(launch(region, x)[0], region(x)[0])


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: (x.tan(),), "tan is faster in eager"),
        (lambda x: (x.view(-1),), "nothing to compute"),
    ],
)
def test_a_region_that_gains_nothing_is_left(function, message):
    with pytest.raises(Unsupported, match=message):
        launch(annotated(function, X), X)


def test_the_lane_of_a_window_is_outside_of_it():
    """Vector registers hold neighbouring results, not the three elements of a window."""
    x = torch.randn(1, 2, 18, 18)
    text = kernel(lambda x: torch.nn.functional.max_pool2d(x, 3, 2), (x,)).source
    assert ".lanes()" in text.partition('extern "C"')[2]
    assert "get_transposed(" in text.partition('extern "C"')[2]


def test_a_function_is_computed_once_for_all_sweeps_over_a_row():
    def softcap(x, y):
        return torch.softmax(torch.tanh(x / 50) * 50 + y, -1)

    fused = kernel(softcap, (torch.randn(3, 70), torch.randn(3, 70)))
    assert fused.source.partition('extern "C"')[2].count("pb::tanh(") == 1


@pytest.mark.parametrize("size", [2, 3, 7])
def test_registers_lie_along_a_long_loop_if_the_last_dimension_does_not_fill_one(size):
    x, y = torch.randn(40, 50, 1), torch.randn(size)
    fused = kernel(lambda x, y: x * 2 + y, (x, y))
    assert "scatter(" in fused.source.partition('extern "C"')[2]
    assert torch.equal(fused(x, y), x * 2 + y)


def test_halves_are_moved_as_they_are():
    x = torch.randn(3, 20).half()
    fused = kernel(lambda x: torch.cat([x, x]), (x,))
    assert "move(" in fused.source.partition('extern "C"')[2]
    assert torch.equal(fused(x), torch.cat([x, x]))
