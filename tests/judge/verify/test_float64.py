"""Accuracy as the judge finds it: in the probe and in calls that chance chooses."""

from __future__ import annotations

import pytest

from pytest_passbench.judge.verify import late
from shared.workspace import make_wrapper

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
    bench.task(dtypes=("bfloat16",))
    bench.candidate({"once": make_wrapper(ROUNDED_ONCE)})
    bench.candidate({"scaled": make_wrapper(SCALED)}, name="other")
    for folder, right in (("cand", once), ("other", scaled)):
        (record,) = bench.judge(bench.folder / folder, policy="open", criterion=criterion).values()
        assert record.correct is right
        assert record.accurate() is (folder == "cand")
        assert not record.null_accurate
        assert record.nearer is (folder == "cand")


def test_any_verified_call_may_be_judged_by_float64(bench, monkeypatch):
    monkeypatch.setattr(late, "MAX_SECONDS", 1e9)
    bench.task(dtypes=("bfloat16",), scales=(1, 2, 3, 4, 5, 6))
    bench.candidate({"some": make_wrapper(SOMETIMES)})
    found = bench.judge(policy="open")
    assert [record.accurate() for record in found.values()] == [False] * 6
    assert [record.arm.status for record in found.values()] == ["ran"] * 6


def test_the_inputs_of_a_call_made_again_are_those_of_the_call(bench, monkeypatch):
    monkeypatch.setattr(late, "MAX_SECONDS", 1e9)
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
