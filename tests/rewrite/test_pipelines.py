"""The same passes alone, under torch.compile, and with TorchInductor for the rest."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from pytest_passbench.plans.graphs import Traced
from pytest_passbench.reader.importing import LoadedPass
from pytest_passbench.reader.local import LocalKernels, as_passes
from pytest_passbench.rewrite import pipelines
from pytest_passbench.rewrite.passes import Pass, PassError
from pytest_passbench.rewrite.pipelines import build_baseline, warm_up
from pytest_passbench.suite.build import build_graph
from shared.batched_mask import PLACES, mask_source
from support.paths import SHARED, TESTS
from support.reference_passes import build, graph, reference

# Dynamo and Inductor import parts of torch and of the standard library that warn of their own deprecation.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:torch"),
]
FAST, SLOW = ["direct", "dynamo"], ["inductor"]


@pytest.fixture(autouse=True)
def _single_process(monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch._dynamo.reset()
    with torch.no_grad():
        yield
    torch._dynamo.reset()


BODY = """
b = in_1.size(0)
a = torch.nn.functional.linear(in_2, in_0, bias=None)
a += in_1
c = torch.nn.functional.layer_norm(a, (8,), eps=1e-6)
d = c.view(b, 2, -1).transpose(1, 2)
return (d, a * 2, in_1.relu())
"""


def pattern(t, y):
    s = t + y
    return F.layer_norm(s, (s.shape[-1],), None, None, 1e-6), s


def tensors():
    return [torch.randn(8, 8), torch.randn(4, 8), torch.randn(4, 8)]


def check(built, before, make=tensors):
    with torch.compiler.set_stance("fail_on_recompile"):
        for _ in range(3):
            one = make()
            other = [t.clone() for t in one]
            torch.testing.assert_close(tuple(built.call(*other)), before(*one))
            torch.testing.assert_close(other, one)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", FAST + SLOW)
def test_a_pass_with_two_outputs(pipeline):
    before = graph(BODY, 3)
    built = build(pipeline, before, [reference(pattern)], tensors())
    assert built.rewritten
    assert built.reports[0].matches == 1
    assert built.reports[0].operators == ["add", "layer_norm"]
    check(built, before)


@pytest.mark.parametrize("pipeline", FAST)
def test_a_graph_input_written_in_place(pipeline):
    before = graph("in_0 += in_1\nreturn (in_0.sin(), in_1.cos())", 2)
    built = build(pipeline, before, [reference(lambda x, y: ((a := x + y), a.sin()))], [torch.ones(3), torch.ones(3)])
    assert built.reports[0].operators == ["add", "sin"]
    check(built, before, lambda: [torch.randn(3), torch.randn(3)])


@pytest.mark.parametrize("pipeline", FAST)
def test_reports_are_summed_and_a_miss_is_told(pipeline):
    before = graph(BODY, 3)
    passes = [reference(lambda x: x.relu(), "hit"), reference(lambda x: F.softmax(x, -1), "miss")]
    built = build(pipeline, before, passes, tensors())
    assert [(r.name, r.matches) for r in built.reports] == [("hit", 1), ("miss", 0)]
    assert "the graph has no softmax" in built.reports[1].miss


@pytest.mark.parametrize("pipeline", FAST + SLOW)
def test_a_pass_that_cannot_be_traced_is_a_pass_error(pipeline):
    with pytest.raises(PassError, match="pass bad: pattern cannot be traced"):
        build(pipeline, graph(BODY, 3), [reference(lambda x: torch.nope(x), "bad")], tensors())


@pytest.mark.parametrize("pipeline", FAST + SLOW)
def test_what_a_kernel_raises_comes_out(pipeline):
    def wrapper(x):
        raise ZeroDivisionError("in the kernel")

    item = LoadedPass("raises", lambda x: x.relu(), lambda x: (x,), lambda: wrapper, wrapper, Path("raises.py"))
    with pytest.raises(ZeroDivisionError, match="in the kernel"):
        build(pipeline, graph(BODY, 3), [item], tensors())


def test_inductor_mends_strides_and_aliases():
    def wrapper(x, y):
        return (x + y).t().contiguous().t(), y  # other strides than the graph's; an input is returned

    item = LoadedPass("p", lambda x, y: (x + y, y.abs()), lambda x, y: (x, y), lambda: wrapper, wrapper, Path("p.py"))
    before = graph("a = in_0 * 2\nb = in_1 * in_1\nc = a + b\nd = b.abs()\nreturn (c.relu() + 1, d - 1)", 2)
    built = build("inductor", before, [item], [torch.randn(4, 6), torch.randn(4, 6)])
    assert built.rewritten
    check(built, before, lambda: [torch.randn(4, 6), torch.randn(4, 6)])


def test_inductor_says_which_shape_is_wrong():
    def wrapper(x):
        return x[:1]

    item = LoadedPass("p", lambda x: x.relu(), lambda x: (x,), lambda: wrapper, wrapper, Path("p.py"))
    with pytest.raises(RuntimeError, match=r"pass p: the kernel wrapper returned \(1, 8\)"):
        build("inductor", graph(BODY, 3), [item], tensors())


@pytest.mark.parametrize("name", ["eager", "inductor-baseline"])
def test_baselines(name):
    before = graph(BODY, 3)
    built = build_baseline(name, before, tensors())
    assert not built.rewritten
    check(built, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "alone"),
    [
        ("return (in_2.relu() * 2,)", True),
        ("return (torch.nn.functional.layer_norm(in_1 + in_2, (8,)).softmax(-1), in_1.t().contiguous())", True),
        (BODY, False),  # a product is still torch's, and cannot be left out
        ("return (in_1.scatter_reduce(0, (in_2 > 0).long(), in_2 + 1, 'prod'),)", False),  # nor can its indices
    ],
)
def test_what_the_default_compiler_generates(body, alone):
    before, values = graph(body, 3), tensors()
    built = build_baseline("inductor-baseline", before, values)
    assert built.generated.kernels >= 1
    assert (built.generated.call_us is not None) == alone
    check(built, before)


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="unknown pipeline 'x'"):
        build("x", graph(BODY, 3), [], tensors())
    with pytest.raises(ValueError, match="unknown baseline 'x'"):
        build_baseline("x", graph(BODY, 3), tensors())


@pytest.mark.parametrize("pipeline", FAST)
def test_warming_up_needs_no_candidate(pipeline):
    warm_up(pipeline)
    check(build(pipeline, graph(BODY, 3), [reference(pattern)], tensors()), graph(BODY, 3))


FORKED = """
import os, sys, torch
sys.path[:0] = {folders!r}
torch.set_num_threads(1)
import test_pipelines as t
from pytest_passbench.rewrite.pipelines import warm_up
from support.reference_passes import build
warm_up({pipeline!r})
with torch.no_grad():
    before = t.graph(t.BODY, 3)
    built = build({pipeline!r}, before, [t.reference(t.pattern)], t.tensors())
    threads = [open(f"/proc/self/task/{{t}}/comm").read().strip() for t in os.listdir("/proc/self/task")]
    assert len(threads) == 1, threads
    if not os.fork():
        t.check(built, before)
        print("same in the fork", flush=True)
        os._exit(0)
    os.wait()
"""


def run_apart(program, **names):
    """Run a Python program in a process of its own, since a fork hangs after the parallel work of other tests."""
    program = program.format(folders=[str(Path(__file__).parent), str(TESTS), str(SHARED.parent)], **names)
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["dynamo", "inductor"])
def test_a_fork_calls_without_compiling(pipeline):
    done = run_apart(FORKED, pipeline=pipeline)
    assert "same in the fork" in done.stdout, done.stderr


BASELINE = """
import os, sys, torch
sys.path[:0] = {folders!r}
torch.set_num_threads(1)
import test_pipelines as t
from pytest_passbench.rewrite.pipelines import build_baseline, warm_up
warm_up("inductor-baseline")
from torch._inductor.cpu_vec_isa import VecISA
threads = [open(f"/proc/self/task/{{t}}/comm").read().strip() for t in os.listdir("/proc/self/task")]
assert len(threads) == 1, threads
if not os.fork():
    VecISA.check_build = None  # a call of it raises
    with torch.no_grad():
        before = t.graph(t.BODY, 3)
        t.check(build_baseline("inductor-baseline", before, t.tensors()), before)
    print("compiled in the fork", flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.slow
def test_no_fork_of_a_baseline_tries_the_instruction_sets_again():
    done = run_apart(BASELINE)
    assert "compiled in the fork" in done.stdout, done.stderr


def doubled(x):
    return F.relu(x) * 2


def masks():
    return [torch.rand(2, 5) > 0.3, torch.arange(5), torch.randn(2, 1, 5, 5)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("pipeline", FAST + SLOW)
def test_passes_beside_levels_of_vmap(pipeline, place):
    before = build_graph(mask_source(place), "model.py")
    built = build(pipeline, before, [reference(doubled)], masks())
    assert built.rewritten
    for _ in range(2):
        values = masks()
        torch.testing.assert_close(built.call(*values), before(*values))
    assert torch._C._functorch.maybe_current_level() is None


def test_no_kernel_gets_a_batched_tensor():
    before = build_graph(mask_source(), "model.py")
    built = build("direct", before, [reference(lambda x, y: x <= y)], masks())
    assert not built.rewritten
    assert "le works on a batched tensor of torch.vmap, which no kernel takes" in built.reports[0].miss


def test_a_match_does_not_move_what_stands_at_a_level():
    """The mask uses one result of the match before the other is computed, so a match would have to move the mask."""

    def pattern(x, y):
        return x > 0, y.tanh()

    text = """
    def forward(in_0, in_1):
        a = in_0 > 0
        n = torch._C._functorch._vmap_increment_nesting(3, 'error')
        b = torch._C._functorch._add_batch_dim(a, 0, 1)
        c = torch._C._functorch._remove_batch_dim(~b, 1, 3, 0)
        n_1 = torch._C._functorch._vmap_decrement_nesting()
        d = in_1.tanh()
        return (c, d)
    """
    before = build_graph(textwrap.dedent(text), "model.py")
    built = build("direct", before, [reference(pattern)], [torch.randn(3), torch.randn(3)])
    assert not built.rewritten
    assert "b works on a batched tensor of torch.vmap" in built.reports[0].miss


def test_replacement_args_opens_no_level():
    """The process that reads a candidate may send any name, also a call that tracing its functions never gives."""
    loaded = [reference(doubled)]
    (item,) = as_passes(loaded)
    arguments = torch.fx.Graph()
    x = arguments.placeholder("x")
    arguments.output((arguments.call_function(torch._C._functorch._add_batch_dim, (x, 0, 1)),))
    item = Pass(item.name, item.pattern, Traced(arguments))
    with pytest.raises(PassError, match="_add_batch_dim, which is not an operator of a graph"):
        pipelines.build(
            "direct", graph("return (torch.relu(in_0) * 2,)"), [item], [torch.randn(3)], LocalKernels(loaded)
        )
