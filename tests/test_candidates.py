"""The shipped candidates on the shipped tasks: their passes apply, and agree with eager at t = -5."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pytest_passbench.core.task import Subgraph, Task, TensorSpec
from pytest_passbench.reader.importing import LoadedPass, load_passes
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.taskfile import read_task
from support.paths import ROOT
from support.reference_passes import build

TOLERANCES = {torch.float32: (1.3e-6, 1e-5), torch.bfloat16: (1.6e-2, 1e-5), torch.float16: (1e-3, 1e-5)}
LITE = sorted(path for path in (ROOT / "tasks").rglob("*.task.yaml") if "lite" in path.read_text()[:2000])


def _passes(candidate: str) -> list[LoadedPass]:
    folder = ROOT / "candidates" / candidate
    return load_passes(folder, json.loads((folder / "sorted_output_pass_rule_names.json").read_text()))


@pytest.fixture(scope="module")
def fused() -> list[LoadedPass]:
    return _passes("cpu-fused")


def _input(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if not dtype.is_floating_point:
        return torch.randint(int(spec.min or 0), int(spec.max or 1) + 1, spec.shape, generator=generator).to(dtype)
    x = torch.randn(spec.shape, generator=generator) * (spec.std or 0.1) + (spec.mean or 0.0)
    return (x.clamp(spec.min, spec.max) if spec.min is not None else x).to(dtype)


def _small(task: Task) -> Iterator[Subgraph]:
    """Yield the smallest subgraph of each dtype."""
    for dtype in sorted({subgraph.dtype for subgraph in task.subgraphs}):
        yield min((s for s in task.subgraphs if s.dtype == dtype), key=lambda s: s.elements)


def _check(task: Task, subgraph: Subgraph, passes: list[LoadedPass]) -> list[str]:
    """Judge one subgraph in this process. Return the names of the passes that matched."""
    generator = torch.Generator().manual_seed(7)
    graph = build_graph(task.graphs[subgraph.graph], subgraph.id)
    inputs = [_input(spec, generator) for spec in subgraph.inputs]
    with torch.no_grad():
        built = build("direct", graph, passes, inputs)
        expected, found = graph(*[x.clone() for x in inputs]), built.call(*inputs)
    for one, other in zip(expected, found, strict=True):
        rtol, atol = TOLERANCES.get(one.dtype, (0, 0))
        torch.testing.assert_close(
            other, one, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{subgraph.id}: {m}"
        )
    return [report.name for report in built.reports if report.matches]


@pytest.mark.parametrize("path", LITE, ids=lambda path: path.name.split(".")[0])
def test_cpu_fused_covers_the_lite_tasks_and_is_as_eager(path: Path, fused: list[LoadedPass]) -> None:
    task = read_task(path)
    assert all(_check(task, subgraph, fused) for subgraph in _small(task))


@pytest.mark.parametrize("path", LITE[:3], ids=lambda path: path.name.split(".")[0])
def test_trivial_takes_one_operator(path: Path) -> None:
    task = read_task(path)
    subgraph = next(_small(task))
    graph = build_graph(task.graphs[subgraph.graph], subgraph.id)
    inputs = [_input(spec, torch.Generator().manual_seed(7)) for spec in subgraph.inputs]
    (report,) = build("direct", graph, _passes("trivial"), inputs).reports
    assert (report.kind, report.matches, len(report.operators)) == ("region", 1, 1)


def test_no_match_misses_and_says_how_near_it_came() -> None:
    task = read_task(next(path for path in LITE if "tanh" in path.name or "mul-pow" in path.name))
    subgraph = task.subgraphs[0]
    graph = build_graph(task.graphs[subgraph.graph], subgraph.id)
    inputs = [_input(spec, torch.Generator()) for spec in subgraph.inputs]
    built = build("direct", graph, _passes("no-match"), inputs)
    assert not built.rewritten
    assert "tanh" in built.reports[0].miss


SCATTER = """
def forward(in_0, in_1):
    tmp_0 = in_0.view({view})
    tmp_1 = tmp_0.expand_as(in_1)
    tmp_2 = in_1.new_zeros({zeros})
    tmp_3 = tmp_2.scatter_add_(0, tmp_1, in_1)
    return (tmp_3,)
"""


@pytest.mark.parametrize(
    ("rows", "dtype", "taken"),
    [
        ((50, 7), torch.float32, True),
        ((50, 3, 24), torch.float32, True),
        ((50, 1, 9), torch.float32, True),
        ((600, 64), torch.bfloat16, True),
        ((600, 64), torch.float16, True),
        ((50, 24), torch.bfloat16, False),  # with so few rows eager rounds each sum
        ((50,), torch.float32, False),
    ],
)
def test_rows_are_added_where_an_index_says_bit_for_bit(rows, dtype, taken) -> None:
    text = SCATTER.format(view=(-1, *[1] * (len(rows) - 1)), zeros=(20, *rows[1:]))
    chance = torch.Generator().manual_seed(3)
    inputs = [torch.randint(0, 20, rows[:1], generator=chance), torch.randn(rows, generator=chance).to(dtype)]
    graph = build_graph(text, "rows")
    built = build("direct", graph, load_passes(ROOT / "candidates/cpu-fused", ["scatter_rows"]), inputs)
    assert [report.matches for report in built.reports] == [int(taken)]
    assert torch.equal(built.call(*inputs)[0], graph(*inputs)[0])


def _ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


HEADS, TURNS, IMAGE, ROWS = _ones(1, 2, 3, 8), _ones(1, 1, 3, 8), _ones(1, 4, 3, 5), _ones(2, 3, 8)
HALF, SCORES = {"dtype": torch.bfloat16}, _ones(1, 2, 3, 8, dtype=torch.bfloat16)
WITHOUT_KERNEL = {
    "a batch norm without a weight": ("batch_norm_silu", (IMAGE, _ones(4), _ones(4), None, None, 0.1, 1e-5)),
    "a layer norm without a weight": ("add_permute_layer_norm", (IMAGE, IMAGE, (4,), None, None, 1e-5)),
    "a batch norm in float32": ("batch_norm_silu", (IMAGE.bfloat16(), *[_ones(4)] * 4, 0.1, 1e-5)),
    "a sum of two dtypes": ("add_relu", (IMAGE, IMAGE.bfloat16())),
    "a gate of another dtype": ("silu_mul", (IMAGE.bfloat16(), IMAGE)),
    "an RMS norm with a wider weight": ("rms_norm", (SCORES, _ones(8), 1e-6, torch.bfloat16)),
    "turns in bfloat16": ("rotary", (HEADS, TURNS.bfloat16(), TURNS.bfloat16(), 4)),
    "a half that is counted from the end": ("rotary", (HEADS, TURNS, TURNS, -2)),
    "a half longer than the row": ("rotary", (HEADS, TURNS, TURNS, 9)),
    "turns whose rows are columns": ("rotary", (HEADS, *[_ones(8, 3).t()[None, None]] * 2, 4)),
    "sines of one place": ("rotary", (HEADS, TURNS, TURNS[:, :, :1], 4)),
    "a bias that is a column": ("softplus_bias", (_ones(4, 4), _ones(4, 1))),
    "capped scores rounded twice": ("attention_capped", (SCORES, 5.0, SCORES, None, torch.float32, 0.0)),
    "masked scores rounded twice": ("attention_masked", (SCORES, 0.5, SCORES, None, torch.float32, 0.0)),
    "added scores rounded twice": ("attention_added", (SCORES, SCORES, None, torch.float32, 0.0)),
    "a layer norm of two dimensions": (
        "add_permute_layer_norm",
        (IMAGE, IMAGE, (5, 4), _ones(5, 4), _ones(5, 4), 1e-5),
    ),
    "an RMS norm with weights for heads": ("rms_norm", (ROWS, _ones(3, 8), 1e-6, torch.float32)),
    "T5's with weights for heads": ("rms_norm_rounded", (ROWS, ROWS, _ones(3, 8), 1e-6)),
}


@pytest.mark.parametrize("case", WITHOUT_KERNEL)
def test_a_wrapper_raises_for_what_eager_takes_and_it_has_no_kernel_for(case: str) -> None:
    name, arguments = WITHOUT_KERNEL[case]
    (item,) = load_passes(ROOT / "candidates/cpu-fused", [name])
    item.pattern(*arguments)
    with pytest.raises(ValueError, match="no kernel for"):
        item.wrapper(*item.replacement_args(*arguments))


def test_kernels_of_inductor_passes_take_rows_equally_far_apart_and_of_one_form() -> None:
    kernels = runpy.run_path(str(ROOT / "candidates/inductor-passes/kernels.py"))
    gate, norm, add_norm = (kernels[name] for name in ("silu_and_mul", "rms_norm", "fused_add_rms_norm"))
    x = torch.randn(2, 3, 16, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(gate(x[..., :8], x[..., 8:]), torch.nn.functional.silu(x[..., :8]) * x[..., 8:])
    for up in (ROWS[:1], ROWS.bfloat16(), x[..., ::2], x[..., 8:]):
        with pytest.raises(ValueError, match="silu_and_mul: no kernel for"):
            gate(ROWS, up)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        gate(x[:, :2, :8], x[:, :2, 8:])
    for call in (lambda: norm(ROWS, _ones(3, 8), 1e-6), lambda: add_norm(ROWS, ROWS[:1], _ones(8), 1e-6)):
        with pytest.raises(ValueError, match="rms_norm: no kernel for shapes"):
            call()


TRITON = """
import pytest, sys, torch
sys.path[:0] = {path!r}
from test_candidates import TOLERANCES, _passes
for item in _passes("triton-fused"):
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        r = lambda *shape: torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)
        inputs = {{
            "rms_norm": (r(2, 3, 40), r(40), 1e-6, dtype),
            "attention_softmax": (r(1, 2, 3, 20), 0.125, None, 0.0),
            "batch_norm_relu": (r(2, 4, 3, 3), r(4), r(4).abs() + 0.5, r(4), r(4), 0.1, 1e-5),
            "dropout_add_layer_norm": (r(2, 3, 40), 0.1, r(2, 3, 40) + 1, (40,), r(40), r(40), 1e-5),
            "silu_mul": (r(3, 50), r(3, 50) - 1),
            "quick_gelu": (r(3, 50),),
        }}[item.name]
        if dtype == torch.float64:
            with pytest.raises(ValueError, match="no kernel for"):
                item.wrapper(*item.replacement_args(*inputs))
            continue
        expected, found = item.pattern(*inputs), item.wrapper(*item.replacement_args(*inputs))
        rtol, atol = TOLERANCES[dtype]
        named = lambda message: f"{{item.name}} {{dtype}}: {{message}}"
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, msg=named)
    ones, nan = torch.ones(4), torch.full((1, 4), 0x7FFFFFFF, dtype=torch.int32).view(torch.float32)  # as a GPU's
    if item.name == "batch_norm_relu":
        assert item.wrapper(nan, ones, ones, ones, ones, 1e-5).isnan().all()
    if item.name == "dropout_add_layer_norm":
        assert item.wrapper(ones[None].bfloat16(), nan, ones, ones, 1e-5)[0].isnan().all()
    print(item.name)
"""


@pytest.mark.slow
def test_triton_fused_runs_in_the_interpreter_and_is_as_eager() -> None:
    code = TRITON.format(path=[str(ROOT), str(ROOT / "tests")])
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    names = json.loads((ROOT / "candidates/triton-fused/sorted_output_pass_rule_names.json").read_text())
    assert done.stdout.split() == names
