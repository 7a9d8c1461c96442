"""What is correct under which criterion: agreement with eager at t, accuracy against float64, or either."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.criterion import CRITERIA
from pytest_passbench.core.ladder import BITWISE, LADDER, NEVER
from pytest_passbench.core.record import Record
from pytest_passbench.score import board
from pytest_passbench.score.subgraph import from_record
from support.made_records import record_of, right, run_of

ACCURATE, INACCURATE, UNKNOWN = [1.9], [2.1], []
RATIOS = st.sampled_from((ACCURATE, INACCURATE, UNKNOWN))
LEVELS = st.sampled_from((BITWISE, *LADDER, NEVER))


def judged(level, ratios, *, null_from=NEVER, null_accurate=False, criterion="ladder", status="ran", t=-5):
    arm = right(2.0, level, status=status, greatest_ratio64=ratios, mean_ratio64=[0.5] * len(ratios))
    facts = {"tolerance": t, "criterion": criterion, "null_from": null_from, "null_accurate": null_accurate}
    return record_of("t", "s", arm, "c", dtypes=["bfloat16"], **facts)


@pytest.mark.parametrize(
    ("level", "ratios", "ladder", "fp64", "either"),
    [
        (-2, ACCURATE, False, True, True),  # rounded once: nearer to float64 than eager's result
        (-5, INACCURATE, True, False, True),
        (-2, INACCURATE, False, False, False),
        (-6, ACCURATE, True, True, True),
        (-6, UNKNOWN, True, True, True),  # no float64 form: the ladder decides
        (-2, UNKNOWN, False, False, False),
        (NEVER, ACCURATE, False, True, True),  # the other index at a tie
        (BITWISE, ACCURATE, True, True, True),
    ],
)
def test_a_case_passes_by_its_runs_criterion(level, ratios, ladder, fp64, either):
    right = [judged(level, ratios, criterion=criterion).correct for criterion in CRITERIA]
    assert right == [ladder, fp64, either]


@given(level=LEVELS, ratios=RATIOS, null_from=LEVELS, null_accurate=st.booleans(), t=st.integers(-10, 0))
def test_either_accepts_what_one_of_both_accepts(level, ratios, null_from, null_accurate, t):
    about = {"null_from": null_from, "null_accurate": null_accurate, "t": t}
    ladder, fp64, either = (judged(level, ratios, criterion=one, **about).correct for one in CRITERIA)
    assert either == (ladder or fp64)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("status", ["crash", "nan_inf", "integrity", "pass_miss"])
def test_no_criterion_accepts_what_did_not_run_to_its_end(criterion, status):
    assert not judged(BITWISE, ACCURATE, criterion=criterion, status=status).correct


def test_an_answer_that_is_no_more_accurate_than_a_null_answer_is_not_right_and_earns_no_speed_up():
    found = judged(-2, ACCURATE, null_accurate=True, criterion="fp64")
    assert not found.correct
    run = run_of(found)
    row = board.row("c", board.tasks_of(run, "c", "fp64"), run.score_settings)
    assert set(row.scores.es.values()) == {1.0}
    assert set(row.scores.es_published.values()) == {2.0}
    assert judged(BITWISE, ACCURATE, null_accurate=True, criterion="fp64").correct  # eager's own answer


def test_accuracy_does_not_depend_on_t():
    run = run_of(judged(-2, ACCURATE))
    settings = run.score_settings
    agreeing, accurate = (board.row("c", board.tasks_of(run, "c", name), settings) for name in ("ladder", "fp64"))
    assert (agreeing.correct, accurate.correct) == (0.0, 1.0)
    assert agreeing.scores.es[-5] == pytest.approx(0.1)
    assert set(accurate.scores.es.values()) == {2.0}
    assert accurate.scores.as_ == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("criterion", "correct", "gmean"), [("ladder", 0.5, 2.0), ("fp64", 0.5, 2.0), ("either", 1.0, 2.0)]
)
def test_gates_are_about_the_runs_criterion(criterion, correct, gmean):
    first, second = judged(-2, ACCURATE), judged(-6, INACCURATE)
    second.subgraph = "u"
    run = run_of(first, second, settings={"criterion": criterion})
    assert board.metric(run, "c", "correct") == correct
    assert board.metric(run, "c", "gmean") == pytest.approx(gmean)


def test_a_baseline_is_judged_by_its_own_accuracy():
    found = judged(-6, INACCURATE)
    found.baselines["inductor"] = judged(-2, ACCURATE).arm
    assert [from_record(found, arm, "fp64").correct_at(-10) for arm in ("candidate", "inductor")] == [False, True]


@given(level=LEVELS, ratios=RATIOS)
def test_a_record_says_in_json_whether_it_is_accurate(level, ratios):
    found = judged(level, ratios)
    data = found.to_json()
    assert data["arm"]["accurate"] == {1.9: True, 2.1: False}.get(ratios[0] if ratios else 0.0)
    assert Record.from_data(data) == found
