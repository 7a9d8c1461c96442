"""Every curation rule fires on a task planted to break it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.curate import choose, curated, repaired
from pytest_passbench.forge.input_records import widen
from pytest_passbench.forge.instances import Instance
from pytest_passbench.forge.probe import Probe, null_from
from pytest_passbench.forge.rules import complaints
from pytest_passbench.forge.suite_check import check, sample
from pytest_passbench.suite.find import discover
from pytest_passbench.suite.taskfile import write_task
from shared.headroom import PeakRates, headroom, of_task, work

X = TensorSpec("in_0", (8, 64), "float32", 0.1, 1.0)
W = TensorSpec("in_1", (64,), "float32", 1.0, 0.1)
B = TensorSpec("in_2", (64,), "float32", 0.0, 0.1)
A = TensorSpec("in_1", (8, 64), "float32", 0.2, 1.0)
THREES = TensorSpec("in_0", (8,), "int64", min=3, max=3)
NORM = "tmp_0 = torch.nn.functional.layer_norm({}, (64,), in_1, in_2, 1e-05)"


def task(ops: str, *body: str, inputs: tuple[TensorSpec, ...] = (X, W, B), name: str = "planted") -> Task:
    names = ", ".join(spec.name for spec in inputs)
    source = "\n    ".join([f"def forward({names}):", *body]) + "\n"
    header = TaskHeader(name, tuple(ops.split()), ("test/planted",), (), 1, "text")
    subgraph = Subgraph("s", "g", "float32", inputs)
    return Task(header, Path(f"{name}.task.yaml"), {"g": source}, (subgraph,))


def drawn(planted: Task) -> Instance:
    """Return a planted task's subgraph as an instance."""
    inputs = planted.subgraphs[0].inputs
    return Instance(planted.header.ops, planted.graphs["g"], "float32", inputs, "a/b", "text", "b1", "")


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
        ("nan_outputs", task("sub sqrt", "tmp_0 = in_0 - 1.5", "return (torch.sqrt(tmp_0),)", inputs=(X,))),
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


@pytest.mark.parametrize(
    ("dtype", "slight", "texts"),
    [
        ("float32", 1e-9, ["could be zeros at t = -5"]),
        ("bfloat16", 0.001, ["could be zeros: by float64 the answer would be as accurate as eager's"]),
        ("bfloat16", 0.5, []),
    ],
)  # fmt: skip
def test_a_large_input_that_could_be_left_out_is_found_under_both_criteria(
    dtype: str, slight: float, texts: list[str]
) -> None:
    large = replace(X, shape=(32, 64), dtype=dtype, mean=0.0)
    inputs = (large, replace(large, name="in_1", std=slight))
    planted = task("add tanh", "tmp_0 = in_0 + in_1", "return (torch.tanh(tmp_0),)", inputs=inputs)
    assert [one for one in said(planted) if one.startswith("left_out")] == [
        f"left_out_inputs: input in_1 {text}" for text in texts
    ]


@pytest.mark.parametrize(("mean", "floor"), [(1.0, 0.05), (0.25, 0.0125), (0.1, None), (1e-5, None), (-1.0, None)])
def test_only_a_mean_of_two_spreads_or_more_gets_a_floor_when_an_input_is_widened(
    mean: float, floor: float | None
) -> None:
    constant = replace(X, mean=mean, std=0.0, min=mean, max=mean)
    assert (widen(constant).std, widen(constant).min) == (0.1, floor)


WIDE = TensorSpec("in_0", (8, 64), "float32", 0.0, 6.0)
"""Inputs that reach both sides of a clamp at 6."""


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("torch.relu(in_0)", "flat_clamps: tmp_0 (relu) could be taken clamped"),
        ("torch.nn.functional.relu6(in_0 + 2.5)", "tmp_0 (relu6) could be taken without its upper bound"),
        ("torch.nn.functional.relu6(in_0 + 9.0)", "tmp_0 (relu6) could be taken without its lower bound"),
        ("torch.nn.functional.hardtanh(in_0, -9.0, 0.5)",
         "flat_clamps: tmp_0 (hardtanh) could be taken without its lower bound"),
        ("torch.nn.functional.hardswish(in_0 - 2.0)",
         "flat_clamps: tmp_0 (hardswish) could be taken without its upper bound"),
        ("torch.nn.functional.gelu(in_0 * 0.0002)", "idle_activations: tmp_0 (gelu) could be taken as half"),
        ("torch.nn.functional.silu(in_0.sign() * 40.0)", "idle_activations: tmp_0 (silu) could be taken as relu"),
        ("torch.sigmoid(in_0 * 0.002)", "idle_activations: tmp_0 (sigmoid) could be taken as a line"),
        ("torch.softmax(in_0 * 1e-07, -1)",
         "idle_activations: tmp_0 (softmax) could be taken as the mean of each row"),
        ("in_0 * in_1.sigmoid()[:, :1]", "thrown_away: only 2% of sigmoid (sigmoid) is used"),
        ("(in_0 * 2.0).view(2, 4, 64).transpose(0, 1)[0]", "thrown_away: only 25% of mul (mul) is used"),
        ("in_0 + in_1 * 1e-09", "idle_inputs: other values of input in_1 change nothing at t = -5"),
        ("in_0 * in_1.mean()", "idle_inputs: input in_1 could be its mean at t = -5"),
        ("in_0.to(in_1.dtype) * 1.5", "idle_inputs: other values of input in_1 change nothing at t = -5"),
    ],
)  # fmt: skip
def test_inputs_that_test_only_a_part_of_a_graph_are_found(body: str, text: str) -> None:
    inputs = (replace(X, std=0.9, min=-3.0, max=3.0), replace(A, mean=0.5)) if "in_1" in body else (
        replace(X, std=0.9, min=-3.0, max=3.0),)  # fmt: skip
    found = said(task("planted", f"tmp_0 = {body}", "return (tmp_0,)", inputs=inputs))
    assert any(text in one for one in found), found


@pytest.mark.parametrize(
    "body",
    [
        "torch.relu(in_0)", "torch.nn.functional.relu6(in_0)", "torch.nn.functional.hardtanh(in_0, -1.0, 1.0)",
        "torch.nn.functional.hardswish(in_0)", "torch.nn.functional.gelu(in_0)", "in_0.clamp(min=-2)",
        "in_0.clamp(min=1e-06) * 1.5 + in_0", "torch.softmax(in_0, -1)", "(in_0 * 2.0)[:, :40]",
        "(in_0 * 2.0).chunk(2, -1)[0] * (in_0 * 2.0).chunk(2, -1)[1]",
    ],
)  # fmt: skip
def test_inputs_that_test_a_whole_graph_are_let_be(body: str) -> None:
    found = said(task("planted", f"tmp_0 = {body}", "return (tmp_0,)", inputs=(WIDE,)))
    names = ("idle_inputs", "flat_clamps", "idle_activations", "thrown_away")
    assert [one for one in found if one.startswith(names)] == []


@pytest.mark.parametrize("places", [(5, 2, 2, 5), (3,)])
def test_literal_data_that_reads_the_same_backwards_is_no_idle_input(places: tuple[int, ...]) -> None:
    data = TensorSpec("in_1", (len(places),), "int64", data=places)
    planted = task("index_select tanh", "tmp_0 = torch.index_select(in_0, 1, in_1)", "return (torch.tanh(tmp_0),)",
                   inputs=(X, data))  # fmt: skip
    assert [one for one in said(planted) if "in_1" in one] == []


def test_a_clamp_that_only_some_draws_of_the_inputs_reach_is_found() -> None:
    few = TensorSpec("in_0", (64,), "float32", 0.0, 1.0)  # on the rules' first inputs the least value is -3.3
    body = "return (torch.nn.functional.hardtanh(in_0, -2.8, 2.0),)"
    found = [one for one in said(task("hardtanh", body, inputs=(few,))) if one.startswith("flat_clamps")]
    assert found == ["flat_clamps: hardtanh (hardtanh) could be taken without its lower bound"]


def test_most_of_a_value_may_be_read_by_several_users_together() -> None:
    body = ("tmp_0 = in_0 * 2.0", "tmp_1 = tmp_0[:, :20]", "tmp_2 = tmp_0[:, 20:40]", "return (tmp_1 + tmp_2,)")
    found = said(task("mul getitem getitem add", *body, inputs=(WIDE,)))
    assert [one for one in found if one.startswith("thrown_away")] == []


def test_a_strided_convolution_of_one_element_throws_most_of_its_input_away() -> None:
    inputs = (replace(WIDE, shape=(1, 4, 16, 16)), TensorSpec("in_1", (8, 4, 1, 1), "float32", 0.0, 0.5))
    for stride, expected in ((2, 1), (1, 0)):
        body = ("tmp_0 = torch.relu(in_0)", f"return (torch.conv2d(tmp_0, in_1, None, ({stride}, {stride})),)")
        found = [one for one in said(task("relu conv2d", *body, inputs=inputs)) if one.startswith("thrown_away")]
        assert len(found) == expected


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
    found = [str(one) for one in check(discover(tmp_path))]
    assert len(found) == 3
    assert "second: rename: task first has the same operator sequence" in found[0]
    assert "second/s: duplicate: the same graph, shapes and dtypes as first/s" in found[1]
    assert "second: duplicate: but for shapes and dtypes the graph of task first" in found[2]


SPLIT = task("mul view transpose tanh", "tmp_0 = in_0 * in_1", "tmp_1 = tmp_0.view(8, 8, 8)",
             "tmp_2 = tmp_1.transpose(1, 2)", "return (torch.tanh(tmp_2),)", inputs=(X, A), name="split")  # fmt: skip
OTHERWISE = task("dropout mul to reshape permute contiguous tanh",
                 "tmp_0 = torch.nn.functional.dropout(in_0, 0.1, False)", "tmp_1 = in_1 * tmp_0",
                 "tmp_2 = tmp_1.to(torch.float32)", "tmp_3 = tmp_2.reshape(8, -1, 8)",
                 "tmp_4 = tmp_3.permute(0, 2, 1).contiguous()",
                 "return (tmp_4.tanh(),)", inputs=(X, A), name="other")  # fmt: skip


@pytest.mark.parametrize(
    ("other", "texts"),
    [
        (OTHERWISE, ["other/s: duplicate: the same graph", "other: duplicate: but for shapes"]),
        (replace(OTHERWISE, header=replace(OTHERWISE.header, tags=("train",))),
         ["other/s: duplicate: the same graph", "graph of task split of the other split"]),
        (task("mul view transpose tanh dropout", "tmp_0 = in_0 * in_1", "tmp_1 = tmp_0.view(4, 4, 8)",
              "tmp_2 = torch.tanh(tmp_1.transpose(2, 1))", "return (torch.nn.functional.dropout(tmp_2, 0.5, False),)",
              inputs=(replace(X, shape=(4, 32)), replace(A, shape=(4, 32))), name="other"),
         ["other: duplicate: but for shapes"]),
        (task("mul view transpose tanh mul", "tmp_0 = in_0 * in_1", "tmp_1 = tmp_0.view(8, 8, 8)",
              "tmp_2 = torch.tanh(tmp_1.transpose(1, 2))", "return (tmp_2 * tmp_2,)", inputs=(X, A),
              name="other"), []),
        (task("mul view transpose tanh", "tmp_0 = in_0 * in_0", "tmp_1 = tmp_0.view(8, 8, 8) + 0.5",
              "tmp_2 = tmp_1.transpose(1, 2)", "return (torch.tanh(tmp_2),)", inputs=(X,), name="other"), []),
        (task("sub view transpose tanh", "tmp_0 = in_0 - in_1", "tmp_1 = tmp_0.view(8, 8, 8)",
              "tmp_2 = tmp_1.transpose(1, 2)", "return (torch.tanh(tmp_2),)", inputs=(X, A), name="other"), []),
    ],
)  # fmt: skip
def test_another_spelling_of_a_graph_is_a_duplicate(other: Task, texts: list[str], tmp_path: Path) -> None:
    write_task(SPLIT, tmp_path / "split.task.yaml")
    (tmp_path / "z").mkdir()
    write_task(other, tmp_path / "z" / "other.task.yaml")
    found = [text for one in check(discover(tmp_path)) if "duplicate" in (text := str(one))]
    assert len(found) == len(texts)
    assert all(wanted in text for wanted, text in zip(texts, found, strict=True))


def test_the_order_of_operands_matters_to_operators_that_are_not_commutative(tmp_path: Path) -> None:
    for name, body in (
        ("one", "in_0 - torch.tanh(in_1)"),
        ("two", "torch.tanh(in_1) - in_0"),
        ("three", "torch.tanh(in_0) - in_1"),
    ):
        planted = task("sub tanh" if name == "one" else "tanh sub", f"return ({body},)", inputs=(X, A), name=name)
        write_task(planted, tmp_path / f"{name}.task.yaml")
    found = {str(one) for one in check(discover(tmp_path)) if "duplicate" in str(one)}
    assert found == {"two/s: duplicate: the same graph, shapes and dtypes as three/s",
                     "two: duplicate: but for shapes and dtypes the graph of task three"}  # fmt: skip


def test_a_value_larger_than_the_memory_is_a_complaint_in_plain_words() -> None:
    huge = task("expand mul", "tmp_0 = in_0.sum().expand(2000000000000) * 2.0", "return (tmp_0.sum(),)", inputs=(X,))
    assert said(huge) == ["runs: a value takes more memory than the machine has (choose smaller shapes)"]


def test_check_prints_complaints_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pytest_passbench.commands.main import main

    write_task(GOOD, tmp_path / "planted.task.yaml")
    assert main(["tasks", "check", str(tmp_path)]) == 0
    bad = replace(GOOD, subgraphs=(replace(GOOD.subgraphs[0], inputs=(X, replace(W, std=0.0), B)),))
    write_task(bad, tmp_path / "planted.task.yaml")
    assert main(["tasks", "check", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "planted/s: degenerate_inputs: input in_1" in out
    assert "planted/s: idle_inputs: other values of input in_1 change nothing at t = -5" in out
    assert "1 task, 1 subgraph checked: 2 complaints" in out


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


def test_scaling_repairs_inputs_that_do_not_reach_a_clamp() -> None:
    planted = task("layer_norm relu", NORM.format("in_0"), "return (torch.relu(tmp_0),)")
    assert any("clamped at 6" in text for text in said(planted))
    made, _ = repaired(drawn(planted))
    assert made is not None
    assert complaints(made.probe()) == []
    assert dict(made.meta)["widened"] is True


def test_a_graph_that_is_idle_in_one_dtype_is_still_tried_in_the_others() -> None:
    ops = ("clamp", "sqrt", "le", "masked_fill")
    source = """def forward(in_0):
    tmp_0 = in_0.clamp(min=1e-05)
    tmp_1 = tmp_0.sqrt()
    tmp_2 = tmp_1 <= 0.0031622776601683794
    tmp_3 = tmp_1.masked_fill(tmp_2, 0.0)
    return (tmp_3,)
"""
    dtypes = ("float16", "float32", "float32")
    pool = [
        Instance(
            ops, source, dtype, (TensorSpec("in_0", (rows, 512), dtype, 0.0, 1.0),), "a/b", "text", "b1", ""
        )
        for rows, dtype in enumerate(dtypes, 200)
    ]
    chosen = choose(pool, 6)
    assert [one.dtype for one in chosen.instances] == ["float32", "float32"]
    assert "masked_fill" in chosen.refusals[0]  # in float16 the bound is rounded, and nothing is masked


def test_the_curate_step_scales_inputs_that_do_not_reach_a_clamp() -> None:
    inputs = (replace(X, shape=(512, 64)), W, B)  # large enough for the lower bound of eager's time
    body = NORM.format("in_0"), "tmp_1 = torch.relu(tmp_0)", "return (tmp_1,)"
    planted = task("layer_norm relu", *body, inputs=inputs)
    assert any("flat_clamps" in text for text in said(planted))
    chosen = choose([drawn(planted)], 1)
    assert chosen.refusals == []
    (made,) = chosen.instances
    assert dict(made.meta)["widened"]
    assert complaints(made.probe()) == []


def test_an_instance_that_fits_at_one_factor_is_kept_if_it_overflows_at_the_next() -> None:
    body = ("tmp_0 = in_0 * 5.0", "tmp_1 = torch.exp(tmp_0)", "tmp_2 = in_0 * -5.1", "tmp_3 = torch.exp(tmp_2)",
            "tmp_4 = tmp_1 * tmp_3", "return (5.0 + tmp_4,)")  # fmt: skip
    planted = task("mul exp mul exp mul add", *body, inputs=(X,))
    instance, refusals = curated(drawn(planted))
    assert refusals == ["finite: output 0 has NaN or Inf"]  # at the greater factor
    assert instance is not None
    assert dict(instance.meta)["null_from"] == -1


def test_no_scaling_repairs_an_input_without_effect() -> None:
    planted = task("to tanh", "tmp_0 = in_0.to(in_1.dtype)", "return (torch.tanh(tmp_0),)", inputs=(X, A))
    assert repaired(drawn(planted))[0] is None


def test_head_room_is_eagers_time_over_what_cannot_be_avoided() -> None:
    rates = PeakRates(((1 << 10, 1e-6), (1 << 20, 1e-3), (1 << 24, 1e-1)), flops=1e9)
    assert [rates.copy_seconds(n) for n in (1, 1 << 10, 1 << 20, 1 << 25)] == [1e-6, 1e-6, 1e-3, 0.2]
    assert 1e-6 < rates.copy_seconds(1 << 19) < 1e-3 < rates.copy_seconds(1 << 22) < 1e-1
    square = replace(X, shape=(64, 64)), replace(A, shape=(64, 64))
    added = work(Probe(planted := task("add", "return (in_0 + in_1,)", inputs=square), planted.subgraphs[0]))
    assert (added.bytes, added.flops) == (3 * 4 * 64 * 64, 0)
    assert headroom(added.seconds(rates) * 2e6, added, rates) == pytest.approx(2.0)
    product = work(Probe(planted := task("matmul", "return (in_0 @ in_1,)", inputs=square), planted.subgraphs[0]))
    assert product.flops == 2 * 64**3
    assert product.seconds(rates) == pytest.approx(2 * 64**3 / 1e9)
    assert of_task([1.0, 2.049, 9.0]) == 2.0


def test_null_answers_are_found_where_they_pass() -> None:
    small, large = torch.full((4, 4), 1e-3), torch.linspace(-3, 3, 16).reshape(4, 4)
    assert null_from([small], []) <= -3
    assert null_from([large], []) == 0
    assert null_from([large], [large]) == -10  # a copy of an input is the answer
    assert null_from([torch.tensor([1, 7])], []) == NEVER
    assert null_from([small, large], []) == 0  # every output must pass
    assert null_from([torch.tensor(3.0)], []) == 0  # the mean of one number is the answer itself
