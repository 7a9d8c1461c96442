"""The law of the share of the possible, and the classes of subgraphs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.ladder import BITWISE, NEVER
from pytest_passbench.score.possible import ALL, CLASSES, LEAST_HEADROOM, class_of, possible, share, with_total
from pytest_passbench.score.subgraph import NOT_JUDGED, Judged

headrooms = st.floats(LEAST_HEADROOM, 1e4)
speeds = st.floats(1e-3, 1e4)


def item(speedup, headroom, level=BITWISE, null_from=NEVER, operators=()):
    return Judged("ran", level, speedup, null_from, headroom=headroom, operators=operators)


@given(headrooms)
def test_eager_has_nothing_and_the_head_room_is_all(headroom):
    assert share(item(1.0, headroom)) == 0.0
    assert share(item(headroom, headroom)) == 1.0


@given(headrooms, speeds, speeds)
def test_a_faster_program_has_more(headroom, one, other):
    slow, fast = sorted((one, other))
    assert share(item(slow, headroom)) <= share(item(fast, headroom))
    if slow * 1.001 < fast:
        assert share(item(slow, headroom)) < share(item(fast, headroom))


@given(headrooms, speeds, speeds)
def test_shares_of_speed_ups_add_up_as_speed_ups_multiply(headroom, one, other):
    total = share(item(one, headroom)) + share(item(other, headroom))
    assert share(item(one * other, headroom)) == pytest.approx(total, abs=1e-9)


@given(headrooms, speeds)
def test_what_is_not_right_has_nothing(headroom, speedup):
    assert share(item(speedup, headroom, level=-4), -5) == 0.0
    assert share(item(speedup, headroom, level=-4), -4) == share(item(speedup, headroom))
    for status in ("crash", "pass_miss", NOT_JUDGED):
        assert share(Judged(status, headroom=headroom)) == 0.0


@given(headrooms, speeds)
def test_an_answer_that_zeros_would_match_is_worth_no_gain(headroom, speedup):
    """The null guard limits the speed-up to 1, and so the share to 0."""
    expected = min(share(item(speedup, headroom)), 0.0)
    assert share(item(speedup, headroom, level=-5, null_from=-5), -5) == expected


@given(st.floats(0.0, LEAST_HEADROOM, exclude_max=True), speeds)
def test_little_head_room_is_left_out(headroom, speedup):
    assert share(item(speedup, headroom)) is None
    assert possible([item(speedup, headroom), item(2.0, 4.0)]).subgraphs == 1


def test_a_speed_that_was_not_measured_is_left_out():
    assert share(item(None, 4.0)) is None
    assert possible([item(None, 4.0)]).share is None


@given(st.lists(st.tuples(speeds, headrooms), min_size=1, max_size=9))
def test_all_is_the_median_and_classes_make_up_the_count(pairs):
    kinds = [("conv2d", "add"), ("add", "view"), ("sum",), ("view",)]
    items = [item(*pair, operators=kinds[index % len(kinds)]) for index, pair in enumerate(pairs)]
    shares = sorted(share(one) for one in items)
    by_class = with_total(items)
    assert shares[0] <= by_class[ALL].share <= shares[-1]
    assert by_class[ALL].subgraphs == len(items) == sum(v.subgraphs for k, v in by_class.items() if k != ALL)
    assert math.isclose(by_class[ALL].share, (shares[(len(shares) - 1) // 2] + shares[len(shares) // 2]) / 2)


@pytest.mark.parametrize(
    ("operators", "kind"),
    [
        ("view linear softmax conv_transpose1d", "convolution"),
        ("scaled_dot_product_attention reshape", "product"), ("fft_fftn real layer_norm", "product"),
        ("histc cumsum", "scan"), ("batch_norm relu adaptive_avg_pool2d", "pool"), ("embedding add", "index"),
        ("add softmax", "reduction"), ("view an_operator_of_tomorrow", "elementwise"), ("cat reshape", "layout"),
        ("", "layout"),
    ],
)  # fmt: skip
def test_the_operator_that_decides_gives_the_class(operators, kind):
    assert class_of(operators.split()) == kind
    assert class_of(reversed(operators.split())) == kind
    assert kind in CLASSES
