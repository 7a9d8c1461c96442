"""AS with its interval, and the ratio of two AS, beside the definitions that they come from."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.report.board.standings import letters, real
from pytest_passbench.score import as_interval, board
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.subgraph import Judged

SETTINGS = ScoreSettings()


def judged(name, ratio, width=0.02, correct_from=-11, status="ran"):
    ends = (ratio / (1 + width), ratio * (1 + width))
    return Judged(status, correct_from if status == "ran" else NEVER, ratio, interval=ends, name=name)


def terms(tasks, settings=SETTINGS):
    found = as_interval.terms(tasks, settings)
    assert found is not None
    return found


subgraphs = st.builds(
    lambda ratio, width, level, status: judged("", ratio, width, level, status),
    st.floats(0.05, 20),
    st.floats(0.001, 0.5),
    st.sampled_from([-11, -6, -5, -3, 0, 1, 99]),
    st.sampled_from(["ran", "ran", "ran", "crash", "pass_miss"]),
)
runs = st.lists(st.lists(subgraphs, min_size=1, max_size=4), min_size=1, max_size=4)


@settings(max_examples=60)
@given(runs, st.sampled_from([0.0, 1.0]))
def test_the_score_is_the_boards_and_lies_in_its_interval(groups, p):
    given_p = replace(SETTINGS, p=p)
    tasks = {
        f"t{index}": [replace(item, name=str(place)) for place, item in enumerate(group)]
        for index, group in enumerate(groups)
    }
    found = as_interval.score(terms(tasks, given_p), 0.01)
    assert found.ratio == pytest.approx(board.row("", tasks, given_p).scores.as_)
    assert found.low <= found.ratio <= found.high


def test_a_task_without_a_subgraph_counts_as_in_the_board():
    tasks = {"a": [judged("x", 2.0)], "b": []}
    assert as_interval.score(terms(tasks), 0.0).ratio == pytest.approx(board.row("", tasks, SETTINGS).scores.as_)


def test_errors_of_subgraphs_average_out_and_shared_ones_do_not():
    many = {"t": [judged(str(index), 2.0, 0.1) for index in range(100)]}
    assert math.log(as_interval.score(terms(many), 0.0).high / 2.0) == pytest.approx(math.log(1.1) / 10)
    both = math.log(as_interval.score(terms(many), 0.05).high / 2.0)
    assert both == pytest.approx(math.log(1.1) / 10 + 0.05, rel=1e-3)


def test_a_failure_has_no_error_and_an_open_interval_is_infinite():
    failed = {"t": [judged("a", 2.0, 0.5, status="crash")]}
    found = as_interval.score(terms(failed), 0.1)
    assert found.low == pytest.approx(found.ratio) == pytest.approx(found.high)
    open_ended = {"t": [replace(judged("a", 2.0), interval=(0.0, math.inf)), judged("b", 2.0)]}
    found = as_interval.score(terms(open_ended), 0.0)
    assert (found.low, found.high) == (0.0, math.inf)


def test_nothing_is_said_of_a_speed_that_was_not_measured():
    unmeasured = {"t": [Judged("ran", -11, None, name="a")]}
    assert as_interval.terms(unmeasured, SETTINGS) is None
    assert as_interval.terms({}, SETTINGS) is None


def test_only_common_subgraphs_are_compared():
    upper = terms({"one": [judged("a", 3.0), judged("b", 100.0)], "two": [judged("c", 9.0)]})
    lower = terms({"one": [judged("a", 2.0)], "three": [judged("d", 50.0)]})
    found = as_interval.contrast(upper, lower, 0.0, 1)
    assert found.ratio.ratio == pytest.approx(1.5)
    assert (found.common, found.all, found.ahead) == (1, 4, 1)
    assert as_interval.contrast(upper, terms({"three": [judged("d", 50.0)]}), 0.0, 1) is None


def test_a_ratio_has_the_errors_of_both_rows_and_of_every_comparison():
    upper = terms({"one": [judged("a", 2.0, 0.03)]})
    lower = terms({"one": [judged("a", 1.0, 0.04)]})
    single, several = (as_interval.contrast(upper, lower, 0.0, count).ratio for count in (1, 10))
    assert math.log(single.high / 2.0) == pytest.approx(math.hypot(math.log(1.03), math.log(1.04)))
    assert math.log(several.high / 2.0) / math.log(single.high / 2.0) == pytest.approx(2.807 / 1.960, abs=1e-3)


def test_over_tasks_the_interval_is_as_wide_as_the_tasks_differ():
    logs = [0.1, -0.1, 0.3, 0.0, 0.2, 0.15, -0.05, 0.12, 0.07, 0.21]
    upper = terms({f"t{index}": [judged("a", math.exp(value))] for index, value in enumerate(logs)})
    lower = terms({f"t{index}": [judged("a", 1.0)] for index in range(len(logs))})
    low, high = as_interval.contrast(upper, lower, 0.0, 1).over_tasks()
    mean, spread = sum(logs) / 10, math.sqrt(sum((value - 0.1) ** 2 for value in logs) / 10 / 10)
    assert math.log(low) == pytest.approx(mean - 1.96 * spread, abs=0.015)
    assert math.log(high) == pytest.approx(mean + 1.96 * spread, abs=0.015)
    few = as_interval.contrast(terms({"t0": [judged("a", 2.0)]}), lower, 0.0, 1)
    assert few.over_tasks() is None


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.01, 1.2, "yes"),
        (0.8, 0.9, "yes"),
        (0.99, 1.01, "no"),
        (0.99, 1.03, "unresolved"),
        (0.0, math.inf, "unresolved"),
    ],
)
def test_a_difference_is_real_if_the_interval_excludes_1(low, high, said):
    assert real(Interval(1.0, low, high), 0.02) == said


@settings(max_examples=60)
@given(st.integers(2, 7), st.sets(st.sampled_from([*combinations(range(7), 2)])))
def test_rows_share_a_letter_unless_they_are_apart(count, drawn):
    apart = {pair for pair in drawn if max(pair) < count}
    found = {item: set(text.split()) for item, text in letters(range(count), apart).items()}
    assert all(found.values())
    for pair in combinations(range(count), 2):
        assert bool(found[pair[0]] & found[pair[1]]) == (pair not in apart)
