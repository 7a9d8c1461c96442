"""Comparing outputs: the level is the one that the ladder's definition gives, element by element."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.agreement import correct_from
from pytest_passbench.core.ladder import BITWISE, LADDER, NEVER, tolerances
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.verify.checker import refuse_mostly_nan
from pytest_passbench.judge.verify.compare import compare, null_from, share
from pytest_passbench.judge.verify.outputs import Output, OutputForm

SIZES = st.sampled_from((1, 7, 300, 70_000))  # within the first piece, and of several
SCALES = st.integers(-4, 3)
SEEDS = st.integers(0, 1 << 30)
ODD = st.sampled_from((None, float("nan"), float("inf"), -0.0))


def level(expected: torch.Tensor, found: torch.Tensor, name: str) -> int:
    """Return the level by definition: equal NaN and Inf count as no error."""
    a, b = expected.double(), found.double()
    same = (a == b) | (a.isnan() & b.isnan())
    for t in LADDER:
        rtol, atol = tolerances(name, t)
        if (same | ((a - b).abs() <= atol + rtol * a.abs())).logical_and(same | (a.isfinite() & b.isfinite())).all():
            return t
    return NEVER


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
@given(size=SIZES, scale=SCALES, error=st.integers(-12, 1), odd=ODD, both=st.booleans(), seed=SEEDS)
def test_levels_are_those_of_the_definition(name, size, scale, error, odd, both, seed):
    generator, dtype = torch.Generator().manual_seed(seed), getattr(torch, name)
    expected = (torch.randn(size, generator=generator) * 10.0**scale).to(dtype)
    found = expected + (torch.randn(size, generator=generator) * 10.0**error).to(dtype)
    if odd is not None:
        found[seed % size] = odd
        expected[seed % size] = odd if both else 1.0
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    wanted = BITWISE if expected.view(bits).equal(found.view(bits)) else level(expected, found, name)
    assert correct_from(expected, found) == wanted
    form = OutputForm(kind=0, dtype=name, device="cpu", shape=tuple(expected.shape), strides=(1,))
    nulls = [torch.zeros_like(expected), found]
    if expected.isfinite().all() and size > 1:  # else the mean is not finite, or is the answer itself
        nulls.append(torch.full_like(expected, float(expected.double().mean())))
    assert null_from([Output(form, 0, expected)], [found]) == min(level(expected, null, name) for null in nulls)


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize(("value", "error"), [(3.0, "2"), (float("nan"), "nan"), (float("inf"), "inf")])
@pytest.mark.parametrize("place", [(0, 0), (0, 300), (1, 9_000), (2, 24_999)])  # of the first piece, and of others
def test_the_element_that_misses_by_most_is_named_wherever_it_lies(name, value, error, place):
    expected = torch.ones((3, 25_000), dtype=getattr(torch, name))
    found = expected.clone()
    found[0, 7] = found[1, 20_000] = 1.5
    found[place] = value
    form = OutputForm(kind=0, dtype=name, device="cpu", shape=(3, 25_000), strides=(25_000, 1))
    verdict = compare([Output(form, 0, expected)], [Output(form, 0, found)], -5, ["output 0"])
    said = f"output 0[{place[0]}, {place[1]}]: expected 1, got {value:g} (greatest error {error}, "
    assert verdict.worst.startswith(said)
    assert verdict.status == ("ran" if value == 3.0 else "nan_inf")


@pytest.mark.parametrize(
    ("part", "shown"), [(12, "0.016"), (36_864, "50"), (73_461, "99.6"), (73_727, "99.9"), (73_728, "100")]
)
def test_a_share_is_no_power_of_ten(part, shown):
    assert share(part, 73_728) == f"{part:,} of 73,728 elements ({shown} %)"


NAN, INF = float("nan"), float("inf")


def output(values: list[float], dtype: str) -> list[Output]:
    value = torch.tensor(values).to(getattr(torch, dtype))
    return [Output(OutputForm(kind=0, dtype=dtype, device="cpu", shape=tuple(value.shape), strides=(1,)), 0, value)]


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "complex32"])
def test_dtypes_in_which_torch_computes_little_are_compared_too(dtype):
    eager, other, odd = (output(values, dtype) for values in ([1.0, 2.0, NAN], [1.0, 3.0, NAN], [1.0, NAN, NAN]))
    refuse_mostly_nan(output([1.0, 2.0, 3.0], dtype))
    with pytest.raises(ArmFailed, match="output 0 of eager is NaN in 67 % of its elements"):
        refuse_mostly_nan(odd)
    assert null_from(eager, [other[0].value]) > -5
    assert compare(eager, eager, -5, ["output 0"]).correct_from == [BITWISE]
    wrong, no_number = (compare(eager, answer, -5, ["output 0"]) for answer in (other, odd))
    assert (wrong.status, wrong.correct_from[0] > -5) == ("ran", True)
    assert wrong.worst.startswith("output 0[1]: expected 2, got 3 (greatest error 1, ")
    assert (no_number.status, no_number.correct_from) == ("nan_inf", [NEVER])
    assert no_number.worst.startswith("output 0[1]: expected 2, got nan ")


@pytest.mark.parametrize(("eager", "answer"), [(-INF, 3.0), (NAN, 3.0), (INF, -INF), (NAN, INF), (3.0, -INF)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_an_infinity_or_nan_that_is_wrong_is_explained(dtype, eager, answer):
    expected, actual = (output([1.0, value, 1.0, NAN], dtype) for value in (eager, answer))
    verdict = compare(expected, actual, -5, ["output 0"])
    assert verdict.correct_from == [NEVER]
    assert verdict.worst.startswith(f"output 0[1]: expected {eager:g}, got {answer:g} (greatest error ")
    assert verdict.worst.endswith(", inf times what t = -5 allows; 1 of 4 elements (25 %) beyond it)")


@pytest.mark.parametrize("dtype", ["int64", "bool", "float8_e5m2"])
def test_what_must_be_equal_is_no_factor_from_it(dtype):
    verdict = compare(output([0.0, 1.0, 1.0, 0.0], dtype), output([0.0, 0.0, 1.0, 0.0], dtype), -5, ["output 0"])
    assert verdict.worst == (
        "output 0[1]: expected 1, got 0 (greatest error 1, must be equal; 1 of 4 elements (25 %) differ)"
    )
