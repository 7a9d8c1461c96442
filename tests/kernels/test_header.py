"""passbench.h against float64 and torch, with each of its three instruction sets."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest
import torch

from pytest_passbench.core.criterion import MAX_MEAN_RATIO
from pytest_passbench.fusion import kernel
from pytest_passbench.kernels import cpp

LANES = {"AVX512": 16, "AVX2": 8}.get(torch.backends.cpu.get_cpu_capability(), 4)
FUNCTIONS = ("exp", "expm1", "log", "log1p", "tanh", "erf", "sigmoid", "sqrt", "sin", "cos")
GATES = ("gelu", "gelu_tanh", "silu", "softplus", "relu")
MACHINES = [(), ("-mno-avx512f",), ("-march=x86-64",)] if platform.machine() == "x86_64" else [()]
SOURCE = '#include "passbench.h"\n' + "\n".join(
    f'extern "C" void k_{name}(const float* x, float* out, int64_t n) {{'
    f" pb::map(n, out, [](pb::vec a) {{ return pb::{name}(a); }}, x); }}"
    for name in FUNCTIONS + GATES
)
ROUND = """#include "passbench.h"
extern "C" void narrow(const float* x, pb::out out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) {
    decltype(t)* o = out;
    for (int64_t i = 0; i < n; i += pb::L) pb::store(o + i, pb::load(x + i));
  });
}
extern "C" void widen(pb::in x, float* out, int64_t n, pb::dtype dtype) {
  pb::dispatch(dtype, [&](auto t) {
    const decltype(t)* p = x;
    for (int64_t i = 0; i < n; i += pb::L) pb::store(out + i, pb::load(p + i));
  });
}
template <class T> double run(const T* x, const T* y, int64_t n) {
  return pb::sum(n, [](pb::vec a, pb::vec b) { return a * b + 1; }, x, y);
}
extern "C" double sum_of_products(pb::in x, pb::in y, int64_t n, pb::dtype dtype) {
  double out = 0;
  pb::dispatch(dtype, [&](auto t) { out = run<decltype(t)>(x, y, n); });
  return out;
}
extern "C" float sum_as_torch(const float* x, int64_t n) { return pb::sum_as_torch(n, x); }
extern "C" int lanes() { return pb::L; }
extern "C" float greatest(const float* x, int64_t n) {
  return pb::greatest(n, [](pb::vec a) { return -a; }, x);
}
"""


@pytest.fixture(scope="module", params=MACHINES, ids=" ".join)
def flags(request: pytest.FixtureRequest) -> tuple[str, ...]:
    return request.param


def _floats(step: int) -> torch.Tensor:
    """Return floats of every exponent and sign, with subnormals, infinities and NaN: a multiple of 16 of them."""
    bits = torch.arange(-(2**31), 2**31 - 16 * step, step, dtype=torch.int64).to(torch.int32)
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 0.5])
    return torch.cat([special, bits.view(torch.float32)])[: (len(bits) // 16) * 16]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_within_four_units_in_the_last_place(name: str, flags: tuple[str, ...]) -> None:
    x = _floats(19997)
    out = torch.empty_like(x)
    getattr(cpp.load(SOURCE, flags=flags), f"k_{name}")(x, out, x.numel())
    exact = getattr(torch, name)(x.double())
    nearest = exact.float()
    assert torch.equal(out.isnan(), nearest.isnan())
    assert torch.equal(out[out.isinf()], nearest[out.isinf()])
    normal = nearest.isfinite() & (nearest.abs() >= 2.0**-126)
    unit = torch.exp2(torch.floor(torch.log2(exact[normal].abs())) - 23)
    assert ((out.double() - exact)[normal].abs() / unit).max() <= 4
    assert ((out - nearest)[nearest.abs() < 2.0**-126].abs() <= 2.0**-126).all()


@pytest.mark.parametrize("name", GATES)
def test_gates_agree_with_torch_at_the_default_tolerance(name: str, flags: tuple[str, ...]) -> None:
    x = torch.linspace(-30, 30, 100_001)
    out = torch.empty_like(x)
    getattr(cpp.load(SOURCE, flags=flags), f"k_{name}")(x, out, x.numel())
    torch_name, options = (name[:4], {"approximate": "tanh"}) if name == "gelu_tanh" else (name, {})
    eager = getattr(torch.nn.functional, torch_name)(x, **options)
    torch.testing.assert_close(out, eager, rtol=1.3e-6, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 0.05, 0.2, 0.5, 1, 4])
def test_gelu_is_as_accurate_as_eagers_on_average(scale: float, flags: tuple[str, ...]) -> None:
    """Small results matter, too: the second criterion compares the mean error with eager's."""
    x = torch.randn(1 << 16, generator=torch.Generator().manual_seed(0)) * scale
    out = torch.empty_like(x)
    cpp.load(SOURCE, flags=flags).k_gelu(x, out, x.numel())
    exact = torch.nn.functional.gelu(x.double())
    eager = torch.nn.functional.gelu(x)
    assert (out.double() - exact).abs().mean() <= MAX_MEAN_RATIO * (eager.double() - exact).abs().mean()


AVX2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="eager's kernels were compared on AVX2 alone"
)


@AVX2
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [torch.nn.functional.gelu, torch.nn.functional.silu, torch.exp, torch.tanh])
def test_functions_of_all_halves_have_eagers_bits(dtype: torch.dtype, function: Callable[..., torch.Tensor]) -> None:
    x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    torch.testing.assert_close(kernel(function, [x])(x), function(x), rtol=0, atol=0, equal_nan=True)


def test_normal_exponentials_are_the_other_one_without_subnormal_results(flags: tuple[str, ...]) -> None:
    text = """
    #include "passbench.h"
    extern "C" void three(const float* x, float* all, float* normal, float* nonpositive, int64_t n) {
      pb::map(n, all, [](pb::vec a) { return pb::exp(a); }, x);
      pb::map(n, normal, [](pb::vec a) { return pb::exp_normal(a); }, x);
      pb::map(n, nonpositive, [](pb::vec a) { return pb::exp_nonpositive(a); }, x);
    }
    """
    nan, inf = float("nan"), float("inf")
    special = torch.tensor([nan, inf, -inf, 88.7, 88.8, -87.3, -87.4, -100.0, -104.1, 1e30, -1e30])
    x = torch.cat([torch.linspace(-110, 95, 9001), special])
    whole, normal, nonpositive = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
    cpp.load(text, flags=flags).three(x, whole, normal, nonpositive, x.numel())
    subnormal = (whole > 0) & (whole < torch.finfo(torch.float32).tiny)
    assert subnormal.any()
    torch.testing.assert_close(normal, whole.masked_fill(subnormal, 0), rtol=0, atol=0, equal_nan=True)
    covered = ~(x > 0)
    torch.testing.assert_close(nonpositive[covered], normal[covered], rtol=1.3e-7, atol=0, equal_nan=True)


@AVX2
def test_an_exponential_differs_from_that_of_eagers_softmax_in_few_last_bits() -> None:
    rows = torch.full((1 << 16, 8), -torch.inf)
    rows[:, 0], rows[:, 1] = 0, -18 - 40 * torch.rand(1 << 16, generator=torch.Generator().manual_seed(0))
    fused, eager = (function(rows)[:, 1] for function in (kernel(torch.nn.Softmax(-1), [rows]), torch.nn.Softmax(-1)))
    assert (fused != eager).float().mean() < 0.004
    torch.testing.assert_close(fused, eager, rtol=1.3e-7, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_rounding_is_torchs_and_widening_is_exact(dtype: torch.dtype, flags: tuple[str, ...]) -> None:
    lib, x = cpp.load(ROUND, flags=flags), _floats(12007)
    out = torch.empty_like(x, dtype=dtype)
    lib.narrow(x, out, x.numel(), dtype)
    eager = x.to(dtype)
    assert torch.equal(out.isnan(), x.isnan())
    tiny = x.abs() < 2.0**-126  # AVX512_BF16 makes zeros of these
    assert (out[tiny].float() - eager[tiny].float()).abs().max() <= 2.0**-126
    sure = ~x.isnan() & ~tiny
    assert torch.equal(out[sure].view(torch.int16), eager[sure].view(torch.int16))
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)
    wide = torch.empty(65536)
    lib.widen(every, wide, 65536, dtype)
    torch.testing.assert_close(wide, every.float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [0, 1, 15, 16, 33, 100])
def test_a_sum_counts_every_element_once(n: int, dtype: torch.dtype, flags: tuple[str, ...]) -> None:
    x, y = torch.randn(n).to(dtype), torch.randn(n).to(dtype)
    got = cpp.load(ROUND, flags=flags).sum_of_products(x, y, n, dtype)
    assert got == pytest.approx((x.double() * y.double() + 1).sum().item(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("n", [1, 7, 16, 33, 100])
def test_the_greatest_looks_at_every_element(n: int, flags: tuple[str, ...]) -> None:
    for place in (0, n // 2, n - 1):
        x = torch.rand(n) + 1
        x[place] = 0.5
        assert cpp.load(ROUND, flags=flags).greatest(x, n) == -0.5


@pytest.mark.parametrize("n", [8, 9, 40, 512, 600, 896, 4099, 8192])
def test_a_sum_as_torchs_has_its_very_bits(n: int, flags: tuple[str, ...]) -> None:
    x = torch.rand(3, n)
    assert cpp.load(ROUND, flags=flags).sum_as_torch(x, n) == x.sum(-1)[0].item()


def test_a_register_has_the_documented_number_of_lanes(flags: tuple[str, ...]) -> None:
    assert cpp.load(ROUND, flags=flags).lanes() == (8 if "-mno-avx512f" in flags else 4 if flags else LANES)


def test_a_dtype_that_the_header_does_not_know_is_named() -> None:
    x = torch.randn(16)
    with pytest.raises(Exception, match=r"torch\.float64 is not one of torch\.float32"):
        cpp.load(ROUND).widen(x, x, 16, torch.float64)
