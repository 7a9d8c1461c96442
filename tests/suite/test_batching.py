"""Graphs with levels of torch.vmap: they load and run unchanged; a level that is not closed is refused."""

from __future__ import annotations

import pytest
import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.rewrite.pipelines import build_baseline
from pytest_passbench.runner.program import in_float64
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.opnames import operator_sequence
from pytest_passbench.suite.printing import to_source
from shared.batched_mask import PLACES, mask_source

OPEN = "torch._C._functorch._vmap_increment_nesting(3, 'error')"
CLOSE = "torch._C._functorch._vmap_decrement_nesting()"


def inputs():
    return [torch.rand(2, 5) > 0.3, torch.arange(5), torch.randn(2, 1, 5, 5)]


def expected(mask, positions, scores):
    causal = torch.arange(5) <= positions[:, None]
    return torch.relu(scores).mul(2).masked_fill(causal & mask[:, None, None, :], -1.0)


@pytest.mark.parametrize("place", PLACES)
def test_a_captured_mask_computes_what_it_says(place):
    module = build_graph(mask_source(place), "model.py")
    values = inputs()
    assert torch.equal(module(*values)[0], expected(*values))
    printed = to_source(module)
    assert to_source(build_graph(printed, "printed")) == printed
    assert torch.equal(build_graph(printed, "printed")(*values)[0], expected(*values))


def test_the_calls_are_no_work_but_what_stands_between_them_is():
    operators = "relu mul arange add arange arange new_ones le bitwise_and index bitwise_and masked_fill"
    assert operator_sequence(build_graph(mask_source(), "model.py").graph.nodes) == tuple(operators.split())


def test_the_twin_in_float64():
    values = inputs()
    twin = build_baseline("eager", in_float64(build_graph(mask_source(), "model.py"), values), values)
    (found,) = twin.call(*values)
    assert found.dtype == torch.float64
    assert torch.equal(found, expected(*values).double())


BAD = [
    ("stays open", f"t = {OPEN}; return (x,)"),
    ("no torch.vmap level is open", f"t = {CLOSE}; return (x,)"),
    ("level 2 is not open", f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, 2); d = {CLOSE}; return (x,)"),
    ("level 0 is not open", f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, 0); d = {CLOSE}; return (x,)"),
    ("uses a value of a torch.vmap level that is closed",
     f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, 1); d = {CLOSE}; return (y + 1,)"),
    ("uses a value of a torch.vmap level that is closed",
     f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, 1); d = {CLOSE}; u = {OPEN}; z = y + 1; "
     f"v = torch._C._functorch._remove_batch_dim(z, 1, 3, 0); e = {CLOSE}; return (v,)"),
    ("returns a value of a torch.vmap level that is closed",
     f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, 1); d = {CLOSE}; return (y,)"),
    ("takes a tensor and plain numbers",
     f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, x.dim()); d = {CLOSE}; return (x,)"),
    ("by position", f"t = {OPEN}; y = torch._C._functorch._add_batch_dim(x, 0, level=1); d = {CLOSE}; return (x,)"),
    ("the size of a level", f"t = torch._C._functorch._vmap_increment_nesting(0, 'error'); d = {CLOSE}; return (x,)"),
    ("is not allowed", "t = torch._C._functorch._grad_increment_nesting(); return (x,)"),
    ("is not allowed", "t = torch._C._functorch.get_unwrapped(x); return (x,)"),
    ("is not allowed", "t = torch._functorch.predispatch._jvp_increment_nesting(); return (x,)"),
]  # fmt: skip


@pytest.mark.parametrize(("message", "body"), BAD)
def test_levels_that_torch_would_stumble_over_are_refused(message, body):
    with pytest.raises(UserError, match=message) as caught:
        build_graph(f"def forward(x):\n    {body}\n", "model.py")
    assert str(caught.value).startswith("model.py:2: ")


def test_a_run_that_fails_at_a_level_leaves_none_open():
    module = build_graph(mask_source(), "model.py")
    mask, positions, scores = inputs()
    with pytest.raises(IndexError):
        build_baseline("eager", module, [mask[:1], positions, scores])
    assert torch._C._functorch.maybe_current_level() is None
