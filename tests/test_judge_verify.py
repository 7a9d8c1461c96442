"""Comparing outputs: the level that is found is the one that the ladder's definition gives, element by element."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.judge.outputs import Form, Output
from pytest_passbench.judge.verify import HIGHEST, LOWEST, correct_from, null_from
from pytest_passbench.score.ladder import BITWISE, NEVER, tolerances

SIZES = st.sampled_from((1, 7, 300, 70_000))  # within the first piece, and of several
SCALES = st.integers(-4, 3)
SEEDS = st.integers(0, 1 << 30)
ODD = st.sampled_from((None, float("nan"), float("inf"), -0.0))


def level(expected: torch.Tensor, found: torch.Tensor, name: str) -> int:
    """By definition: equal NaN and Inf count as no error."""
    a, b = expected.double(), found.double()
    same = (a == b) | (a.isnan() & b.isnan())
    for t in range(LOWEST, HIGHEST + 1):
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
    form = Form(kind=0, dtype=name, device="cpu", shape=tuple(expected.shape), strides=(1,))
    nulls = [torch.zeros_like(expected), found]
    if expected.isfinite().all():  # else the mean is no number
        nulls.append(torch.full_like(expected, float(expected.double().mean())))
    assert null_from([Output(form, 0, expected)], [found]) == min(level(expected, null, name) for null in nulls)
