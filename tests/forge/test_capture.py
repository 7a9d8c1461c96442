"""From a module to task files: capture, decomposition, dtypes, canonical sources, grouping, and the way back."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.forge import curate, remake, windows
from pytest_passbench.forge.capture import Captured, capture
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import choose, draw, make_task, task_id, write_tasks
from pytest_passbench.forge.decompose import calls, cut
from pytest_passbench.forge.jobs import Job, run_jobs
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.whole_model import whole_model
from pytest_passbench.suite.batching import open_levels
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.find import discover
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.limits import MAX_STATEMENTS
from pytest_passbench.suite.taskfile import read_task, write_task


class Net(nn.Module):
    """A small gated block with a normalisation in the model's dtype and an upcast as language models have it."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.gate, self.up = nn.Linear(32, 64), nn.Linear(32, 64)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        scaled = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        hidden = self.norm(scaled + x)
        return torch.nn.functional.silu(self.gate(hidden)) * self.up(hidden) + self.act(self.up(x) * 2)


def _inputs(_model: nn.Module, variant: Variant) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return (torch.randn(variant.batch, variant.size, 32, generator=generator),)


CASE = ModelCase("own/net", "text", Net, _inputs, (Variant(1, 8), Variant(2, 16)))


@pytest.fixture(autouse=True)
def _any_time_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accept any time: that of these small graphs depends on the machine, and some are at the lower bound."""
    monkeypatch.setattr(curate, "suits", lambda _seconds: True)


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    torch.manual_seed(0)
    return capture_case(CASE)


def test_capture_has_weights_as_inputs_and_real_statistics() -> None:
    x = torch.randn(4, 8, 32)
    (captured,) = capture(Net(), (x,))
    values = captured.values
    named = {name: v for name, v in values.items() if "norm" in name and "weight" in name}
    assert [v.mean for v in named.values()] == [1.0]
    assert any(v.shape == (4, 8, 32) and v.mean == pytest.approx(float(x.mean()), abs=1e-3) for v in values.values())


def test_a_second_size_and_the_low_dtypes_come_without_running_the_model_again(graphs: list[Graph]) -> None:
    assert [g.variant.label for g in graphs] == ["b1n8", "b2n16"]
    second = graphs[1].captured.values
    assert any(v.shape == (2, 16, 32) and v.std is not None for v in second.values())
    assert set(graphs[0].low.values()) == {"bfloat16", "float32"}
    assert graphs[0].follows


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x) + 1
        torch._dynamo.graph_break()
        return torch.sigmoid(x) * 2


def test_a_graph_break_gives_several_graphs() -> None:
    assert len(capture(Broken(), (torch.randn(8),))) == 2


def test_operators_behind_a_graph_break_that_no_task_has_are_tried(tmp_path: Path) -> None:
    graphs = capture_case(replace(CASE, name="own/broken", build=Broken))
    remake.save_graphs(graphs, tmp_path / "captures" / "broken.json")
    (tmp_path / "curated").mkdir()
    tried = {outline.ops for outline in remake.Recipe(tmp_path).uncovered()}
    assert tried == {("tanh", "add"), ("sigmoid", "mul")}


def test_operators_move_next_to_their_user(graphs: list[Graph]) -> None:
    found = list(windows.matching(graphs, {("silu", "mul")}))
    assert [w.ops for w in found] == [("silu", "mul")]


def test_a_saved_corpus_comes_back_the_same(graphs: list[Graph], tmp_path: Path) -> None:
    path = tmp_path / "captures" / "net.json"
    assert remake.save_graphs(graphs, path) == 2
    again = remake.load_graphs(path)
    for one, other in zip(graphs, again, strict=True):
        assert [n.target for n in calls(one.graph)] == [n.target for n in calls(other.graph)]
        assert len(one.follows) == len(other.follows)
        values, values_again = (
            sorted(str(replace(value, name="")) for value in graph.captured.values.values()) for graph in (one, other)
        )
        assert values == values_again


RMS = ("to", "pow", "mean", "add", "rsqrt", "mul", "to", "add")


def test_a_window_becomes_a_task_in_all_dtypes_and_sizes(graphs: list[Graph], tmp_path: Path) -> None:
    found = list(windows.matching(graphs, {RMS}))
    task = make_task(choose(draw(found, {"own/net": graphs}), 6).instances)
    assert {s.dtype for s in task.subgraphs} == {"float32", "bfloat16", "float16"}
    assert len({s.inputs[0].shape for s in task.subgraphs}) == 2
    for subgraph in task.subgraphs:
        module = build_graph(task.graphs[subgraph.graph], "test")
        (output,) = module(*example_inputs(subgraph))
        assert str(output.dtype) == f"torch.{subgraph.dtype}"  # the last cast follows the model's dtype
    (path,) = write_tasks([task], tmp_path)
    assert read_task(path).subgraphs == task.subgraphs
    assert path.name == f"{task_id(RMS)}.task.yaml"


class Bounded(nn.Module):
    """A mask with the least and the greatest number of the model's dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        bounds = torch.finfo(x.dtype)
        return torch.where(x.sin() > 0, bounds.max, x).masked_fill(x.cos() > 0.5, bounds.min)


def test_the_bounds_of_a_dtype_follow_it() -> None:
    graphs = capture_case(replace(CASE, name="own/bounded", build=Bounded))
    ops = ("cos", "gt", "sin", "gt", "where", "masked_fill")
    found = list(windows.matching(graphs, {ops}))
    drawn = draw(found, {"own/bounded": graphs})
    assert {one.dtype for one in drawn} == {"float32", "bfloat16", "float16"}
    for one in drawn:
        bounds = torch.finfo(getattr(torch, one.dtype))
        assert repr(bounds.max) in one.source.replace(repr(bounds.min), "")
        assert repr(bounds.min) in one.source


def test_an_inplace_operator_inside_a_window_is_kept(graphs: list[Graph]) -> None:
    (window,) = windows.matching(graphs, {("mul", "relu")})
    chosen = choose(draw([window], {"own/net": graphs}), 3).instances
    assert chosen
    assert "True" in chosen[0].source


class Assigning(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        y[:, 1:] = torch.tanh(x[:, 1:])
        return y + 1


def test_an_assignment_to_items_is_kept_and_no_piece_leaves_it_out() -> None:
    case = replace(CASE, name="own/assigning", build=Assigning)
    (graph, *_) = capture_case(case)
    (x,) = _inputs(graph.captured.module, CASE.variants[0])
    assert torch.equal(graph.captured.module(x.clone())[0], Assigning()(x.clone()))
    assert cut(calls(graph.graph), graph.captured.values) is None


def test_the_published_layout_is_read_back(graphs: list[Graph], tmp_path: Path) -> None:
    found = list(windows.matching(graphs, {("add", "layer_norm")}))
    task = make_task(choose(draw(found, {"own/net": graphs}), 3).instances)
    write_tasks([task], tmp_path, "published")
    (ref,) = discover(tmp_path)
    again = ref.load()
    assert [s.inputs for s in again.subgraphs] == [s.inputs for s in task.subgraphs]
    assert set(again.graphs.values()) == set(task.graphs.values())


class Mapped(nn.Module):
    """A module with a level of torch.vmap whose result is used, and one whose result nothing uses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.vmap(torch.sin)(x)
        return torch.vmap(lambda row: torch.tanh(row.relu() * 2 + 1))(x).relu()


def test_a_level_of_vmap_is_captured_whole(tmp_path: Path) -> None:
    case = ModelCase("own/mapped", "text", Mapped, _inputs, (Variant(3, 8),))
    task, _ = whole_model(case)
    (source,) = task.graphs.values()
    (x,) = _inputs(Mapped(), case.variants[0])
    assert torch.equal(build_graph(source, "test")(x)[0], Mapped()(x))
    assert source.count("_vmap_increment_nesting") == 1
    graphs = capture_case(case)
    remake.save_graphs(graphs, tmp_path / "mapped.json")
    (graph,) = remake.load_graphs(tmp_path / "mapped.json")
    assert torch.equal(graph.captured.module(x)[0], Mapped()(x))
    assert list(windows.matching(graphs, {("relu", "mul")})) == []  # their values are batched
    windows.fusible(graphs)
    assert open_levels() == 0


def test_a_whole_model_is_a_task_whatever_letters_its_file_has(tmp_path: Path) -> None:
    task, _ = whole_model(ModelCase("modèle/net", "text", Net, _inputs, (Variant(1, 8),)))
    path = tmp_path / f"{task.id}.task.yaml"
    write_task(task, path)
    assert read_task(path).graphs == task.graphs


def test_fusible_runs_end_where_a_kernel_more_is_needed(graphs: list[Graph]) -> None:
    found = {w.ops for w in windows.fusible(graphs) if w.kind == "fusible"}
    assert ("silu", "mul") in {ops[:2] for ops in found}
    assert all(len(ops) >= 2 for ops in found)
    assert not any("linear" in ops for ops in found)


def test_runs_about_a_convolution_are_found() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1), nn.Sigmoid()).eval()
    case = ModelCase("own/conv", "vision", lambda: net, lambda _model, v: (torch.randn(v.batch, 3, v.size, v.size),),
                (Variant(2, 16),))  # fmt: skip
    found = {w.ops for w in windows.fusible(capture_case(case)) if w.kind == "anchored"}
    assert {("conv2d", "batch_norm", "relu"), ("conv2d", "sigmoid"), ("relu", "conv2d", "sigmoid")} <= found


def test_a_window_counts_the_values_that_are_used_outside(graphs: list[Graph], tmp_path: Path) -> None:
    found = [w for w in windows.fusible(graphs) if w.ops[:1] == ("add",)]
    remake.save_windows(found, tmp_path / "windows.json")
    assert remake.load_windows(tmp_path / "windows.json") == found
    for one in found:
        nodes = calls(graphs[one.place].graph)
        inside = set(nodes[one.start : one.end])
        assert one.outputs == sum(any(u not in inside for u in node.users) for node in inside)


@pytest.mark.slow
def test_a_captured_graph_may_be_longer_than_a_tasks(tmp_path: Path) -> None:
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    for _ in range(MAX_STATEMENTS + 10):
        node = graph.call_function(torch.tanh, (node,))
    graph.output((node,))
    made = Graph("own/long", "text", "", Variant(1, 8), 0, Captured(torch.fx.GraphModule(nn.Module(), graph)))
    assert remake.save_graphs([made], tmp_path / "long.json") == 1
    (again,) = remake.load_graphs(tmp_path / "long.json")
    assert len(calls(again.graph)) == MAX_STATEMENTS + 10


def test_jobs_survive_a_crash_and_a_hang_and_are_not_done_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import os
    import time

    def job(name: str, work: object) -> Job:
        return Job(name, tmp_path / name, lambda: work())  # type: ignore[operator]

    good = job("good", lambda: (tmp_path / "good").write_text("1"))
    dies, hangs = job("dies", lambda: os._exit(3)), job("hangs", lambda: time.sleep(60))
    jobs = [good, dies, hangs, job("raises", lambda: 1 / 0)]
    assert sorted(run_jobs(jobs, 2, 1.0, ProgressLines("forge"))) == ["dies", "hangs", "raises"]
    reasons = {j.name: j.failure.read_text() for j in jobs[1:]}
    assert "exit code 3" in reasons["dies"]
    assert "longer than" in reasons["hangs"]
    assert "ZeroDivisionError" in reasons["raises"]
    said = capsys.readouterr().err
    assert "raises: ZeroDivisionError" in said
    assert f"4 jobs ended; the reasons of 3 failures lie in {tmp_path}/*.failed" in said
    (tmp_path / "good").write_text("2")
    assert run_jobs(jobs, 2, 1.0, ProgressLines("forge")) == []
    assert (tmp_path / "good").read_text() == "2"


def test_a_job_that_made_its_file_is_done_although_it_goes_on_for_too_long_or_fails(tmp_path: Path) -> None:
    import time

    def job(name: str, work: object) -> Job:
        target = tmp_path / name
        return Job(name, target, lambda: (target.write_text("1"), work()))  # type: ignore[operator]

    jobs = [job("late", lambda: time.sleep(60)), job("raises", lambda: 1 / 0)]
    assert run_jobs(jobs, 2, 1.0, ProgressLines("forge")) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["late", "raises"]


def _forge(*arguments: str) -> int:
    from pytest_passbench.commands.main import main

    return main(["forge", *arguments])


def test_an_unknown_step_or_architecture_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _forge("--steps=dream", f"--work={tmp_path}") == 1
    assert _forge("--steps=capture", "--only=nothing/here", f"--work={tmp_path}") == 1
    error = capsys.readouterr().err
    assert "no step 'dream'" in error
    assert "no architecture nothing/here" in error


def test_a_committed_task_is_made_again_with_the_same_hashes(graphs: list[Graph]) -> None:
    found = list(windows.matching(graphs, {RMS}))
    task = make_task(choose(draw(found, {"own/net": graphs}), 6).instances)
    again = remake.verify(CASE, [task])
    assert (again.same, again.missing) == (len(task.subgraphs), ())
    key, source = next(iter(task.graphs.items()))
    changed = replace(task, graphs={**task.graphs, key: source.replace("1e-06", "1e-05")})
    assert len(remake.verify(CASE, [changed]).missing) == sum(s.graph == key for s in task.subgraphs)


def test_an_unknown_hub_folder_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _forge(f"--hub={tmp_path}") == 1
    error = capsys.readouterr().err
    assert "no configuration" in error or "transformers is not installed" in error
    assert len(error.strip().splitlines()) == 1


if importlib.util.find_spec("transformers") is not None:  # an optional dependency of the forge alone

    @pytest.mark.slow
    def test_a_local_configuration_becomes_task_files(tmp_path: Path) -> None:
        config = {"model_type": "vit", "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128,
                  "image_size": 32, "patch_size": 8, "num_hidden_layers": 12}  # fmt: skip
        (tmp_path / "tiny").mkdir()
        (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
        assert _forge(f"--hub={tmp_path / 'tiny'}", f"--out={tmp_path / 'out'}", "--tasks=1") == 0
        (ref,) = discover(tmp_path / "out")
        assert ref.header.sources == ("hub/tiny",)
