"""Patterns as people and models write them: graphs, modules, and statements that do nothing to values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pytest_passbench.reader.importing import load_passes
from pytest_passbench.rewrite.passes import PassError
from support.reference_passes import apply_passes, check, graph

REST = """
def replacement_args(x, y):
    return (x, y)
def kernel(x, y):
    return torch.relu(x) + y
def replacement_func():
    return kernel
"""
FUNCTION = "def f(x, y):\n    return torch.relu(x) + y\n"
SPELLINGS = {
    "traced": FUNCTION + "pattern = torch.fx.symbolic_trace(f)",
    "graph": FUNCTION + "pattern = torch.fx.symbolic_trace(f).graph",
    "tracer": FUNCTION + "pattern = torch.fx.Tracer().trace(f)",
    "built": (
        "pattern = torch.fx.Graph()\nx, y = pattern.placeholder('x'), pattern.placeholder('y')\n"
        "pattern.output(pattern.call_function(torch.add, (pattern.call_method('relu', (x,)), y)))"
    ),
    "module": (
        "class Pattern(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.act = torch.nn.ReLU()\n    def forward(self, x, y):\n        return self.act(x) + y\n"
        "pattern = Pattern()"
    ),
    "module traced": (
        "class Pattern(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.act = torch.nn.ReLU()\n    def forward(self, x, y):\n        return self.act(x) + y\n"
        "pattern = torch.fx.symbolic_trace(Pattern())"
    ),
    "graph of a module": (
        "class Pattern(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.act = torch.nn.ReLU()\n    def forward(self, x, y):\n        return self.act(x) + y\n"
        "pattern = torch.fx.symbolic_trace(Pattern()).graph"
    ),
}


def load(tmp_path: Path, text: str):
    (tmp_path / "one.py").write_text("import torch\n" + text + "\n" + REST)
    return load_passes(tmp_path, ["one"])


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_pattern_that_is_a_graph_or_a_module(tmp_path, text):
    before = graph("return (in_0.relu() + in_1,)", 2)
    tensors = [torch.randn(3), torch.randn(3)]
    with torch.no_grad():
        result = apply_passes(before, load(tmp_path, text), tensors)
        torch.testing.assert_close(result.module(*tensors), before(*tensors))
    assert result.covered == ["relu", "add"]


def test_a_module_with_weights_is_no_pattern(tmp_path):
    text = "pattern = torch.fx.symbolic_trace(torch.nn.Linear(3, 3))"
    with pytest.raises(PassError, match="pass one: pattern"):
        apply_passes(graph("return (in_0.relu() + in_1,)", 2), load(tmp_path, text), [torch.ones(3), torch.ones(3)])


def set_mode(x):
    torch.set_grad_enabled(False)
    y = x.relu()
    _ = torch.set_grad_enabled(True)
    return y + 1


def set_mode_below(x):
    _set_grad_enabled = torch._C._set_grad_enabled(False)
    y = x.relu()
    _set_grad_enabled_1 = torch._C._set_grad_enabled(True)
    return y + 1


def with_mode(x):
    with torch.no_grad(), torch.set_grad_enabled(True), torch.inference_mode():
        return x.relu() + 1


def load_decompositions(x):
    torch._functorch.predispatch.lazy_load_decompositions()
    return x.relu() + 1


def load_decompositions_of_vmap(x):
    import torch._functorch.vmap

    torch._functorch.vmap.lazy_load_decompositions()
    return x.relu() + 1


def checks(x):
    torch._check(x.size(0) > 0)
    torch._check(x.size(0) > 0, lambda: "no rows")
    return x.relu() + 1


def unused(x):
    x.sin()
    torch.cat([x, x])
    return x.relu() + 1


MODES = [set_mode, set_mode_below, with_mode, load_decompositions, load_decompositions_of_vmap, checks, unused]


@pytest.mark.parametrize("pattern", MODES)
@pytest.mark.parametrize("mode", [True, False])
def test_statements_that_do_nothing_to_values(pattern, mode):
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(mode)
        check("return (in_0.relu() + 1,)", pattern, torch.randn(3, 4))
        assert torch.is_grad_enabled() is mode
    finally:
        torch.set_grad_enabled(before)


def test_a_check_of_a_symbol_that_is_a_size():
    def pattern(x, n):
        torch._check(n > 0)
        torch._check(n == 2, lambda: "two")
        return x.view(n, -1).relu()

    check("return (in_0.view(2, -1).relu(),)", pattern, torch.randn(4, 4))


def test_a_check_that_torch_is_about_to_remove(tmp_path):
    text = "def pattern(x, y):\n    done = torch._check_is_size(y);  done = None\n    return x.relu() + y"
    before = graph("return (in_0.relu() + 3,)")
    assert apply_passes(before, load(tmp_path, text), [torch.randn(3)]).covered == ["relu", "add"]


COMPARISONS = [
    ("__eq__", lambda x: x.__eq__(2)),
    ("__ne__", lambda x: x.__ne__(2)),
    ("__lt__", lambda x: x.__lt__(2)),
    ("__ge__", lambda x: x.__ge__(2)),
    ("__and__", lambda x: x.__and__(2)),
    ("__add__", lambda x: x.__add__(2)),
    ("__rsub__", lambda x: x.__rsub__(2)),
]  # fmt: skip
PLAIN = {
    "__eq__": "in_0 == 2", "__ne__": "torch.ne(in_0, 2)", "__lt__": "in_0 < 2", "__ge__": "in_0.ge(2)",
    "__and__": "in_0 & 2", "__add__": "in_0 + 2", "__rsub__": "2 - in_0",
}  # fmt: skip


@pytest.mark.parametrize(("name", "pattern"), COMPARISONS, ids=PLAIN)
def test_operators_called_by_their_double_underscores(name, pattern):
    numbers = torch.tensor([1, 2, 3])
    check(f"return ({PLAIN[name]},)", pattern, numbers)
    check(f"return (in_0.{name}(2),)", pattern, numbers)


def test_in_place_by_position_is_in_place():
    body = "a = in_0 * 2\nb = torch.nn.functional.relu(a, True)\nreturn (a.sin(), b)"
    result = check(body, lambda x: (F.relu(x, True), x.sin())[1], torch.randn(3))
    assert result.covered == ["sin"]
    result = check(body, lambda x: (F.relu(x, True), x.sin()), torch.randn(3))
    assert result.covered == ["relu", "sin"]
