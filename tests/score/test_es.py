"""The scores against the conformance cases, and the laws that they keep."""

from __future__ import annotations

import json
import math
from argparse import ArgumentTypeError
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.checks import MAX_EXPONENT, failure_value
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.ladder import BITWISE, LADDER, NEVER, tolerances
from pytest_passbench.core.record import HARNESS_FAIL, STATUSES, ArmResult, Record, Speed
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score import board, es
from pytest_passbench.score.subgraph import SPEEDUPS, Judged, from_json, from_record
from support import factored_scores as factored
from support.paths import DATA

CASES = json.loads((DATA / "es_vectors.json").read_text())
NEVER_TOLERATED = ("eager_fail", "pass_miss", "integrity")

settings_any = st.builds(
    ScoreSettings,
    b=st.floats(1e-3, 1.0),
    p=st.floats(0.0, 2.0),
    interpretation=st.sampled_from(["default", "mismatch_extended"]),
)


def judged(status, first_correct, speedup, null_from):
    return Judged(status, first_correct if status == "ran" else NEVER, speedup, null_from)


judged_any = st.builds(
    judged,
    status=st.sampled_from(["ran"] * 8 + [status for status in STATUSES if status != HARNESS_FAIL]),
    first_correct=st.sampled_from([BITWISE, *LADDER, 2, NEVER]),
    speedup=st.floats(1e-3, 1e3),
    null_from=st.sampled_from([*LADDER, NEVER]),
)
groups = st.lists(judged_any, min_size=1, max_size=12)


def close(got, want):
    return got == pytest.approx(want, rel=1e-9, abs=1e-9)


def correct(speedup, correct_from=-5, null_from=NEVER):
    return Judged("ran", correct_from, speedup, null_from)


@pytest.mark.parametrize("index", range(len(CASES)))
def test_conformance(index):
    case = CASES[index]
    subgraphs = [from_json(item, f"case {index}") for item in case["subgraphs"]]
    settings = ScoreSettings(b=case["b"], p=case["p"], interpretation=case["interpretation"])
    got = es.evaluate(subgraphs, settings).to_json()
    for name in ("s", "es", "es_published"):
        assert got[name].keys() == case[name].keys()
        assert close(got[name], case[name]), name
    assert close(got["as"], case["as"])
    assert close(got["as_published"], case["as_published"])


def test_there_are_sixty_cases():
    assert len(CASES) == 60


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol"),
    [
        ("float16", 1e-3, 1e-5),
        ("complex32", 1e-3, 1e-5),
        ("torch.bfloat16", 1.6e-2, 1e-5),
        ("float32", 1.3e-6, 1e-5),
        ("qint8", 1.3e-6, 1e-5),
        ("float64", 1e-7, 1e-7),
        ("complex128", 1e-7, 1e-7),
        ("int64", 0.0, 0.0),
        ("bool", 0.0, 0.0),
        ("float8_e4m3fn", 0.0, 0.0),
    ],
)
def test_tolerances_at_minus_five_are_the_assertion_defaults(dtype, rtol, atol):
    # The published exponents are rounded: 10^-5.886 is 1.30017e-6, 10^-1.796 is 1.59956e-2.
    assert tolerances(dtype, -5) == pytest.approx((rtol, atol), rel=5e-4)


def test_tolerances_above_zero():
    rtol, atol = tolerances("float32", 1)
    assert rtol == pytest.approx(15.0, rel=0.01)
    assert atol == pytest.approx(10.0)


@given(groups, settings_any, st.booleans())
def test_direct_and_factored_agree(subgraphs, settings, guard):
    for t in es.ladder(settings.interpretation):
        assert close(es.s_at(subgraphs, t, settings), factored.s_factored(subgraphs, t, settings))
        direct = es.es_at(subgraphs, t, settings, guard=guard)
        assert close(direct, factored.es_factored(subgraphs, t, settings, guard=guard))


@given(groups, settings_any)
def test_es_is_s_up_to_zero_without_the_guard(subgraphs, settings):
    scores = es.evaluate(subgraphs, settings)
    for t in range(-10, 1):
        assert close(scores.es_published[t], scores.s[t])


@given(groups)
def test_correctness_grows_with_t(subgraphs):
    shares = [board.correctness(subgraphs, t) for t in LADDER]
    assert shares == sorted(shares)


@given(groups, settings_any)
def test_es_grows_with_t_where_nothing_is_slower_than_a_failure(subgraphs, settings):
    # A slowdown worth less than b makes S(t) fall when it becomes correct, and an accuracy failure slower
    # than 1 does at t = 1; so the law needs speedups of at least 1. The guard breaks it: it starts at a t.
    quick = [replace(item, speedup=max(1.0, item.speedup)) for item in subgraphs]
    curve = list(es.evaluate(quick, settings).es_published.values())
    assert all(low <= high * (1 + 1e-12) for low, high in pairwise(curve))


@given(groups, settings_any)
def test_the_guard_never_pays(subgraphs, settings):
    scores = es.evaluate(subgraphs, settings)
    assert scores.as_ <= scores.as_published * (1 + 1e-12)
    assert all(scores.es[t] <= scores.es_published[t] * (1 + 1e-12) for t in scores.es)


@given(groups, settings_any)
def test_the_guard_leaves_alone_what_no_null_answer_passes(subgraphs, settings):
    unguarded = [replace(item, null_from=NEVER) for item in subgraphs]
    scores = es.evaluate(unguarded, settings)
    assert scores.es == scores.es_published
    assert scores.as_ == scores.as_published


@given(groups, settings_any)
def test_a_greater_b_never_lowers_a_greater_p_never_raises(subgraphs, settings):
    base = es.evaluate(subgraphs, settings).as_
    more = es.evaluate(subgraphs, replace(settings, b=min(1.0, settings.b * 1.5))).as_
    worse = es.evaluate(subgraphs, replace(settings, p=settings.p + 0.5)).as_
    assert worse * (1 - 1e-12) <= base <= more * (1 + 1e-12)


@given(st.lists(st.sampled_from(NEVER_TOLERATED), min_size=1, max_size=5), settings_any)
def test_what_is_never_tolerated_counts_b_everywhere(statuses, settings):
    scores = es.evaluate([Judged(status) for status in statuses], settings)
    assert all(close(value, settings.b) for value in scores.es.values())
    assert close(scores.as_, settings.b)


@given(groups, settings_any, st.randoms(use_true_random=False))
def test_order_does_not_matter(subgraphs, settings, random):
    shuffled = random.sample(subgraphs, len(subgraphs))
    assert close(es.evaluate(shuffled, settings).as_, es.evaluate(subgraphs, settings).as_)


def test_eager_itself_scores_one():
    scores = es.evaluate([correct(1.0, BITWISE, 0)] * 3, ScoreSettings())
    assert set(scores.es.values()) == {1.0}
    assert scores.as_ == 1.0


def test_a_fast_null_answer_earns_no_more_than_eager_from_its_null_from():
    # What an answer of all zeros gets: it is correct only at levels at which null answers are.
    scores = es.evaluate([correct(50.0, -1, -1)], ScoreSettings())
    assert scores.es[-2] == pytest.approx(0.1)
    assert scores.es[-1] == scores.es[1] == scores.es[4] == 1.0
    assert scores.es_published[-1] == pytest.approx(50.0)


def test_the_guard_spares_who_was_correct_before_null_answers_were():
    scores = es.evaluate([correct(2.0, -2, -1)], ScoreSettings())
    assert scores.es == scores.es_published


def test_p_squares_slowdowns():
    assert es.s_at([correct(0.5)], -5, ScoreSettings(p=1.0)) == pytest.approx(0.25)
    assert es.s_at([correct(2.0)], -5, ScoreSettings(p=1.0)) == pytest.approx(2.0)


def test_a_speed_that_was_not_measured_leaves_no_score():
    subgraphs = [correct(2.0), correct(None, correct_from=0), Judged("crash")]
    scores = es.evaluate(subgraphs, ScoreSettings())
    assert scores.as_ is None
    assert scores.as_published is None
    for curve in (scores.s, scores.es, scores.es_published):
        assert set(curve.values()) == {None}
    assert factored.s_factored(subgraphs, -5, ScoreSettings()) is None
    assert factored.es_factored(subgraphs, 1, ScoreSettings(), guard=True) is None
    assert board.gmean(subgraphs) == pytest.approx(2.0)


def test_a_failure_needs_no_speed():
    subgraphs = [correct(2.0), correct(None, correct_from=NEVER), *map(Judged, NEVER_TOLERATED)]
    assert es.evaluate(subgraphs, ScoreSettings()).as_ is not None


def test_the_slowest_and_the_fastest_make_numbers():
    extremes = [correct(speedup, BITWISE) for speedup in SPEEDUPS]
    for subgraphs in (extremes[:1], extremes[1:], extremes):
        assert 0.0 < es.evaluate(subgraphs, ScoreSettings(b=1e-300, p=MAX_EXPONENT)).as_ < math.inf


@pytest.mark.parametrize(
    "settings",
    [ScoreSettings(b=0.0), ScoreSettings(b=1.5), ScoreSettings(p=-1.0), ScoreSettings(b=float("nan"))],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(UserError, match="out of range"):
        es.evaluate([correct(1.0)], settings)


@pytest.mark.parametrize(
    ("b", "valid"), [("0", False), ("1e-300", True), ("0.1", True), ("1", True), ("1.01", False)]
)
def test_a_file_may_have_the_b_that_the_command_line_takes(b, valid):
    if valid:
        es.check(ScoreSettings(b=failure_value(b)))
        return
    with pytest.raises(ArgumentTypeError, match="not a number above 0 and up to 1"):
        failure_value(b)
    with pytest.raises(UserError, match="out of range"):
        es.check(ScoreSettings(b=float(b)))


def test_with_b_of_1_a_failure_counts_as_a_run_of_eager():
    subgraphs = [correct(4.0, BITWISE), Judged("integrity")]
    assert es.evaluate(subgraphs, ScoreSettings(b=1.0)).as_ == pytest.approx(2.0)


def test_a_record_becomes_what_the_scores_need():
    speed = Speed(1.5, 1.4, 1.6, "FASTER", 30.0, 20.0)
    record = Record("t", "s", "c", dtypes=["float32", "int64"], null_from=0)
    record.arm = ArmResult(correct_from=[-6, BITWISE], speed=speed)
    record.baselines["inductor"] = ArmResult(status="compile_fail")
    assert from_record(record) == Judged("ran", -6, 1.5, 0)
    assert from_record(record, "inductor").failure == "compile_fail"


def test_a_record_without_outputs_is_never_correct():
    assert from_record(Record("t", "s", "c")).first_correct == NEVER


def test_fast_p_is_a_share_of_all_subgraphs():
    subgraphs = [correct(2.0), correct(1.0), correct(0.9), correct(3.0, correct_from=-4), Judged("crash")]
    assert board.fast(subgraphs, 1.0) == pytest.approx(2 / 5)
    assert board.fast(subgraphs, 1.5) == pytest.approx(1 / 5)
    assert board.correctness(subgraphs) == pytest.approx(3 / 5)
    assert board.gmean(subgraphs) == pytest.approx((2.0 * 0.9) ** (1 / 3))
    assert board.fast([*subgraphs, correct(None)], 1.0) is None


@given(st.lists(groups, min_size=1, max_size=4), settings_any)
def test_a_benchmark_is_the_geometric_mean_of_its_tasks(tasks, settings):
    row = board.row("c", {str(index): group for index, group in enumerate(tasks)}, settings)
    each = [es.evaluate(group, settings).as_ for group in tasks]
    assert close(row.scores.as_, es.geomean(each))


def test_a_missing_task_counts_b():
    row = board.row("c", {"one": [correct(1.0, BITWISE)], "two": [Judged("not_judged")]}, ScoreSettings())
    assert row.scores.as_ == pytest.approx(0.1**0.5)
    assert row.missing == 1
    assert row.correct == row.fast1 == 0.5
