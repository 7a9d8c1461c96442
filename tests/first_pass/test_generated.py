"""Passes that ``passbench new`` writes: they match their task, and answer as eager in every dtype."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_passbench.candidate.layout import MANIFEST, Candidate, read_manifest
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.first_pass import write as first_pass
from pytest_passbench.first_pass.branch import Lengths
from pytest_passbench.first_pass.write import Draft, draft, write
from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.columns import size
from pytest_passbench.fusion.ir import Buffer
from pytest_passbench.judge.trusted import TrustedSession
from pytest_passbench.suite import find
from pytest_passbench.suite.taskfile import read_task

ROOT = Path(__file__).resolve().parents[2]
FLOATS = ("float32", "bfloat16", "float16")
#: Graphs with the shapes of their inputs, and the operators that a pass has to cover.
GRAPHS = {
    "elementwise, with a broadcast": (
        "x = torch.sigmoid(in_0 * 1.5 + in_1)\n    return (torch.where(x > 0.5, x, -in_0) / 3,)",
        ((3, 5, 7), (5, 1)),
    ),
    "several results, one of them a view": (
        "a = in_0 + in_1\n    b = torch.nn.functional.relu(a, inplace=True)\n    return (b.transpose(0, 1), a.exp())",
        ((4, 6), (6,)),
    ),
    "reductions": (
        "m = in_0.mean(-1, keepdim=True)\n    v = in_0.var(1)\n    return (in_0 - m, v, in_0.max(dim=1)[0])",
        ((3, 12, 33),),
    ),
    "norms": (
        "a = torch.nn.functional.layer_norm(in_0, (32,), in_1, in_1, 1e-05)\n"
        "    return (torch.nn.functional.group_norm(in_0, 4, None, None, 1e-05), a)",
        ((2, 8, 32), (32,)),
    ),
    "batch norm, softmax over another dimension": (
        "a = torch.nn.functional.batch_norm(in_0, in_1, in_2, in_1, in_1, False, 0.1, 1e-05)\n"
        "    return (a.softmax(1),)",
        ((2, 6, 5, 5), (6,), (6,)),
    ),
    "pooling": (
        "a = torch.nn.functional.max_pool2d(in_0, 2, 2, 0, 1, ceil_mode=False, return_indices=False)\n"
        "    return (a, torch.nn.functional.adaptive_avg_pool2d(in_0, (1, 1)))",
        ((2, 3, 8, 8),),
    ),
    "joined and moved": (
        "a, b = in_0.chunk(2, dim=-1)\n    return (torch.cat([-b, a], dim=-1).permute(1, 0, 2).contiguous(),)",
        ((2, 3, 8),),
    ),
    "numbers beside half tensors, and a reciprocal": (
        "a = (in_0 + 0.1234567) - (0.7654321 - in_0)\n    return (a, 0.3 / in_0, in_0 > 0.1234567)",
        ((300, 7),),
    ),
    "only moved": ("return (torch._C._nn.pad(in_0, (1, 2), 'constant', 0).reshape(-1),)", ((3, 9),)),
}
QUICK = ("several results, one of them a view", "norms")


def judged(task: Task, found: Draft, folder: Path) -> list[str]:
    """Return what is wrong with a draft's answers, of the smallest subgraph of each graph and dtype."""
    write(found, folder, force=False)
    chosen = {}
    for subgraph in sorted(task.subgraphs, key=lambda one: one.elements):
        chosen.setdefault((subgraph.graph, subgraph.dtype), subgraph)
    task = dataclasses.replace(task, subgraphs=tuple(chosen.values()))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        records = TrustedSession(Settings(pipeline="direct", trusted=True), b"x" * 32).judge(
            task, Candidate.open(folder)
        )
        return [f"{one.subgraph}: {one.arm.message}{one.arm.worst}" for one in records if not right(one)]
    finally:
        torch.set_num_threads(threads)


def right(record) -> bool:
    return record.arm.status == "ran" and max(record.arm.correct_from) <= -5


@pytest.mark.slow
def test_a_kernel_may_return_overlapping_elements(bench, tmp_path):
    body = "return (torch._C._nn.pad(in_0, (1, 2), 'constant', 0).unfold(1, 4, 2),)"
    task = read_task(bench.task("t", f"def forward(in_0):\n    {body}\n", ((3, 9),), FLOATS))
    found = draft(task)
    assert list(found.matched.values()) == ["pad, unfold"]
    assert not found.left
    assert judged(task, found, tmp_path / "made") == []


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in GRAPHS]
)
def test_a_pass_for_a_graph_is_as_eager_in_every_dtype(name, bench, tmp_path):
    body, shapes = GRAPHS[name]
    arguments = ", ".join(f"in_{index}" for index in range(len(shapes)))
    stats = "mean: 0.7, std: 0.5, min: 0.1, max: 3.0"
    path = bench.task("t", f"def forward({arguments}):\n    {body}\n", shapes, FLOATS, stats=stats)
    task = read_task(path)
    found = draft(task)
    assert not found.left
    assert judged(task, found, tmp_path / "made") == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["add-add-softmax-1b7e", "relu-square-e1cb"])
def test_a_pass_in_triton_is_as_eager(name: str):
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "first_passes.py", name, "--triton"],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert f"{name}: green: whole: " in done.stdout, done.stdout + done.stderr


LITE = [ref.id for ref in find.select(find.discover(find.installed_tasks()), "lite")]


@pytest.mark.slow
@pytest.mark.parametrize("name", LITE)
def test_a_pass_for_each_lite_task_is_as_eager(name: str, tmp_path: Path):
    task = find.single(name).load()
    assert judged(task, draft(task), tmp_path / "made") == []


def test_a_part_that_the_matcher_finds_nowhere_gives_way_to_the_next(monkeypatch):
    task, columns = find.single("add-view-softmax-3151").load(), first_pass.columns
    refused = {"add_view_softmax"}
    monkeypatch.setattr(
        first_pass, "columns", lambda task, parts: {} if refused & parts.keys() else columns(task, parts)
    )
    assert draft(task).matched == {"add_view": "add, view"}
    monkeypatch.setattr(first_pass, "columns", lambda _task, _parts: {})
    with pytest.raises(UserError, match="no kernel for softmax, which the matcher finds in no graph"):
        draft(task)


def test_passes_are_added_to_a_list_in_any_encoding_that_the_judge_reads(tmp_path: Path):
    (tmp_path / MANIFEST).write_bytes('["mine"]'.encode("utf-16"))
    write(Draft({"other.py": ""}, {"other": "relu"}), tmp_path, force=False)
    assert read_manifest(tmp_path / MANIFEST) == ["mine", "other"]
    (tmp_path / MANIFEST).write_text('{"mine": 1}')
    with pytest.raises(UserError, match="not a JSON list of strings"):
        write(Draft({"another.py": ""}, {"another": "relu"}), tmp_path, force=False)
    assert not (tmp_path / "another.py").exists()


def test_graphs_that_differ_in_a_number_share_a_pattern_with_an_argument(tmp_path: Path):
    task = find.single("add-view-softmax-3151").load()
    (text,) = draft(task).files.values()
    assert "def pattern(x, y, n2):" in text
    assert "reshaped = total.view(-1, " in text


def test_a_fused_kernel_is_right_at_sizes_that_its_task_has_not(bench, tmp_path):
    source = (
        "def forward(in_0, in_1):\n    a = torch.nn.functional.gelu(in_0 + in_1)\n"
        "    return (a.softmax(-1), a.transpose(0, 1).contiguous())\n"
    )
    square = read_task(bench.task("square", source, ((6, 6), (6,)), FLOATS, ops=("gelu",)))
    other = read_task(bench.task("other", source, ((4, 21), (21,)), FLOATS, ops=("gelu",)))
    first_draft = draft(square)
    (text,) = first_draft.files.values()
    assert text.count('extern "C"') == 1
    assert "// add, gelu" in text
    assert judged(other, first_draft, tmp_path / "made") == []


def test_a_wrapper_of_several_ranks_asks_for_the_rank_before_it_reads_a_size(bench, tmp_path):
    source = "def forward(in_0, in_1, in_2):\n    return (in_0 * in_1 + in_2,)\n"
    shapes = [((1, 1, n, 4, 5), (1, 1, n, 4, 1), (1, 1, n, 4, 5)) for n in (3, 6)]
    shapes += [((1, n, 7), (1, 1, 7), (1, 1, 7)) for n in (6, 9)]
    names = [f"t{place}" for place in range(len(shapes))]
    tasks = [read_task(bench.task(name, source, each)) for name, each in zip(names, shapes, strict=True)]
    subgraphs = [dataclasses.replace(task.subgraphs[0], id=task.id) for task in tasks]
    drafted = draft(dataclasses.replace(tasks[0], subgraphs=tuple(subgraphs)))
    for task in tasks:
        assert judged(task, drafted, tmp_path / task.id) == []


@pytest.mark.parametrize(("length", "goal"), [((3, 0), (6, 5)), ((5, 6), (0, 3))])
def test_a_size_of_zero_has_no_ratio_to_another(length: tuple[int, int], goal: tuple[int, int]):
    lengths = Lengths({Buffer(0, torch.float32, (size(length),), (1,)): "x"}, {}, 2, [])
    with pytest.raises(Unsupported, match="a size that is not one of the arguments'"):
        lengths.length(size(goal))


def test_a_result_that_is_expanded_in_some_subgraphs_has_one_place_in_others(bench, tmp_path):
    source = "def forward(in_0, in_1):\n    return (in_0.view(-1, 1, 1).expand_as(in_1), in_1.exp())\n"
    tasks = [read_task(bench.task(f"t{n}", source, ((5,), (5, n, 3)))) for n in (4, 1)]
    subgraphs = [dataclasses.replace(task.subgraphs[0], id=task.id) for task in tasks]
    drafted = draft(dataclasses.replace(tasks[0], subgraphs=tuple(subgraphs)))
    assert not drafted.left
    for task in tasks:
        assert judged(task, drafted, tmp_path / task.id) == []


@pytest.fixture
def masked(bench) -> Task:
    source = (
        "def forward(in_0, in_1):\n    a = in_0 + in_1\n    b = torch.fft.fftn(a, dim=(1,))\n"
        "    c = b.real\n    d = torch.nn.functional.relu(c)\n    e = d * 2\n    return (e + in_1,)\n"
    )
    return read_task(bench.task("masked", source, ((4, 8), (4, 8)), ops=("add",)))


def test_the_largest_run_is_matched_and_the_rest_is_left_with_reasons(masked):
    found = draft(masked)
    assert list(found.matched.values()) == ["relu, mul, add"]
    assert "b (fft_fftn)" in found.left
    assert "Left to eager:" in next(iter(found.files.values()))
