"""Rules of the generator against eager: equal bits if the rounding is defined, else agreement at t = -5."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from pytest_passbench.core.ladder import T_STRICT, tolerances
from pytest_passbench.first_pass.parts import IN_ORDER
from pytest_passbench.fusion import Unsupported, kernel
from pytest_passbench.fusion.columns import Size, columns, joined
from pytest_passbench.fusion.trace import trace
from pytest_passbench.suite import find
from pytest_passbench.suite.build import build_graph

AVX2 = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="eager was compared on AVX2 alone"
)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OTHER = {torch.float32: torch.bfloat16, torch.bfloat16: torch.float32, torch.float16: torch.float32}
EXACT: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / y, 1.7 - x, x + 0.1234567, x * 0.7654321, x / 3, 0.3 / x),
    "signs and bounds": lambda x, y: (x.relu(), -x, x.abs(), x.clamp(-0.3, 0.7), x.clamp(min=y), F.relu6(x * 5)),
    "extremes": lambda x, y: (torch.maximum(x, y), torch.minimum(x, y), F.leaky_relu(x, 0.1), F.hardtanh(x)),
    "powers": lambda x, y: (y.float().abs().rsqrt(), x**2, x**3, x.reciprocal()),
    "comparisons": lambda x, y: (x > y, x <= 0.1234567, (x == y) | ~(x < y), (x != y) & (x >= y)),
    "choices": lambda x, y: (torch.where(x > y, x, y), torch.where(x > 0, x, 0.1), x.masked_fill(y > 0.5, -1e4)),
    "casts": lambda x, y: (x.to(OTHER[x.dtype]), x + y.to(OTHER[y.dtype]), (x > y).to(x.dtype), x.half().float()),
    "multiples": lambda x, y: (torch.add(x.float(), y.float(), alpha=0.3), x.float().sub(y.float(), alpha=2)),
    "in place": lambda x, y: (x * 2).add_(y).relu_().mul_(0.5),
    "copies and constants": lambda x, y: (x.clone(), torch.full_like(x, 0.1) + y, torch.ones_like(x)),
    "greatest": lambda x, y: (x.amax(-1), x.amin(0, keepdim=True), x.max(), x.min(), (x > y).any(-1), (x < 1).all()),
    "greatest places": lambda x, y: (x.argmax(-1), (x + y).argmin(0, keepdim=True), (x > 1).int().argmax(0)),
    "joins": lambda x, y: (torch.cat([x, x * 2], -1), torch.stack([x, -x], 1), (x + y).repeat(2, *[1] * x.dim())),
    "elements of joins": lambda x, y: (
        torch.cat([-x, x * y], -1) + 1,
        torch.cat([x, x + y, y.float() + x], 0).relu(),
        torch.cat([x, x + 1], -1).chunk(2, -1)[1] * 3,
    ),
    "moves": lambda x, y: (F.pad(x * 2, (1, 2), value=0.1234567), x.roll(1, 0), (x + y).flip(-1), x.flip(0).relu()),
    "places": lambda x, y: (
        torch.arange(x.shape[-1]) * 2 + x,
        x[None].tril(),
        (x[None] * 2).triu(1),
        torch.eye(5, 3),
    ),
    "integers": lambda x, y: integers((x.float() * 9).int().long(), (y.float() * 5).int().long()),
    "variance": lambda x, y: (x.var(-1, correction=0), x.var(0, correction=0), (x + 1).std(0, correction=0)),
    "doubles": lambda x, y: doubles(x.double() / 3, y),
    "narrow integers": lambda x, y: ((x.float() * 9).to(torch.int8) * 50, (x > y).sum(-1), (x > 0) & (y > 0)),
    "chosen rows": lambda x, y: chosen(x, (y.float() * 50).long().abs() % x.shape[0]),
    "scattered": lambda x, y: scattered(x, (y.float() * 50).long().abs().expand_as(x)),
}


def integers(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return results of arithmetic on whole numbers."""
    return (
        a + b,
        a * 3 - b,
        a % 4,
        a % (b.abs() + 1),
        a > b,
        a == 2,
        (a != b) & (a < 2) | (a <= b) & (b >= a),
        torch.where(a > b, a, 7),
        a.bool(),
        a.clamp(-2, 3),
        a.to(torch.uint8),
    )


def doubles(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return results of arithmetic on doubles, with a tensor of another dtype."""
    return (
        a + b,
        a * 0.1 - 1,
        b / (a.abs() + 0.3),
        -a,
        torch.outer(a.reshape(-1)[:3], b.reshape(-1)[:2].double()),
        a.clamp(-0.3, 0.7),
        torch.maximum(a, b.double()),
        a > b,
        a == 0.1,
        torch.where(a > 0.2, a, 0.1),
        a.masked_fill(b > 0, math.inf),
        torch.zeros_like(a),
        a.float(),
        a.half() + 1,
        a.to(torch.bfloat16),
        (a * 9).int(),
        a.bool(),
        (b > 0).double() + a,
        torch.cat([a, a * 2], -1),
        a.flip(0).contiguous(),
    )


def chosen(x: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return elements that an index selects along the first dimension, by each operator that does so."""
    flat = index.reshape(-1)
    rows = x.reshape(x.shape[0], -1)
    places = index.expand_as(x)
    return x.index_select(0, flat) * 2, F.embedding(index, rows), x[index], x[-1 - flat], x.gather(0, places)


def scattered(x: torch.Tensor, numbers: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return tensors into which a number, or another tensor's elements, are written, by an index with repeats."""
    x, numbers = x[..., :8], numbers[..., :8]
    places = numbers % max(x.shape[-1], 1)
    return (
        (x * 2).scatter(-1, places, 0.1234567),
        x.mT.scatter(-2, places.mT, x.mT + 1) if x.dim() > 1 else x.scatter(0, places, x + 1),
        (x > 0).scatter(-1, places[..., :2], False),
        F.one_hot(numbers % 7, 7) if numbers.numel() else numbers + 1,
    )


def functions_of_doubles(a: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return functions of each double."""
    b = a.abs() + 0.1
    return a.sin(), a.cos(), (a * 1e6).sin(), (a * 1e12).cos(), b.sqrt(), b.rsqrt(), b.reciprocal()


NEAR: dict[str, Callable[..., Any]] = {
    "functions": lambda x, y: (x.exp(), (x.abs() + 2).log(), x.tanh(), x.sigmoid(), F.silu(x), x.erf(), x.expm1()),
    "activations": lambda x, y: (F.gelu(x), F.gelu(x, approximate="tanh"), F.softplus(x), F.hardswish(x)),
    "roots": lambda x, y: (x.abs().sqrt(), (x + y).abs().sqrt() / 3),
    "sums": lambda x, y: (x.abs().sum(-1), x.abs().mean(0), x.abs().sum(), x.abs()[None].mean((0, -1), keepdim=True)),
    "softmax": lambda x, y: (x.softmax(-1), x.softmax(0)),
    "waves": lambda x, y: (x.sin(), (x * 3).cos(), F.elu(x), F.logsigmoid(x.float()), F.mse_loss(x, x * 2)),
    "blends": lambda x, y: (
        torch.lerp(x, x * 2, 0.3),
        torch.addcmul(x, x, x, value=0.5),
        F.glu(torch.cat([x, x]), 0),
    ),
    "lengths": lambda x, y: (x.float().norm(dim=-1), F.normalize(x.float(), dim=0), x.log_softmax(-1)),
    "functions of doubles": lambda x, y: functions_of_doubles(x.double() / 3),
    "sums so far": lambda x, y: (x.abs().cumsum(-1), (x.float() * 2).cumsum(0) + 1, (x > y).cumsum(0)),
}
IMAGES: dict[str, Callable[..., Any]] = {
    "greatest of windows": lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 2, dilation=2)),
    "means of windows": lambda x: (
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x * 2, 3, 2, 1),
        F.avg_pool2d(x, 3, 1, 1, False, False),
    ),
    "windows over the end": lambda x: (F.avg_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "windows along a row": lambda x: (F.avg_pool1d(x[0], 3, 1, 1), F.adaptive_avg_pool1d(x[0], 4)),
    "adaptive windows": lambda x: (
        F.adaptive_avg_pool2d(x, (3, 4)),
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_max_pool2d(x, 5),
    ),
    "adaptive windows of one size": lambda x: (
        F.adaptive_avg_pool2d(x[..., :6, :6] * 2, (2, 3)),
        F.adaptive_max_pool2d(x[..., :6, :6] * 2, 3),
    ),
    "larger": lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x.float(), scale_factor=2, mode="bilinear")),
    "another size": lambda x: F.interpolate(x.float(), size=(5, 20), mode="bilinear", align_corners=True),
    "shuffled": lambda x: (F.pixel_shuffle(x + 1, 2), F.pixel_unshuffle(x[..., :6, :6] * 2, 3)),
    "columns": lambda x: F.unfold(x * 2, 3, stride=2),
    "columns put back": lambda x: (
        F.fold(F.unfold(x[..., :6], 2, stride=2) + 1, (7, 6), 2, stride=2),
        F.fold(x.flatten(2), (20, 27), (2, 1), stride=(3, 3)),
    ),
    "norms of groups": lambda x: (
        F.group_norm(x.float(), 2),
        F.instance_norm(x.float()),
        F.silu(F.group_norm(x.float(), 4)),
    ),
    "weights": lambda x: (
        torch._weight_norm(x[0].float(), x[0, :, :1, :1].float()),
        F.prelu(x, x[0, :, 0, 0].clone()),
    ),
}
EXAMPLES = [1, pytest.param(12, marks=pytest.mark.slow)]


@st.composite
def operands(draw: st.DrawFn, smallest: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a tensor with strides of many kinds, and a tensor that can be broadcast to it."""
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 5, 19, 40]), min_size=1, max_size=3)))
    if not smallest and draw(st.booleans()):
        sizes = (*sizes[:-1], draw(st.sampled_from([0, 1, 33])))
    dtype, order = draw(st.sampled_from(DTYPES)), draw(st.permutations(range(len(sizes))))
    draws = torch.Generator().manual_seed(draw(st.integers(0, 1000)))
    x = torch.randn([sizes[d] * 2 for d in order], generator=draws)[tuple(slice(sizes[d]) for d in order)]
    x = x.to(dtype).permute([order.index(d) for d in range(len(sizes))])
    y = torch.randn([1 if draw(st.booleans()) else size for size in sizes], generator=draws).to(dtype)
    return (x.contiguous() if draw(st.booleans()) else x), y


def strides(x: torch.Tensor) -> list[int]:
    """Return the strides that matter: those of dimensions with several elements."""
    return [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1 and x.numel()]


def assert_equal(function: Callable[..., Any], inputs: Any, exact: bool) -> None:
    """Raise AssertionError unless a kernel's results are eager's, bit for bit (``exact``) or at t = -5."""
    ours, eager = kernel(function, inputs)(*inputs), function(*inputs)
    if isinstance(eager, torch.Tensor):
        ours, eager = (ours,), (eager,)
    for place, (mine, wanted) in enumerate(zip(ours, eager, strict=True)):
        message = f"result {place} of {[(x.dtype, x.shape, x.stride()) for x in inputs]}"
        assert (mine.shape, strides(mine), mine.dtype) == (wanted.shape, strides(wanted), wanted.dtype), message
        rtol, atol = (0.0, 0.0) if exact else tolerances(str(wanted.dtype).removeprefix("torch."), T_STRICT)
        assert torch.allclose(mine, wanted, rtol, atol, equal_nan=True), message


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_variance_in_doubles_is_that_of_numbers_of_any_kind(dtype: torch.dtype, dim: int) -> None:
    x = (torch.randn(19, 37, generator=torch.Generator().manual_seed(1)) * 50).to(dtype)
    assert_equal(lambda x: (x.double().var(dim), x.double().std(dim, correction=0)), [x], exact=False)


@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize("name", [*EXACT, *NEAR])
def test_a_rule_answers_as_eager(name: str, examples: int) -> None:
    exact = name in EXACT
    smallest = int(name.startswith(("greatest", "variance")) or not exact)  # of no element eager has none, or warns

    @settings(max_examples=examples, derandomize=True)
    @given(operands(smallest))
    def check(inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
        assert_equal({**EXACT, **NEAR}[name], inputs, exact)

    check()


@pytest.mark.parametrize(
    "dtype", [DTYPES[1], *(pytest.param(x, marks=pytest.mark.slow) for x in DTYPES[::2])], ids=str
)
@pytest.mark.parametrize("name", IMAGES)
def test_a_rule_for_images_answers_as_eager(name: str, dtype: torch.dtype) -> None:
    image = torch.randn(3, 8, 7, 9, generator=torch.Generator().manual_seed(1)).to(dtype)
    formats = [torch.contiguous_format, *([torch.channels_last] if name != "norms of groups" else [])]
    for memory_format in formats:
        assert_equal(IMAGES[name], [image.to(memory_format=memory_format)], exact=False)


def test_a_rotary_embedding_is_one_nest_without_memory_in_between() -> None:
    def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + torch.cat([-x[..., 20:], x[..., :20]], -1) * sin

    draws = torch.Generator().manual_seed(1)
    inputs = [torch.randn(sizes, generator=draws) for sizes in ((2, 3, 5, 40), (2, 1, 5, 40), (2, 1, 5, 40))]
    assert_equal(rotated, inputs, exact=True)
    fused = kernel(rotated, inputs)
    assert len(fused.arguments) == len([*inputs, "result"])
    assert fused.source.count("auto step") == 1


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int32], ids=str)
@pytest.mark.parametrize("sizes", [(16, 8), (17, 9), (3, 31), (40, 7), (2, 33, 47), (9, 1, 64)], ids=str)
def test_what_lies_across_the_registers_is_read_and_written(sizes: tuple[int, ...], dtype: torch.dtype) -> None:
    """Tiles have whole and partial registers at both ends. A flip gives them steps below zero."""

    def crossed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        z = y.transpose(0, -1)
        return x + z, x * z.flip(0), x * z.flip(-1), (x - z).transpose(0, -1).contiguous()

    draws = torch.Generator().manual_seed(1)
    x = (torch.randn(sizes, generator=draws) * 9).to(dtype)
    y = (torch.randn(sizes, generator=draws) * 9).to(dtype).transpose(0, -1).contiguous()
    assert_equal(crossed, [x, y], exact=True)
    body = kernel(crossed, [x, y]).source.partition('extern "C"')[2]
    assert ("get_transposed(" in body) == (dtype != torch.int32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_norm_along_a_dimension_that_lies_apart(dtype: torch.dtype) -> None:
    def normed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        channels_last = x.permute(0, 2, 3, 1)
        inside = F.layer_norm(channels_last, (x.shape[1],), w, w)
        return inside.permute(0, 3, 1, 2), inside.softmax(-1), (channels_last.contiguous() * 2).mean(-1)

    draws = torch.Generator().manual_seed(1)
    for sizes in ((2, 40, 3, 7), (1, 33, 5, 9), (1, 5, 4, 4)):
        inputs = [torch.randn(sizes, generator=draws).to(dtype), torch.randn(sizes[1], generator=draws).to(dtype)]
        assert_equal(normed, inputs, exact=False)
    source = kernel(lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (40,)), [torch.randn(2, 40, 3, 7).to(dtype)]).source
    assert "put_transposed(" in source.partition('extern "C"')[2]


SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "_weight_norm": lambda x: torch._weight_norm(x, x[:, :1].abs(), 0),
}


@pytest.mark.parametrize("size", [7, 96, 600])
@pytest.mark.parametrize("name", sorted(IN_ORDER))
def test_a_norm_that_adds_in_the_order_of_eager_has_the_bits_of_eager(name: str, size: int) -> None:
    x = torch.randn(200, size, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert_equal(SUMS[name], [x], exact=True)


@AVX2
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [5, 20, 50, 197, 256, 577])
def test_a_softmax_has_the_bits_of_eager_but_for_rare_exponentials(width: int, dtype: torch.dtype) -> None:
    """A last bit of float32 shows in half precision if a product of halves follows."""
    x = (torch.randn(4096, width, generator=torch.Generator().manual_seed(0)) * 2).to(dtype)
    fused, eager = kernel(torch.nn.Softmax(-1), [x])(x), x.softmax(-1)
    limits = {torch.float32: 5e-3, torch.float16: 1e-4, torch.bfloat16: 1e-4 / 8}
    assert (fused != eager).float().mean() < limits[dtype]


HALF_NORMS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "layer_norm": lambda x, w: F.layer_norm(x + 1, (x.shape[-1],), w, w * 0.1),
    "layer_norm across": lambda x, w: F.layer_norm(x.mT.contiguous().mT, (x.shape[-1],), w, w * 0.1, 1e-6),
    "group_norm": lambda x, w: F.group_norm(x.view(2, 6, -1), 2, x[0, :6, 0].abs(), None, 1e-6).relu(),
    "group_norm without weights": lambda x, w: F.group_norm(x.view(2, 6, -1), 2, None, None, 1e-6).relu(),
}


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("name", HALF_NORMS)
def test_a_norm_of_halves_has_the_bits_of_eager(name: str, dtype: torch.dtype) -> None:
    """Rows end within, before and after a step of 16 values, and before and after some blocks of 256."""
    for size in (3, 16, 33, 90, 256, 700, 1100):
        draws = torch.Generator().manual_seed(size)
        x, w = (torch.randn(*sizes, generator=draws).to(dtype) for sizes in ((2, 30, size), (size,)))
        assert_equal(HALF_NORMS[name], [x * 1.3 + 0.2, w], exact=True)


@AVX2
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("size", [3, 90, 700, 1100])
def test_a_batch_norm_of_this_batch_has_the_bits_of_eager(size: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, 30, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    assert_equal(lambda x: F.batch_norm(x, None, None, x[0, :, 0].abs(), training=True), [x], exact=True)


@AVX2
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_norm_of_elements_that_lie_apart_has_the_bits_of_eager(dtype: torch.dtype) -> None:
    x = torch.randn(9, 60, 400, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert_equal(lambda x: (x.norm(dim=0), x.norm(dim=1), x.norm(dim=(0, 1))), [x], exact=True)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_the_moments_of_halves_have_the_bits_of_eager(dtype: torch.dtype) -> None:
    """All rows have the same values in another order. What is left behind the bias shows bits that rounding hides."""
    draws = torch.Generator().manual_seed(0)
    row = torch.randn(384, generator=draws) * 2 + 2
    order = torch.rand(4000, 352, generator=draws).argsort(-1)
    x = torch.cat([row[:32].expand(4000, 32), row[32:][order]], -1).to(dtype)
    bias = -F.layer_norm(x[0], (384,))
    assert_equal(lambda x, w, b: F.layer_norm(x, (384,), w, b), [x, torch.ones_like(bias), bias], exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_histogram_counts_as_eager(dtype: torch.dtype) -> None:
    x = torch.randn(5, 51, generator=torch.Generator().manual_seed(1)).to(dtype) * 3
    x[0, :9] = torch.tensor([0, 7, 1, 3.5, math.nan, math.inf, -math.inf, -0.0, 8])
    assert_equal(lambda x: (x.histc(8, 0, 7), (x + 1).histc(5, -3, 2.3), x[0, 0].histc(3, -1, 1)), [x], exact=True)


@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
def test_what_a_row_of_halves_has_beyond_whole_steps_is_added_as_eager_does(dtype: torch.dtype) -> None:
    x = torch.randn(120_000, 24, generator=torch.Generator().manual_seed(1)).to(dtype)
    assert_equal(lambda x: F.layer_norm(x, (24,), x[0].abs(), x[1]), [x], exact=True)


def test_a_length_in_float16_adds_squares_one_by_one() -> None:
    x = torch.randn(3000, 40, generator=torch.Generator().manual_seed(1)).half()
    assert_equal(lambda x: torch.linalg.vector_norm(x, dim=-1), [x], exact=True)
    assert_equal(lambda x: torch.linalg.vector_norm(x), [x[:9]], exact=True)


def test_a_place_beyond_what_floats_count() -> None:
    x = torch.zeros(1 << 24 | 2, dtype=torch.bfloat16)
    x[-1] = 1  # its index is odd: a float32 would round it
    assert_equal(lambda x: x.argmax(0), [x], exact=True)


def test_a_triangle_beyond_what_floats_count() -> None:
    x, apart = torch.ones(1, 1 << 24 | 1, dtype=torch.bool), 1 << 22
    assert_equal(lambda x: x.triu(1 << 24 | 1)[:, ::apart].float(), [x], exact=True)  # a float32 has no 1 << 24 | 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_norms_and_views_are_near_those_of_eager(dtype: torch.dtype) -> None:
    def chain(x: torch.Tensor, w: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normed = F.layer_norm(x, (33,), w, w)
        moved = (x + 1).view(3, 12, 11, 3).permute(0, 2, 1, 3).reshape(3, 11, 36).chunk(2, dim=-1)[1]
        return normed, F.batch_norm(x, c, c, c, w[:12]), F.rms_norm(x, (33,), w), moved * 2, x.transpose(0, 1).exp()

    draws = torch.Generator().manual_seed(1)
    assert_equal(chain, [torch.rand(n, generator=draws).to(dtype) for n in ((3, 12, 33), (33,), (12,))], exact=False)


@pytest.mark.parametrize("size", [5, 33, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_is_added_in_the_order_of_eager(size: int, dtype: torch.dtype) -> None:
    x = torch.randn(7, size, generator=torch.Generator().manual_seed(size)).to(dtype)
    assert_equal(lambda x: (x.pow(2).mean(-1, keepdim=True), (x * 3).sum(-1)), [x], exact=True)


def test_nan_and_infinity_come_through() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -1.0, 2.0]).repeat(5)
    assert_equal(lambda x: (x.relu(), x.clamp(-1, 1), torch.maximum(x, -x), x.amax(), x > 0), [x], exact=True)


def test_extremes_of_doubles_beyond_whole_numbers() -> None:
    def extremes(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax(-1), x.amin(-1), x.max(), x.min(), x.argmax(-1), x.argmin(-1)

    rows = torch.tensor([-1e20, -1e300, -math.inf, 1e20, math.inf], dtype=torch.float64)
    assert_equal(extremes, [rows[:, None].repeat(1, 19)], exact=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_whole_numbers_are_rounded_where_eager_rounds_them(dtype: torch.dtype) -> None:
    def mixed(x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, ...]:
        cast = n.to(x.dtype) - 256
        return cast, torch.maximum(x, n), x * n, x / n[0], n[0] - x, x.clamp(min=n), x == n, n > x, n > 256.5

    n = torch.tensor([257, 259, 300, 2049, 2051, 4097, -3])
    assert_equal(mixed, [torch.tensor([1.5, 260, 300, 2048, 2052, 4096, 0]).to(dtype), n], exact=True)


def test_a_remainder_of_a_row_that_fills_no_register() -> None:
    a, b = torch.arange(-10, 11), torch.arange(1, 22) * torch.tensor([1, -1, 2] * 7)
    assert_equal(torch.remainder, [a, b], exact=True)


def test_the_greater_of_two_bools_is_true() -> None:
    a, b = torch.tensor([True, True, False, False]), torch.tensor([False, True, False, True])
    assert_equal(lambda a, b: (torch.maximum(a, b), torch.minimum(a, b)), [a, b], exact=True)


@pytest.mark.parametrize(
    ("function", "operator"),
    [
        (lambda x: x.cumprod(0), "cumprod"),
        (lambda x: x @ x, "mm"),
        (lambda x: x.add_(1), "add_ into an input"),
        (lambda x: (x * 2)[0].zero_(), "zero_"),
        (lambda x: x.double().sum(), "float64 in a computation of floats"),
        (lambda x: F.gelu(x.double()), "float64 in a computation of floats"),
        (lambda x: x.double().cumsum(0), "float64 in a computation of floats"),
        (lambda x: x.double().exp(), "exp of float64"),
        (lambda x: x.median(), "median"),
        (lambda x: x.new_zeros(9, 3).scatter(0, x.long(), 1), "a scatter to more than 8 places"),
        (lambda x: x.scatter(0, torch.eye(3, 2).long(), 1), "an index that is smaller than the tensor"),
        (lambda x: x.histc(99, 0, 1), "a histogram of more than 32 bins"),
        (lambda x: x.histc(3), "edges that are not stated"),
        (lambda x: x.new_ones(300).half().histc(3, 0, 1), "counts further than its dtype"),
        (lambda x: F.fold(x[None, :2], (1, 4), (1, 2)), "windows that overlap"),
        (lambda x: (x > 0).amax(0), "amax of bools"),
        (lambda x: F.batch_norm(x, x[0], x[1], training=True), "a batch norm that updates its statistics"),
        (lambda x: F.interpolate(x[None], scale_factor=2.3), "another factor than the sizes have"),
        (lambda x: x * x.sum().item(), "meta"),
    ],
)
def test_what_has_no_rule_is_unsupported(function: Callable[..., Any], operator: str) -> None:
    with pytest.raises(Unsupported, match=operator):
        kernel(function, [torch.ones(3, 3)])


def test_an_input_may_be_expanded_in_some_traces_and_not_in_others() -> None:
    inputs = [torch.ones(4, 1).expand(4, 5), torch.ones(4, 5)]
    (value,) = joined([trace(lambda x: x + 1, [each]) for each in inputs]).inputs
    assert [columns(step, 2) for step in value.strides] == [(1, 5), (0, 1)]


def test_a_size_that_differs_is_no_number() -> None:
    with pytest.raises(Unsupported, match="a size that differs"):
        float(Size([4, 6]))


def test_inputs_of_another_form_are_refused() -> None:
    double = kernel(lambda x: x * 2, [torch.ones(4)], name="twice")
    with pytest.raises(ValueError, match="twice is for input 0"):
        double(torch.ones(5))


def test_computations_that_differ_in_sizes_alone_share_a_source() -> None:
    def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (F.layer_norm(x + 1, (x.shape[-1],), w)).softmax(-1)

    inputs = [(torch.randn(sizes), torch.randn(sizes[-1])) for sizes in ((3, 40), (5, 33), (11, 64))]
    assert len({kernel(normed, each).source for each in inputs}) == 1
    for each in inputs:
        assert_equal(normed, each, exact=False)


LITE = [ref.id for ref in find.select(find.discover(find.installed_tasks()), "lite")]


@pytest.mark.parametrize("name", [LITE[0], *(pytest.param(name, marks=pytest.mark.slow) for name in LITE[1:])])
def test_a_lite_task_is_right_under_both_criteria(name: str) -> None:
    task = find.single(name).load()
    subgraph = min(task.subgraphs, key=lambda subgraph: subgraph.elements)
    graph, draws, inputs = build_graph(task.graphs[subgraph.graph], name), torch.Generator().manual_seed(2), []
    for spec in subgraph.inputs:
        values = torch.randn(spec.shape, generator=draws) * (spec.std or 1) + (spec.mean or 0)
        low, high = (math.inf * sign if end is None else end for sign, end in ((-1, spec.min), (1, spec.max)))
        inputs.append(values.clamp(low, high).to(getattr(torch, spec.dtype)))
    assert_equal(graph, inputs, exact=False)
    ours, eager, exact = kernel(graph, inputs)(*inputs), graph(*inputs), graph(*(x.double() for x in inputs))
    for mine, theirs, right in zip(ours, eager, exact, strict=True):
        bound = (theirs.double() - right).abs().max() * 4 + torch.finfo(theirs.dtype).eps * right.abs().max()
        assert (mine.double() - right).abs().max() <= bound


@pytest.mark.parametrize("rows", [1, 5, 16, 17, 255, 256, 4099])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_sum_over_an_outer_dimension_has_the_bits_of_torch(rows: int, dtype: torch.dtype) -> None:
    x = torch.randn(2, rows, 64, generator=torch.Generator().manual_seed(rows)).to(dtype)
    assert_equal(lambda x: (x.sum(1), x.mean(1), x - x.mean(1, keepdim=True)), (x,), exact=True)
