"""Products of matrices and convolutions of halves have the bits of eager's, where it has no instructions for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings

from pytest_passbench.fusion import Unsupported, kernel
from pytest_passbench.fusion.products import eager_is_slow

HALVES = (torch.bfloat16, torch.float16)


def drawn(*sizes: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed)).to(dtype)


def assert_right(function: Callable[..., Any], *inputs: torch.Tensor) -> None:
    """Compare with eager's bits, or with float64 on a machine on which eager may add in another order."""
    answer, expected = kernel(function, inputs)(*inputs), function(*inputs)
    assert answer.stride() == expected.stride()
    if eager_is_slow(inputs[0].dtype) and torch.backends.cpu.get_cpu_capability() == "AVX2":
        assert torch.equal(answer, expected)
    else:
        exact = function(*(value.double() for value in inputs))
        least = 2 * torch.finfo(answer.dtype).eps * exact.abs().mean()
        assert (answer - exact).abs().max() <= max(least, 1.01 * (expected - exact).abs().max())


def lying(matrix: torch.Tensor, how: str) -> torch.Tensor:
    """Return a matrix with the same elements whose memory lies otherwise: by columns, or in every second place."""
    if how == "by columns":
        return matrix.transpose(-1, -2).contiguous().transpose(-1, -2)
    return matrix.repeat_interleave(2, -1)[..., ::2] if how == "apart" else matrix


LAYOUTS = st.sampled_from(["by rows", "by columns", "apart"])


@settings(max_examples=40)
@given(
    st.sampled_from(HALVES), st.integers(9, 20), st.integers(9, 40), st.integers(9, 150), LAYOUTS, LAYOUTS,
    st.sampled_from(["mm", "addmm", "bmm", "baddbmm"]),
)  # fmt: skip
def test_products_of_matrices_have_eagers_bits(dtype, rows, columns, depth, left_layout, right_layout, name):
    batch = (3,) if "b" in name else ()
    left = lying(drawn(*batch, rows, depth, dtype=dtype), left_layout)
    right = lying(drawn(*batch, depth, columns, dtype=dtype, seed=1), right_layout)
    added = (drawn(columns, dtype=dtype, seed=2),) if name == "addmm" else ()
    added = (drawn(*batch, rows, columns, dtype=dtype, seed=2),) if name == "baddbmm" else added
    try:
        assert_right(getattr(torch, name), *added, left, right)
    except Unsupported as reason:
        assert "fast in eager" in str(reason)  # noqa: PT017
        assert rows < 9


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("function", "sizes"),
    [
        (F.linear, [(30, 64), (50, 64), (50,)]),
        (F.linear, [(2, 3, 5, 100), (50, 100)]),
        (lambda x, y: x.transpose(1, 2) @ y.transpose(1, 2).transpose(-1, -2), [(2, 20, 3, 16), (2, 20, 3, 16)]),
        (lambda x, y: torch.einsum("bqd,bkd->bqk", x, y), [(3, 20, 24), (3, 19, 24)]),
        (torch.baddbmm, [(3, 4, 9), (3, 4, 9), (3, 9, 9)]),
        (torch.baddbmm, [(3, 4, 9), (3, 4, 11), (3, 11, 9)]),
        (lambda x, y, z: torch.addmm(x, y.t(), z), [(31,), (50, 9), (50, 31)]),
        (lambda x, y, z: torch.relu(F.linear(x + 1, y, z)) * 2, [(9, 33), (40, 33), (40,)]),
        (lambda x, y, z: F.linear(F.gelu(F.linear(x, y)), z), [(12, 20), (80, 20), (20, 80)]),
    ],
)
def test_products_in_a_graph_have_eagers_bits(function, sizes, dtype):
    assert_right(function, *(drawn(*size, dtype=dtype, seed=seed) for seed, size in enumerate(sizes)))


@settings(max_examples=40)
@given(
    st.sampled_from(HALVES), st.integers(1, 3), st.lists(st.integers(9, 19), min_size=1, max_size=3),
    st.integers(1, 3), st.integers(1, 3), st.integers(0, 2), st.integers(1, 2),
    st.sampled_from([(1, 3, 5), (2, 2, 1), (4, 1, 1), (1, 8, 14)]), st.booleans(),
)  # fmt: skip
def test_convolutions_have_eagers_bits(dtype, count, size, kernel_size, stride, padding, dilation, counts, biased):
    groups, channels, results = counts
    if any(length + 2 * padding < dilation * (kernel_size - 1) + 1 for length in size):
        return
    image = drawn(count, groups * channels, *size, dtype=dtype)
    weight = drawn(groups * results, channels, *[kernel_size] * len(size), dtype=dtype, seed=1)
    bias = (drawn(groups * results, dtype=dtype, seed=2),) if biased else ()
    function = (F.conv1d, F.conv2d, F.conv3d)[len(size) - 1]

    def convolution(*inputs: torch.Tensor) -> torch.Tensor:
        arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
        return function(*inputs, **arguments)

    try:
        assert_right(convolution, image, weight, *bias)
    except Unsupported as reason:
        assert "columns" in str(reason)  # noqa: PT017
