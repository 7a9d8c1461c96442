"""Regions in place of operators: a graph gives the same results, whatever regions a pass chooses."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_passbench.plans.graphs import opaque_call
from pytest_passbench.reader.importing import LoadedRegionPass
from pytest_passbench.suite.batching import is_batching
from support.reference_passes import apply_passes, graph, reference


def on_copies(region: Any, *values: Any) -> Any:
    return region(*[value.clone() for value in values])


def region_pass(supported, wrapper=on_copies, name="region"):
    return LoadedRegionPass(name, supported, lambda: wrapper, wrapper, Path(f"{name}.py"))


def everything(node):
    return True


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 6, generator=generator), torch.randn(6, 6, generator=generator)]


def rewritten(body, *passes):
    before = graph(body, 2)
    result = apply_passes(before, list(passes), inputs())
    expected_inputs, actual_inputs = inputs(), inputs()
    expected, actual = before(*expected_inputs), result.module(*actual_inputs)
    for ours, theirs in zip((*actual, *actual_inputs), (*expected, *expected_inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    return result


def calls(result):
    nodes = [node for node in result.module.graph.nodes if node.op.startswith("call")]
    return [node.meta.get("passbench_pass", node.name) for node in nodes]


BODIES = {
    "one": "return (in_0.relu(),)",
    "chain": "a = in_0.relu()\nb = a + 1\nreturn (b * a,)",
    "two results": "a = in_0.relu()\nb = a.exp()\nreturn (b, a)",
    "a result that is used twice": "a = in_0.relu()\nb = a @ in_1\nreturn (b + a, b)",
    "around a product": "a = in_0.relu()\nb = a @ in_1\nc = b.exp()\nreturn (c + a,)",
    "pieces": "a, b = in_0.chunk(2, 1)\nreturn (a * b.sigmoid(),)",
    "an index of two": "a = in_0.abs().long() % 4\nb = in_1.abs().long()[:4] % 6\nc = in_0[a, b]\nreturn (c.relu(),)",
    "an index by what a product gives": "a = in_0.exp()\nb = (a @ in_1).argmax(1) % 4\nc = a[b]\nreturn (c + 1, a)",
    "greatest": "a = in_0.max(1)\nb = a.values + 1\nreturn (b, a[1])",
    "a view at the end": "a = in_0.relu()\nreturn (a.transpose(0, 1),)",
    "sizes": "a = in_0.relu()\nb = a.view(a.size(0), -1, 2)\nreturn (b.sum(-1),)",
    "an input changed": "a = in_0.relu_()\nreturn (a + 1,)",
    "a value changed": "a = in_0.exp()\na += 1\na.relu_()\nreturn (a * 2,)",
    "a view changed": "a = in_0.exp()\nb = a.view(-1)\nb += 1\nreturn (a * 2, b)",
    "changed by others": "a = in_0.exp()\nb = a @ in_1\na += 1\nreturn (a, b)",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("taken", ["all", "all but products", "every second"])
def test_the_graph_gives_what_it_gave(body, taken):
    def supported(node):
        if taken == "every second":
            return list(node.graph.nodes).index(node) % 2 == 0
        return taken == "all" or node.target is not operator.matmul

    rewritten(body, region_pass(supported))


def test_operators_between_stay():
    result = rewritten(BODIES["around a product"], region_pass(lambda node: node.target is not operator.matmul))
    assert calls(result)[0] == "region"
    assert sum(name == "region" for name in calls(result)) == 2
    (report,) = result.reports
    assert (report.kind, report.matches, report.operators) == ("region", 2, ["exp", "add", "relu"])


def test_it_takes_what_passes_before_leave():
    first = reference(lambda x: x.relu() + 1, "first")
    result = rewritten("a = in_0.relu() + 1\nb = a.exp()\nreturn (b * 2,)", first, region_pass(everything))
    assert [report.matches for report in result.reports] == [1, 1]
    assert [name for name in calls(result) if name in ("first", "region")] == ["first", "region"]


def test_nodes_have_forms_and_kernels_are_opaque():
    seen = {}

    def supported(node):
        seen[node.name] = node
        assert node.target is not opaque_call
        return False

    first = reference(lambda x: x.relu() + 1, "first")
    rewritten("a = in_0.relu() + 1\nb = a.exp()\nc = b[1:]\nreturn (c * 2,)", first, region_pass(supported))
    view = next(node.meta["val"] for node in seen.values() if node.target is operator.getitem)
    base = next(node.meta["val"] for node in seen.values() if node.target == "exp")
    assert (view.device.type, view.shape, view.dtype) == ("meta", (3, 6), torch.float32)
    assert view.untyped_storage()._cdata == base.untyped_storage()._cdata
    assert all(node.meta["tensor_meta"].shape == node.meta["val"].shape for node in seen.values())


LEVEL = """n = torch._C._functorch._vmap_increment_nesting(4, 'error')
a = torch._C._functorch._add_batch_dim(in_0, 0, 1)
b = torch._C._functorch._remove_batch_dim(a * 2, 1, 4, 0)
m = torch._C._functorch._vmap_decrement_nesting()
return (b.relu(),)"""


def test_a_pass_is_not_asked_about_the_calls_around_a_level_of_vmap():
    asked = []
    result = rewritten(LEVEL, region_pass(lambda node: asked.append(node) is None))
    assert not any(map(is_batching, asked))
    assert result.reports[0].operators == ["relu"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return (in_0.transpose(0, 1),)", "it only moves or describes data"),
        ("a = in_0.relu()\nreturn (in_0 @ in_1,)", "nothing uses its results"),
    ],
)
def test_what_needs_no_kernel_is_left(body, reason):
    result = rewritten(body, region_pass(lambda node: node.target is not operator.matmul))
    assert reason in result.reports[0].left[0]
    assert result.matches == 0


def test_like_regions_ask_for_one_kernel():
    regions = []

    def wrapper(region, *values):
        regions.append(str(region.graph))
        return on_copies(region, *values)

    rewritten("a = in_0.exp()\nb = a @ in_1\nreturn (b.exp(),)", region_pass(lambda n: n.target == "exp", wrapper))
    assert len(set(regions)) == 1
