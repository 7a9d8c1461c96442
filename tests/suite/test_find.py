"""Finding tasks by path, choosing them by suite, drawing example inputs, and ``passbench tasks``."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import ELEMENT_BYTES, Subgraph, TensorSpec
from pytest_passbench.suite.find import at, discover, installed_tasks, select
from pytest_passbench.suite.instantiate import example_inputs
from pytest_passbench.suite.published import write_sample
from pytest_passbench.suite.taskfile import read_task
from support.paths import DATA

TASKS = DATA / "tasks"
GELU, EMBEDDING = "gelu-add-layer_norm-3f2a", "embedding-add-mul-71c0"


@pytest.fixture
def everything(tmp_path):
    """Write a folder with two task files (one nested), a nested sample, two bare subgraph folders, and clutter."""
    root = tmp_path / "all"
    (root / "text" / "deep").mkdir(parents=True)
    shutil.copy(TASKS / f"{GELU}.task.yaml", root)
    shutil.copy(TASKS / f"{EMBEDDING}.task.yaml", root / "text" / "deep")
    task = read_task(TASKS / f"{EMBEDDING}.task.yaml")
    write_sample(task, root / "ab" / "cd" / "abcd01")
    for name in ("one", "two"):
        shutil.copytree(root / "ab" / "cd" / "abcd01" / task.subgraphs[0].id, root / "bare" / name / "subgraph_0")
    for folder in ("ab/cd/abcd01", "bare/one/subgraph_0", "bare/two/subgraph_0"):
        for path in (root / folder).rglob("graph_net.json"):
            path.write_text("{}")
    (root / ".hidden").mkdir()
    shutil.copy(TASKS / f"{GELU}.task.yaml", root / ".hidden")
    (root / "notes.yaml").write_text("nothing")
    return root


def test_a_folder_of_everything(everything):
    refs = discover(everything)
    assert {(r.id, r.kind) for r in refs} == {
        (GELU, "task"),
        (EMBEDDING, "task"),
        ("abcd01", "sample"),
        ("one-subgraph_0", "subgraph"),
        ("two-subgraph_0", "subgraph"),
    }
    assert [r.path for r in refs] == sorted(r.path for r in refs)
    for ref in refs:
        task = ref.load()
        assert task.id == ref.id
        assert len(task.subgraphs) == ref.header.subgraphs
        assert task.header.ops


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{GELU}.task.yaml", "task"),
        ("ab/cd/abcd01", "sample"),
        ("bare/one/subgraph_0", "subgraph"),
        ("bare/one", "subgraph"),
    ],
)
def test_a_single_task(everything, path, kind):
    (ref,) = discover(everything / path)
    assert ref.kind == kind


def test_missing_empty_and_ambiguous_paths(everything, tmp_path):
    with pytest.raises(UserError, match=r"nowhere: no such file or folder"):
        discover(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"empty: holds no tasks \(tasks are \*\.task\.yaml files or samples\)"):
        discover(tmp_path / "empty")
    with pytest.raises(UserError, match=r"notes\.yaml: holds no tasks"):
        discover(everything / "notes.yaml")
    (everything / "again").mkdir()
    shutil.copy(TASKS / f"{GELU}.task.yaml", everything / "again")
    with pytest.raises(UserError, match=rf"task id '{GELU}' is also that of"):
        discover(everything)


@pytest.fixture
def sample(tmp_path):
    """Write a published sample: two subgraph folders, without what this package adds to them."""
    folder = tmp_path / "sample"
    write_sample(read_task(TASKS / f"{EMBEDDING}.task.yaml"), folder)
    for path in folder.rglob("graph_net.json"):
        path.write_text("{}")
    return folder


def found_ids(folder):
    return {str(ref.path.relative_to(folder)): ref.id for ref in discover(folder)}


def test_samples_of_one_name_get_as_many_parents_names_as_tell_them_apart(tmp_path, sample):
    root = tmp_path / "root"
    for place in ("timm/a/0/x", "timm/b/0/x", "nlp/a/0/x", "nlp/a/1/y", "nlp/c/1/y", "nlp/a/1/z"):
        shutil.copytree(sample, root / place)
    assert found_ids(root) == {
        "nlp/a/0/x": "nlp-a-0-x",
        "nlp/a/1/y": "a-1-y",
        "nlp/a/1/z": "z",
        "nlp/c/1/y": "c-1-y",
        "timm/a/0/x": "timm-a-0-x",
        "timm/b/0/x": "timm-b-0-x",
    }


def test_samples_that_no_parent_tells_apart_are_numbered(tmp_path, sample):
    root = tmp_path / "root"
    shutil.copytree(sample, root / "a" / "x")
    (root / "b").symlink_to(root / "a")
    (root / "c").symlink_to(root / "a")
    shutil.copytree(sample, root / "a-x-2")
    assert found_ids(root) == {"a-x-2": "a-x-2", "a/x": "a-x", "b/x": "a-x-3", "c/x": "a-x-4"}
    assert [ref.load().id for ref in discover(root)] == [ref.id for ref in discover(root)]


def test_an_id_goes_before_a_folder_of_its_name_without_tasks(tmp_path, monkeypatch):
    installed = discover(installed_tasks())[0]
    monkeypatch.chdir(tmp_path)
    (tmp_path / installed.id / "pass_dir").mkdir(parents=True)
    assert [ref.path for ref in at(installed.id)] == [installed.path]
    with pytest.raises(UserError, match="holds no tasks"):
        at(f"./{installed.id}")


def test_an_id_that_is_a_folder_of_tasks_too_is_refused_with_both_spellings(tmp_path, monkeypatch, everything):
    installed = discover(installed_tasks())[0]
    monkeypatch.chdir(tmp_path)
    everything.rename(tmp_path / installed.id)
    with pytest.raises(UserError, match="is the id of an installed task, and holds tasks here") as refused:
        at(installed.id)
    for path in (installed.path, tmp_path / installed.id):
        assert str(path) in str(refused.value)
        assert [ref.path for ref in at(path)] == [ref.path for ref in discover(path)]


def test_suites_go_by_tags(everything):
    refs = discover(everything)
    chosen = {suite: {r.id for r in select(refs, suite)} for suite in ("lite", "train", "full", "all")}
    assert chosen["lite"] == {GELU}
    assert chosen["train"] == {EMBEDDING}
    assert chosen["all"] == {r.id for r in refs}
    assert chosen["full"] == chosen["all"] - {EMBEDDING}
    with pytest.raises(UserError, match="no suite 'huge'"):
        select(refs, "huge")


def test_installed_tasks_are_beside_or_inside_the_package():
    assert installed_tasks().name == "tasks"
    assert installed_tasks().is_dir()


def subgraph(*specs):
    return Subgraph("s", "g", "float32", specs)


def test_example_inputs_replay_the_record():
    specs = subgraph(
        TensorSpec("a", (1000,), "float32", mean=3.0, std=2.0),
        TensorSpec("b", (1000,), "bfloat16", mean=0.0, std=1.0, min=-0.5, max=0.5),
        TensorSpec("c", (1000,), "int64", min=-2, max=3),
        TensorSpec("d", (1000,), "bool"),
        TensorSpec("e", (2, 2), "int32", data=(1, 2, 3, 4)),
        TensorSpec("f", (), "float16", mean=1.5, std=0.0),
        TensorSpec("g", (4,), "float32", mean=-math.inf, std=math.nan),
    )
    a, b, c, d, e, f, g = example_inputs(specs, seed=1)
    assert abs(a.mean() - 3) < 0.3
    assert abs(a.std() - 2) < 0.2
    assert (b.min(), b.max()) == (-0.5, 0.5)
    assert set(c.tolist()) == set(range(-2, 4))
    assert 400 < d.sum() < 600
    assert e.tolist() == [[1, 2], [3, 4]]
    assert (f.item(), f.shape) == (1.5, ())
    assert g.tolist() == [-math.inf] * 4
    for value, spec in zip(example_inputs(specs, seed=1), specs.inputs, strict=True):
        assert value.dtype == getattr(torch, spec.dtype)
    assert torch.equal(example_inputs(specs, seed=1)[0], a)
    assert not torch.equal(example_inputs(specs, seed=2)[0], a)


@pytest.mark.parametrize("least", [0, -(2**63), 2**63 - 1])
def test_a_recorded_integer_may_be_the_greatest_that_there_is(least):
    (values,) = example_inputs(subgraph(TensorSpec("x", (100,), "int64", min=float(least), max=float(2**63 - 1))))
    assert values.unique().numel() > 90 or least > 0


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", sorted(ELEMENT_BYTES))
def test_every_dtype_has_example_inputs(dtype):
    (value,) = example_inputs(subgraph(TensorSpec("x", (2, 0, 3), dtype, mean=0.0, std=1.0)))
    assert (value.dtype, value.shape) == (getattr(torch, dtype), (2, 0, 3))
    (value,) = example_inputs(subgraph(TensorSpec("x", (2, 3), dtype)))
    assert value.dtype == getattr(torch, dtype)


def test_listing(capsys):
    assert main(["tasks", "list", str(TASKS)]) == 0
    out, err = capsys.readouterr()
    assert f"{GELU}     3  gelu add layer_norm  [lite]" in out
    assert [text.split()[0] for text in out.splitlines()] == [EMBEDDING, GELU]
    assert err == "2 tasks, 4 subgraphs\n"
    assert main(["tasks", "list", "--json", str(TASKS)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["count"], data["subgraphs"], data["tasks"][1]["tags"]) == (2, 4, ["lite"])


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (["--op=sofmax"], "no task has the operator 'sofmax' (did you mean softmax?)"),
        (["--op=gelu", "--op=zzz"], "no task has the operator 'zzz' ('passbench tasks list --json' shows those that"),
        (["--family=txt"], "no task has the family 'txt' (did you mean text?)"),
        ([str(TASKS), "--family=vision"], "no task has the family 'vision' (there are: tasks)"),
        ([str(TASKS), "--modality=vision"], "no task has the modality 'vision' (there are: text)"),
        (["--modality=visoin"], "no task has the modality 'visoin' (did you mean vision?)"),
        (
            ["--modality=zzz", "--json"],
            "no task has the modality 'zzz' (there are: audio, diffusion, graph, medical,",
        ),
    ],
)
def test_a_filter_that_no_task_can_pass_is_an_error(capsys, filters, said):
    assert main(["tasks", "list", *filters]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"passbench: error: {said}")


def test_filters_that_no_task_of_the_suite_passes_list_nothing(capsys):
    assert main(["tasks", "list", str(TASKS), "--op=gelu", "--suite=train"]) == 0
    assert capsys.readouterr() == ("", "0 tasks, 0 subgraphs\n")


def test_counts_of_a_suite(tmp_path, capsys):
    (tmp_path / "EDITION").write_text("5\n")
    body = "---\ngraphs:\n  g0: |\n    def forward(in_0, in_1):\n        tmp_0 = torch.conv2d(in_0, in_1)\n"
    end = """subgraphs:
- id: {name}
  graph: g0
  dtype: float32
  inputs:
  - {{name: in_0, shape: [1, 2, 4, 4], dtype: float32}}
  - {{name: in_1, shape: [2, 2, 1, 1], dtype: float32}}
"""
    for name, ops, rest, head in (
        ("one", "[conv2d, relu]", "tmp_1 = torch.relu(tmp_0)\n        return (tmp_0, tmp_1)", "headroom: 2.5\n"),
        ("two", "[conv2d]", "return (tmp_0,)", "headroom: 1.5\n"),
    ):
        header = f"passbench: task/1\nid: {name}\nops: {ops}\nsources: [lib/{name}, other/x]\n{head}subgraphs: 1\n"
        text = f"{header}{body}        {rest}\n{end.format(name=name)}"
        (tmp_path / f"{name}.task.yaml").write_text(text.replace(", other/x", "") if name == "two" else text)
    assert main(["tasks", "list", "--json", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["tasks"][0]["headroom"] == 2.5
    assert data["counts"] == {
        "editions": ["5"], "conv_anchored_subgraphs": 2, "conv_anchored_share": 1.0,
        "tasks_by_library": {"lib": 2, "other": 1}, "architectures": 3, "tasks_of_one_architecture": 1,
        "tasks_with_two_outputs": 1, "tasks_with_a_possible_2x": 1, "operators": 2,
        "tasks_with_the_operators_of_another": 0, "subgraphs_with_the_code_and_shapes_of_another": 0,
        "long_tail": {"graphs": 0, "faster": 0, "slower": 0, "open": 0},
    }  # fmt: skip
    assert main(["tasks", "show", str(tmp_path / "one.task.yaml")]) == 0
    assert "head-room: at most 2.5 times as fast as eager" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        (["--op", "gelu"], [GELU]),
        (["--op", "gelu", "--op", "embedding"], []),
        (["--modality", "text"], [EMBEDDING, GELU]),
        (["--family", "tasks"], [EMBEDDING, GELU]),
    ],
)
def test_listing_some(capsys, words, ids):
    assert main(["tasks", "list", str(TASKS), "--json", *words]) == 0
    assert [task["id"] for task in json.loads(capsys.readouterr().out)["tasks"]] == ids


def test_tags_may_be_left_out(tmp_path):
    text = (TASKS / f"{GELU}.task.yaml").read_text()
    assert "tags: [lite]\n" in text
    path = tmp_path / f"{GELU}.task.yaml"
    path.write_text(text.replace("tags: [lite]\n", ""))
    assert read_task(path).header.tags == ()


def test_showing(capsys, tmp_path, monkeypatch):
    assert main(["tasks", "show", str(TASKS / f"{EMBEDDING}.task.yaml")]) == 0
    out = capsys.readouterr().out
    assert "        tmp_1 = operator.iadd(tmp_0, in_2)\n" in out
    assert "in_0     int64     [2, 3]  data [0, 1, 2, 9, 8, 7]" in out
    monkeypatch.chdir(tmp_path)
    for word in ("silu-mul-e747", "tasks/text/silu-mul-e747.task.yaml"):
        assert main(["tasks", "show", word]) == 0
        assert capsys.readouterr().out.startswith("silu-mul-e747: silu mul\n")
    assert main(["tasks", "show", "no-such-task"]) == 1
    assert "'passbench tasks list' shows the ids" in capsys.readouterr().err
    assert main(["tasks", "show", "silu-mul-e774"]) == 1
    said = "no task is called 'silu-mul-e774' (did you mean silu-mul-e747? 'passbench tasks list' shows the ids)"
    assert said in capsys.readouterr().err
    assert main(["tasks", "show", str(TASKS)]) == 1
    assert "2 tasks (name one of them)" in capsys.readouterr().err


BAD = [
    ("[gelu, add, layer_norm]", "[gelu, add]", ":11: graph g0 has the operators [gelu, add, layer_norm], the header"),
    ("(tmp_1, (16,), in_2", "(tmp_1, (17,), in_2", ":11: subgraph bert-float32-b1s8 does not run: tmp_2"),
    ("gelu(in_0)", "gelu_(in_0)", ":12: operator 'torch.nn.functional.gelu_' is not allowed"),
    ("subgraphs: 3", "subgraphs: 2", ":22: 3 subgraphs, the header says 2"),
]


def test_validating_reports_every_bad_file_and_exits_1(tmp_path, capsys):
    text = (TASKS / f"{GELU}.task.yaml").read_text()
    for number, (old, new, _) in enumerate(BAD):
        assert old in text
        (tmp_path / f"bad{number}.task.yaml").write_text(text.replace(old, new, 1).replace(GELU, f"bad{number}", 1))
    assert main(["tasks", "validate", str(tmp_path), str(TASKS)]) == 1
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert f"bad0.task.yaml{BAD[0][2]}" in lines[0]
    for number, (_, _, message) in enumerate(BAD):
        assert any(f"bad{number}.task.yaml{message}" in line for line in lines)
    assert out.splitlines()[0] == "6 tasks checked, 4 bad"


def test_validating_good_tasks(capsys, everything):
    assert main(["tasks", "validate", str(everything)]) == 0
    assert capsys.readouterr().out == "5 tasks valid\n"


def test_graphs_whose_shapes_depend_on_values_run_on_example_inputs(tmp_path, capsys):
    text = """passbench: task/1
id: nonzero-1
ops: [nonzero]
sources: []
tags: []
subgraphs: 1
---
graphs:
  g0: |
    def forward(in_0):
        tmp_0 = in_0.nonzero()
        return (tmp_0,)
subgraphs:
- id: s0
  graph: g0
  dtype: bool
  inputs:
  - {name: in_0, shape: [4], dtype: bool}
"""
    (tmp_path / "nonzero-1.task.yaml").write_text(text)
    assert main(["tasks", "validate", str(tmp_path)]) == 0
