"""The fp64 criterion: what is as accurate as eager, and what is not."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.float64_errors import references
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.judge.verify.standing import Accuracy, Stability

ROUNDED = pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
SEEDS = st.integers(0, 1 << 30)
SIZES = st.sampled_from((1, 2, 7, 300, 70_000))  # within the first piece, and of several
ODD = st.sampled_from((None, math.nan, math.inf, -math.inf))
MASK = -3e38


def reference_of(exact, eager):
    found = references([exact], [eager])
    assert found is not None
    return found[0]


def accurate(exact, eager, found):
    accuracy = Accuracy()
    accuracy.add([reference_of(exact, eager).errors(found)])
    return accuracy.accurate


def computed(size, seed, name, roundings=3, scale=1.0):
    """Return a sum in float64, and the same sum with so many roundings to the dtype."""
    generator, dtype = torch.Generator().manual_seed(seed), getattr(torch, name)
    exact, eager = torch.zeros(size, dtype=torch.float64), torch.zeros(size, dtype=dtype)
    for _ in range(roundings):
        term = (torch.randn(size, generator=generator, dtype=torch.float64) * scale).to(dtype)
        exact, eager = exact + term.double(), eager + term
    return exact, eager


@ROUNDED
@given(size=SIZES, seed=SEEDS, roundings=st.integers(0, 9), odd=ODD, both=st.booleans())
def test_eager_itself_is_accurate_and_so_is_what_is_rounded_once(name, size, seed, roundings, odd, both):
    exact, eager = computed(size, seed, name, roundings)
    if odd is not None:
        eager[seed % size] = odd
        if both:
            exact[seed % size] = odd
    assert accurate(exact, eager, eager.clone())
    assert accurate(exact, eager, exact.to(eager.dtype))


@ROUNDED
@given(size=SIZES, seed=SEEDS, power=st.integers(-6, 6), error=st.floats(-3, 3))
def test_a_power_of_two_in_all_values_changes_nothing(name, size, seed, power, error):
    exact, eager = computed(size, seed, name)
    # So large that no value becomes subnormal in float16.
    exact, eager = exact.sign() * (exact.abs() + 1), eager.sign() * (eager.abs() + 1)
    found = (eager.double() + error * (eager.double() - exact)).to(eager.dtype)
    here = reference_of(exact, eager).errors(found)
    factor = 2.0**power
    there = reference_of(exact * factor, eager * factor).errors(found * factor)
    assert there.greatest_ratio == pytest.approx(here.greatest_ratio, rel=1e-3)
    assert there.mean_ratio == pytest.approx(here.mean_ratio, rel=1e-3)


@ROUNDED
@given(seed=SEEDS)
def test_an_output_that_is_1_percent_off_is_not_accurate(name, seed):
    exact, eager = computed(1000, seed, name)
    assert not accurate(exact, eager, (eager.double() * 1.01).to(eager.dtype))


@ROUNDED
@given(seed=SEEDS)
def test_many_small_errors_and_one_large_one_are_both_found(name, seed):
    exact, eager = computed(1000, seed, name)
    unit = torch.finfo(eager.dtype).eps * eager.abs().max()
    one, many = eager.clone(), (eager.double() + unit).to(eager.dtype)
    one[seed % 1000] += 8 * unit
    assert not accurate(exact, eager, one)
    assert not accurate(exact, eager, many)


@ROUNDED
def test_an_error_in_one_element_is_too_much_where_eager_is_exact(name):
    eager = torch.arange(1.0, 65.0, dtype=getattr(torch, name))
    found = eager.clone()
    found[5] *= 1 + 2 * torch.finfo(eager.dtype).eps
    assert not accurate(eager.double(), eager, found)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_mask_of_huge_values_leaves_the_others_no_more_room(name):
    exact, eager = computed(1000, 7, name)
    exact[::2] = eager[::2] = MASK
    exact = torch.where(exact == MASK, eager.double(), exact)
    found = torch.where(eager < -1e30, eager, (eager.double() * 1.01).to(eager.dtype))
    assert not accurate(exact, eager, found)
    assert accurate(exact, eager, exact.to(eager.dtype))


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0])
def test_nan_and_infinity_must_be_where_they_should_be(value):
    exact, eager = computed(300, 3, "float32")
    exact[7] = eager[7] = math.nan
    exact[9], eager[9] = 1e300, math.inf  # beyond the dtype
    wrong, elsewhere = eager.clone(), eager.clone()
    wrong[7] = 1.0 if math.isnan(value) else value
    elsewhere[8] = value if value else math.nan
    assert accurate(exact, eager, eager.clone())
    assert not accurate(exact, eager, wrong)
    assert not accurate(exact, eager, elsewhere)


def test_an_integer_is_eagers_or_that_of_float64():
    exact, eager = torch.tensor([3, 5, 7]), torch.tensor([3, 4, 7])
    assert accurate(exact, eager, torch.tensor([3, 5, 7]))
    assert accurate(exact, eager, torch.tensor([3, 4, 7]))
    assert not accurate(exact, eager, torch.tensor([3, 6, 7]))
    assert not accurate(torch.tensor([True]), torch.tensor([True]), torch.tensor([False]))


def test_complex_outputs_are_judged_by_their_distance():
    exact = torch.complex(*(torch.randn(2, 500, dtype=torch.float64, generator=torch.Generator().manual_seed(5))))
    eager = (exact * (1 + 1e-6)).to(torch.complex64)
    assert accurate(exact, eager, exact.to(torch.complex64))
    assert not accurate(exact, eager, exact.to(torch.complex64) * 1.01)


@pytest.mark.parametrize(
    ("exact", "eager"),
    [
        (torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)),  # no more precise than eager
        (torch.ones(3), torch.ones(3)),
        (torch.ones(4, dtype=torch.float64), torch.ones(3)),
    ],
)
def test_some_outputs_have_no_float64_form(exact, eager):
    assert references([exact], [eager]) is None


@ROUNDED
def test_the_worst_call_counts(name):
    good, bad = computed(100, 1, name), computed(100, 2, name)
    accuracy = Accuracy()
    assert not accuracy.accurate
    accuracy.add([reference_of(*good).errors(good[1])])
    assert accuracy.accurate
    accuracy.add([reference_of(*bad).errors(bad[1] * 2)])
    accuracy.add([reference_of(*good).errors(good[1])])
    assert not accuracy.accurate


def test_an_empty_output_is_accurate():
    empty = torch.empty((0, 4))
    assert accurate(empty.double(), empty, empty.clone())


@ROUNDED
def test_null_answers_are_tried(name):
    exact, eager = computed(1000, 1, name)
    copied = eager.clone()
    assert not reference_of(exact, eager).accepts_null([])
    assert reference_of(exact, eager).accepts_null([copied])
    assert reference_of(torch.zeros(50, dtype=torch.float64), torch.zeros(50, dtype=eager.dtype)).accepts_null([])


@pytest.mark.parametrize(
    ("size", "differing", "unstable"), [(1, 1, []), (16, 2, []), (16, 3, [0]), (1000, 62, []), (1000, 64, [0])]
)
def test_one_whole_number_of_a_tie_is_no_unstable_answer(size, differing, unstable):
    expected = torch.arange(size)
    answer = torch.where(expected < differing, expected + 1, expected)
    stability = Stability()
    for value, level in ((expected, -11), (answer, NEVER)):
        stability.add([level], [SimpleNamespace(value=expected)], [SimpleNamespace(value=value)], -5)
    assert stability.unstable == unstable
