"""The published layout: folders in it load, and tasks survive the way there and back."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace

import pytest
import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, TensorSpec
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.printing import to_source
from pytest_passbench.suite.published import read_folder_header, read_sample, read_subgraph_folder, write_sample
from pytest_passbench.suite.taskfile import read_task
from pytest_passbench.suite.validate import problems
from support.paths import DATA

TASKS = DATA / "tasks"
CODEGEN = """
import torch
from torch import device

class GraphModule(torch.nn.Module):



    def forward(self, in_0 : torch.Tensor, in_1 : torch.nn.parameter.Parameter, in_2):
        tmp_0 = in_0 @ in_1;  in_0 = None
        tmp_1 = torch.sigmoid(tmp_0);  tmp_0 = None
        tmp_2 = torch.ops.aten.masked_fill.Scalar(tmp_1, in_2, 0.5);  tmp_1 = in_1 = in_2 = None
        return (tmp_2,)
"""
PLAIN = """
import torch
from torch import device

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1, in_2):
        tmp_0 = in_0 @ in_1
        tmp_1 = torch.sigmoid(tmp_0)
        tmp_0 = None
        tmp_2 = torch.ops.aten.masked_fill.Scalar(tmp_1, in_2, 0.5)
        return (tmp_2,)
"""
WEIGHTS = """
class Program_weight_tensor_meta_mask:
	name = "in_2"
	original_name = "mask"
	shape = [2, 3]
	dtype = "torch.bool"
	device = "cuda:0"
	mean = None
	std = None
	data = None

class Program_weight_tensor_meta_L_x_:
    name = "in_0"
    original_name = "L_x_"
    shape = [S0, 4]
    dtype = "torch.float32"
    device = "cuda:0"
    mean = float("0.25")
    std = 1.5
    min_val = -4
    max_val = float('inf')
"""
INPUTS = """
class Program_weight_tensor_meta_w:
    name = "in_1"
    shape = [4, 3]
    dtype = "torch.float32"
    device = "cuda:0"
    data = [[1, 2, 3.5], [0, 0, 0], [-1, inf, 0], [1, 1, 1]]
"""
CONSTRAINTS = """
from sympy import Symbol

S0 = Symbol("S0")
dynamic_dim_constraint_symbols = [S0]
dynamic_dim_constraint_symbol2example_value = {S0: 2}
dynamic_dim_constraint_relations = []
dynamic_dim_constraint_input_shapes = [([S0, 4], "in_0")]
"""
HASH = "4f1d0c6ae2b7"


def write(folder, name, model=CODEGEN, **files):
    place = folder / name
    place.mkdir(parents=True)
    net = {"framework": "torch", "dynamic": False, "model_name": "bert-base", "heuristic_tag": "nlp"}
    texts = {
        "model.py": model,
        "weight_meta.py": WEIGHTS,
        "input_meta.py": INPUTS,
        "input_tensor_constraints.py": CONSTRAINTS,
        "graph_net.json": json.dumps(net),
        "graph_hash.txt": "ab" * 32,
        "subgraph_sources.json": "{}",
    }
    for stem, text in files.items():
        texts[next(n for n in texts if n.startswith(stem))] = text
    for file, text in texts.items():
        if text is not None:
            (place / file).write_text(text)
    return place


@pytest.fixture
def sample(tmp_path):
    folder = tmp_path / HASH
    write(folder, "float32/0")
    write(folder, "float32/1", PLAIN)
    (folder / "graph_list.txt").write_text("float32/0\n\nfloat32/1\n")
    return folder


def test_a_sample_in_both_code_styles(sample):
    task = read_sample(sample)
    assert task.id == HASH
    assert task.header.ops == ("matmul", "sigmoid", "masked_fill")
    assert task.header.sources == ("bert-base",)
    assert [(s.id, s.graph, s.dtype) for s in task.subgraphs] == [
        ("float32-0", "g0", "float32"),
        ("float32-1", "g0", "float32"),
    ]
    assert task.graphs["g0"].startswith("def forward(in_0, in_1, in_2):\n    tmp_0 = in_0 @ in_1\n    tmp_1 =")
    x, w, mask = task.subgraphs[0].inputs
    assert (x.name, x.shape, x.mean, x.std, x.min, x.original_name) == ("in_0", (2, 4), 0.25, 1.5, -4.0, "L_x_")
    assert w.data == (1, 2, 3.5, 0, 0, 0, -1, float("inf"), 0, 1, 1, 1)
    assert (mask.dtype, mask.mean) == ("bool", None)
    assert list(problems(task)) == []
    assert read_folder_header(sample) == replace(task.header, ops=(), sources=())


def test_subgraphs_of_one_name_get_distinct_ids(sample):
    write(sample, "float32-0", PLAIN)
    (sample / "graph_list.txt").write_text("float32/0\nfloat32-0\nfloat32/1\nfloat32/0\n")
    task = read_sample(sample)
    assert [s.id for s in task.subgraphs] == ["float32-0", "float32-0-2", "float32-1"]
    assert read_folder_header(sample).subgraphs == 3


def test_clean_up_is_dropped_but_none_that_is_read_is_not(tmp_path):
    model = """
class GraphModule:
    def forward(self, in_0, in_1, in_2):
        tmp_0 = torch.relu(in_0); mask = None; in_0 = None; del in_1
        return (torch.clamp(tmp_0, mask, 1.0), in_2)
"""
    task = read_subgraph_folder(write(tmp_path, "a", model))
    assert "mask = None" in task.graphs["g0"]
    assert "in_0 = None" not in task.graphs["g0"]
    assert "del" not in task.graphs["g0"]
    build_graph(task.graphs["g0"], "g0")


def test_a_bare_subgraph_folder(tmp_path):
    task = read_subgraph_folder(write(tmp_path, "subgraph_3"))
    assert (task.id, len(task.subgraphs), task.subgraphs[0].source) == ("subgraph_3", 1, "bert-base")
    assert task.subgraphs[0].meta["heuristic_tag"] == "nlp"


def test_without_the_optional_files(tmp_path):
    meta = WEIGHTS.replace("S0", "2") + INPUTS
    folder = write(tmp_path, "a", weight=meta, input_meta=None, input_tensor=None, graph_net=None, graph_hash=None)
    assert read_subgraph_folder(folder).subgraphs[0].inputs[1].shape == (4, 3)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model": None}, r"a: no model\.py"),
        ({"model": CODEGEN.replace("torch.sigmoid", "torch.load")}, r"model\.py:11: operator 'torch.load'"),
        ({"model": "x ="}, r"model\.py:1: not Python"),
        ({"weight": WEIGHTS.replace('"in_0"', '"in_9"')}, r"weight_meta\.py: no class for input 'in_0'"),
        (
            {"weight": WEIGHTS.replace("torch.bool", "torch.boole")},
            r"weight_meta\.py:2: .*unknown dtype 'torch.boole'",
        ),
        ({"weight": WEIGHTS.replace("shape = [2, 3]", "")}, r"weight_meta\.py:2: class \S+: no shape"),
        ({"weight": WEIGHTS.replace("[2, 3]", "[2, -3]")}, r"weight_meta\.py:2: class \S+: shape"),
        ({"weight": WEIGHTS.replace("1.5", "open('x').read()")}, r"weight_meta\.py:19: not a literal: open"),
        ({"weight": WEIGHTS.replace("1.5", "[0] * 9 ** 99")}, r"weight_meta\.py:19: not a literal"),
        ({"weight": "class A("}, r"weight_meta\.py:1: not Python"),
        ({"input_meta": INPUTS.replace("inf, 0]", "inf]")}, r"input_meta\.py:2: .*11 values in data"),
        ({"input_tensor": ""}, r"weight_meta\.py:\d+: not a literal: \[S0, 4\]"),
        ({"graph_net": "{"}, r"graph_net\.json:1: is not JSON"),
    ],
)
def test_faults_are_named_with_file_and_line(tmp_path, files, message):
    with pytest.raises(UserError, match=message):
        read_subgraph_folder(write(tmp_path, "a", **files))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no subgraph"),
        ("../other\n", "leads out"),
        ("/etc\n", "leads out"),
        ("none\n", r"none: no model\.py"),
    ],
)
def test_a_bad_list(sample, text, message):
    (sample / "graph_list.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        read_sample(sample)


def test_nothing_on_disk_is_executed(sample, capfd):
    trap = "\nprint('executed')\nraise SystemExit\n"
    for name in ("weight_meta.py", "input_tensor_constraints.py"):
        path = sample / "float32/0" / name
        path.write_text(path.read_text() + trap)
    read_sample(sample)
    assert "executed" not in capfd.readouterr().out


@pytest.mark.parametrize("path", sorted(TASKS.glob("*.yaml")), ids=lambda p: p.stem)
def test_a_task_survives_the_published_layout(tmp_path, path):
    task = read_task(path)
    write_sample(task, tmp_path / "any-name")
    again = read_sample(tmp_path / "any-name")
    assert (again.header, again.graphs, again.subgraphs) == (task.header, task.graphs, task.subgraphs)


def test_a_sample_survives_being_written_again(sample, tmp_path):
    task = read_sample(sample)
    write_sample(task, tmp_path / "copy")
    again = read_sample(tmp_path / "copy")
    assert (again.header, again.graphs, again.subgraphs) == (task.header, task.graphs, task.subgraphs)
    net = json.loads((tmp_path / "copy" / "float32-0" / "graph_net.json").read_text())
    assert (net["model_name"], net["heuristic_tag"]) == ("bert-base", "nlp")


def test_what_is_written_runs_as_python(tmp_path):
    body = "y = torch.full((2,), -inf, device=device(type='cpu')); y += x; return (y * math.pi,)"
    gm = build_graph(f"def forward(x):\n    {body}", "m")
    task = read_task(TASKS / "gelu-add-layer_norm-3f2a.task.yaml")
    one = Subgraph("s0", "g0", "float32", (TensorSpec("in_0", (2,), "float32", data=(1.0, 2.0)),))
    header = replace(task.header, subgraphs=1)
    write_sample(replace(task, header=header, graphs={"g0": to_source(gm)}, subgraphs=(one,)), tmp_path)
    spec = importlib.util.spec_from_file_location("written_model", tmp_path / "s0" / "model.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    (inputs,) = example_inputs(one)
    torch.testing.assert_close(module.GraphModule()(inputs), gm(inputs))
