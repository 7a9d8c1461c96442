"""Accuracy as the judge finds it: in the probe and in calls that are drawn at random."""

from __future__ import annotations

import math

import pytest
import torch

from pytest_passbench.core.float64_errors import RIGHT
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.judge.verify import checker
from pytest_passbench.judge.verify.standing import Accuracy, mean_distance
from shared.workspace import make_cpp_pass, make_wrapper

ROUNDED_ONCE = "return (torch.nn.functional.gelu(x.float()) + y.float()).to(x.dtype)"
SCALED = "return (torch.nn.functional.gelu(x) + y) * 1.01"
#: Wrong in four of five calls.
SOMETIMES = """
out = torch.nn.functional.gelu(x) + y
return torch.where(x[0, 0] > -0.84, out * 1.01, out)"""
IN_PLACE = """
def forward(in_0, in_1):
    in_0 += in_1
    tmp_1 = torch.nn.functional.gelu(in_0)
    tmp_2 = tmp_1 + in_1
    return (tmp_2,)
"""


@pytest.mark.parametrize(
    ("criterion", "once", "scaled"),
    [pytest.param("ladder", False, True, marks=pytest.mark.slow), ("fp64", True, False)],
)
def test_one_rounding_is_accurate_and_1_percent_off_is_not(bench, criterion, once, scaled):
    # With fewer elements eager's greatest error may be the smaller one. The same if a sum in a million is above 8,
    # where bfloat16 is half as fine.
    bench.task(dtypes=("bfloat16",), scales=(64,), stats="mean: 0.0, std: 1.0, min: -3.9, max: 3.9")
    bench.candidate({"once": make_wrapper(ROUNDED_ONCE)})
    bench.candidate({"scaled": make_wrapper(SCALED)}, name="other")
    for folder, right in (("cand", once), ("other", scaled)):
        (record,) = bench.judge(bench.folder / folder, policy="open", criterion=criterion).values()
        assert record.correct is right
        assert record.accurate() is (folder == "cand")
        assert not record.null_accurate
        assert record.nearer is (folder == "cand")


def test_any_verified_call_may_be_judged_by_float64(bench, monkeypatch):
    monkeypatch.setattr(checker, "MAX_SECONDS", 1e9)
    bench.task(dtypes=("bfloat16",), scales=(1, 2, 3))
    bench.candidate({"some": make_wrapper(SOMETIMES)})
    found = bench.judge(policy="open")
    assert [record.accurate() for record in found.values()] == [False] * 3
    assert [record.arm.status for record in found.values()] == ["ran"] * 3


def test_the_inputs_of_a_call_made_again_are_those_of_the_call(bench, monkeypatch):
    monkeypatch.setattr(checker, "MAX_SECONDS", 1e9)
    bench.task(dtypes=("float32", "bfloat16"), scales=(1, 30))
    bench.candidate({"once": make_wrapper(ROUNDED_ONCE)})
    assert [record.accurate() for record in bench.judge(policy="open").values()] == [True] * 4


def test_a_graph_without_a_float64_form_is_judged_by_agreement(bench):
    bench.task(dtypes=("float64",))
    bench.candidate({"once": make_wrapper("return torch.nn.functional.gelu(x) + y")})
    (record,) = bench.judge(policy="open", criterion="fp64").values()
    assert record.accurate() is None
    assert record.correct


def test_what_changes_in_place_has_no_float64_form(bench):
    bench.task(source=IN_PLACE)
    bench.candidate({"once": make_wrapper("return torch.nn.functional.gelu(x) + y")})
    (record,) = bench.judge(policy="open", criterion="fp64").values()
    assert record.accurate() is None
    assert record.correct


#: The second input is a ten-thousandth of the first.
SLIGHT = "mean: 0.0, std: 0.0001, min: -0.0005, max: 0.0005"
ROOT = """
def forward(in_0, in_1):
    tmp_0 = torch.sqrt(in_0)
    tmp_1 = tmp_0 + in_1
    return (tmp_1,)
"""


#: Exact only in the first call of a process: it leaves a magic number in freed memory.
EXACT_ONCE = """    volatile int64_t* memory = static_cast<volatile int64_t*>(std::malloc(1000));
    const float factor = memory[7] == 0x1234567890abcdef ? 1.0f + ERROR : 1.0f;
    memory[7] = 0x1234567890abcdef;
    std::free(const_cast<int64_t*>(memory));
    for (int64_t i = 0; i < n; ++i) """


@pytest.mark.parametrize("error", ["1e-4f", "1e-6f"])
def test_a_program_that_is_exact_once_is_not_accurate_though_chance_asks_for_no_reference(bench, monkeypatch, error):
    monkeypatch.setattr("pytest_passbench.judge.verify.checker.MAX_SECONDS", 0.0)
    text = make_cpp_pass().replace("#include <cmath>", "#include <cmath>\n#include <cstdlib>")
    text = text.replace("    for (int64_t i = 0; i < n; ++i) ", EXACT_ONCE.replace("ERROR", error))
    bench.task()
    bench.candidate({"p": text.replace(" + y[i];", " + y[i], out[i] *= factor;")})
    (record,) = bench.judge(criterion="fp64").values()
    assert record.arm.status == "ran", record.arm.message
    assert record.accurate() is False
    assert not record.findings


def test_a_call_far_worse_than_those_with_a_reference_gets_one_too():
    accuracy = Accuracy()
    accuracy.add([RIGHT], [-5])
    assert not accuracy.is_doubtful([-5])
    assert accuracy.is_doubtful([-4])
    assert not accuracy.is_far_worse([-5], NEVER)
    assert not accuracy.is_far_worse([-3], NEVER)
    assert accuracy.is_far_worse([-2], NEVER)
    assert accuracy.is_far_worse([NEVER], NEVER)
    assert accuracy.is_far_worse([-4], -4)  # a null answer passes there, too
    assert not accuracy.is_far_worse([-5], -6)
    accuracy.lose()
    accuracy.add([RIGHT], [-5])
    assert accuracy.greatest_ratios == []


def test_a_call_further_from_eager_in_the_mean_gets_a_reference_though_one_element_decides_the_level():
    accuracy = Accuracy()
    accuracy.add([RIGHT], [0], [2.0])
    assert not accuracy.is_doubtful([0], [2.9])
    assert accuracy.is_doubtful([0], [3.1])
    exact = Accuracy()
    exact.add([RIGHT], [-11], [0.0])
    assert not exact.is_doubtful([-11], [1.4])  # the difference is rounding alone


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_mean_distance_is_in_units_of_precision(dtype):
    eager = torch.full((4,), 2.0, dtype=dtype)
    further = eager * (1 + torch.finfo(dtype).eps * torch.tensor([4.0, 0.0, 0.0, 0.0], dtype=dtype))
    assert mean_distance(eager, further) == pytest.approx(1.0)
    assert mean_distance(eager, torch.zeros_like(eager)) == pytest.approx(1 / torch.finfo(dtype).eps)
    odd = torch.tensor([2.0, math.inf, math.nan, 2.0], dtype=dtype)
    assert mean_distance(odd, eager) == 0.0
    assert mean_distance(eager, eager[:2]) == mean_distance(eager > 0, eager > 0) == 0.0


def test_eagers_nan_are_the_tasks_fault_and_one_bound_alone_prevents_them(bench):
    stats = "mean: 0.0, std: 1.0"
    bench.task("free", source=ROOT.replace("in_0)", "in_0 - 2.0)"), ops=("sub", "sqrt", "add"), stats=stats)
    bench.task("bounded", source=ROOT, ops=("sqrt", "add"), stats=stats + ", min: 0.25")
    for name, argument in (("free", "x - 2.0"), ("bounded", "x")):
        bench.candidate(
            {
                "p": make_wrapper("return torch.nn.functional.gelu(x) + y").replace(
                    "torch.nn.functional.gelu(x)", f"torch.sqrt({argument})"
                )
            },
            task=name,
        )
    records = bench.judge(policy="open", criterion="fp64")
    free, bounded = (records[f"{name}/float32-x1"] for name in ("free", "bounded"))
    assert free.arm.status == "eager_fail"
    assert "output 0 of eager is NaN in " in free.arm.message
    assert "min, max" in free.arm.message
    assert (bounded.arm.status, bounded.correct) == ("ran", True)


def test_an_answer_without_a_large_input_is_a_null_answer(bench):
    path = bench.task(dtypes=("bfloat16",), shapes=((64, 64), (64, 64)))
    bench.candidate({"p": make_wrapper("return torch.nn.functional.gelu(x)")})
    (record,) = bench.judge(policy="open", criterion="fp64").values()
    assert (record.null_accurate, record.correct) == (False, False)
    lines = path.read_text().replace("name: in_1, ", "name: in_1, original_name: slight, ").splitlines()
    text = "\n".join(line.split("mean:")[0] + SLIGHT + "}" if "slight" in line else line for line in lines)
    path.write_text(text + "\n")
    (record,) = bench.judge(policy="open", criterion="fp64").values()
    assert record.null_accurate
    assert not record.correct
