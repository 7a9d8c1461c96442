"""Every curation rule fires on a task planted to break it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.null import NEVER, least, null_from
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.rules import complaints
from pytest_passbench.forge.suite_check import repeated, sample
from pytest_passbench.suite.find import discover
from pytest_passbench.suite.taskfile import write_task

X = TensorSpec("in_0", (8, 64), "float32", 0.1, 1.0)
W = TensorSpec("in_1", (64,), "float32", 1.0, 0.1)
B = TensorSpec("in_2", (64,), "float32", 0.0, 0.1)
THREES = TensorSpec("in_0", (8,), "int64", min=3, max=3)
NORM = "tmp_0 = torch.nn.functional.layer_norm({}, (64,), in_1, in_2, 1e-05)"


def task(ops: str, *body: str, inputs: tuple[TensorSpec, ...] = (X, W, B), name: str = "planted") -> Task:
    names = ", ".join(spec.name for spec in inputs)
    source = "\n    ".join([f"def forward({names}):", *body]) + "\n"
    header = TaskHeader(name, tuple(ops.split()), ("test/planted",), (), 1, "text")
    subgraph = Subgraph("s", "g", "float32", inputs)
    return Task(header, Path(f"{name}.task.yaml"), {"g": source}, (subgraph,))


def said(planted: Task) -> list[str]:
    return complaints(Probe(planted, planted.subgraphs[0]))


GOOD = task("layer_norm gelu", NORM.format("in_0"), "tmp_1 = torch.nn.functional.gelu(tmp_0)", "return (tmp_1,)")


def test_a_sound_task_has_no_complaints() -> None:
    assert said(GOOD) == []


def test_the_calls_around_a_level_of_vmap_are_no_dead_operators() -> None:
    place = "torch._functorch.predispatch"
    body = (
        f"tmp_0 = {place}._vmap_increment_nesting(8, 'error')",
        f"tmp_1 = {place}._add_batch_dim(in_0, 0, 1)",
        "tmp_2 = torch.nn.functional.layer_norm(tmp_1, (64,), in_1, in_2, 1e-05)",
        "tmp_3 = torch.nn.functional.gelu(tmp_2)",
        f"tmp_4 = {place}._remove_batch_dim(tmp_3, 1, 8, 0)",
        f"tmp_5 = {place}._vmap_decrement_nesting()",
        "return (tmp_4,)",
    )
    assert said(task("layer_norm gelu", *body)) == []


@pytest.mark.parametrize(
    ("rule", "planted"),
    [
        ("right_header", replace(GOOD, header=replace(GOOD.header, ops=("layer_norm", "relu")))),
        ("degenerate_inputs", task("mul tanh", "tmp_0 = in_0 * in_1", "return (torch.tanh(tmp_0),)",
                                   inputs=(X, replace(W, mean=2.0, std=0.0)))),
        ("degenerate_inputs", task("embedding tanh", "tmp_0 = torch.nn.functional.embedding(in_0, in_1)",
                                   "return (torch.tanh(tmp_0),)",
                                   inputs=(THREES, replace(X, name="in_1")))),
        ("finite", task("mul div", "tmp_0 = in_0 * 1.5", "return (tmp_0 / 0.0,)", inputs=(X,))),
        ("constant_outputs", task("tanh floor mul", "tmp_0 = torch.tanh(in_0)", "tmp_1 = torch.floor(in_0)",
                                  "return (tmp_0, tmp_1 * 0.0)", inputs=(replace(X, min=0.1, max=0.9),))),
        ("deterministic", task("mul rand_like add", "tmp_0 = in_0 * 1.5", "tmp_1 = torch.rand_like(tmp_0)",
                               "return (tmp_0 + tmp_1,)", inputs=(X,))),
        ("null_answers", task("mul relu", "tmp_0 = in_0 * 0.0001", "return (torch.relu(tmp_0),)", inputs=(X,))),
        ("dead_operators", task("tanh exp mul", "tmp_0 = torch.tanh(in_0)", "tmp_1 = torch.exp(in_0)",
                                "return (tmp_0 * 2.0,)", inputs=(X,))),
        ("removable", task("layer_norm clamp gelu", NORM.format("in_0"), "tmp_1 = tmp_0.clamp(min=-50)",
                           "return (torch.nn.functional.gelu(tmp_1),)")),
        ("runs", task("matmul", "return (in_0 @ in_0,)", inputs=(X,))),
    ],
)  # fmt: skip
def test_each_rule_fires_on_a_task_that_breaks_it(rule: str, planted: Task) -> None:
    assert rule in {text.partition(":")[0] for text in said(planted)}


def test_identities_and_guards_are_not_called_removable() -> None:
    body = ("tmp_0 = torch.nn.functional.dropout(in_0, 0.1, False)", "tmp_1 = tmp_0.to(torch.float32)",
            "tmp_2 = tmp_1.pow(2)", "tmp_3 = tmp_2.mean(-1, keepdim=True)", "tmp_4 = tmp_3 + 1e-12",
            "return (tmp_1 * torch.rsqrt(tmp_4),)")  # fmt: skip
    assert said(task("dropout to pow mean add rsqrt mul", *body, inputs=(X,))) == []


def test_tasks_that_are_another_one_renamed_are_found(tmp_path: Path) -> None:
    body = GOOD.graphs["g"].replace("tmp_0", "y").replace("tmp_1", "z")
    for name, source in (("first", GOOD.graphs["g"]), ("second", body)):
        other = replace(GOOD, header=replace(GOOD.header, id=name), graphs={"g": source})
        write_task(other, tmp_path / f"{name}.task.yaml")
    found = [str(one) for one in repeated(discover(tmp_path))]
    assert len(found) == 2
    assert "second: rename: task first has the same operator sequence" in found[0]
    assert "second/s: rename: the same graph, shapes and dtypes as first/s" in found[1]


def test_check_prints_complaints_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_passbench.commands.main import main

    write_task(GOOD, tmp_path / "planted.task.yaml")
    assert main(["tasks", "check", str(tmp_path)]) == 0
    bad = replace(GOOD, subgraphs=(replace(GOOD.subgraphs[0], inputs=(X, replace(W, std=0.0), B)),))
    write_task(bad, tmp_path / "planted.task.yaml")
    assert main(["tasks", "check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "planted/s: degenerate_inputs: input in_1" in out
    assert "1 tasks, 1 subgraphs checked: 1 complaints" in out


def test_a_sample_keeps_lite_tasks_and_is_the_same_every_time(tmp_path: Path) -> None:
    for number in range(40):
        tags = ("lite",) if number < 3 else ()
        header = replace(GOOD.header, id=f"t{number}", tags=tags, ops=("layer_norm", "gelu"))
        write_task(replace(GOOD, header=header), tmp_path / f"t{number}.task.yaml")
    refs = discover(tmp_path)
    chosen = [r.id for r in sample(refs, 0.1)]
    assert {"t0", "t1", "t2"} <= set(chosen)
    assert 3 <= len(chosen) < 20
    assert chosen == [r.id for r in sample(refs, 0.1)]


def test_null_answers_are_found_where_they_pass() -> None:
    small, large = torch.full((4, 4), 1e-3), torch.linspace(-3, 3, 16).reshape(4, 4)
    assert null_from([small], []) <= -3
    assert null_from([large], []) == 0
    assert null_from([large], [large]) == -10  # a copy of an input is the answer
    assert null_from([torch.tensor([1, 7])], []) == NEVER
    assert null_from([small, large], []) == 0  # every output must pass


def test_the_least_t_at_which_an_answer_passes() -> None:
    expected = torch.tensor([1.0, 2.0])
    assert least([expected.clone()], expected) == -10
    assert least([expected + 0.005], expected) == -2
    assert least([expected + 100], expected) == NEVER
