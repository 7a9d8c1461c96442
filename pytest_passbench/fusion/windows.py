"""Rules of pools: sums and greatest values over windows of an image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from pytest_passbench.fusion.ir import Affine, Call, Expression, Index, Kind, Loops, Value
from pytest_passbench.fusion.lower import Lowering, rule


def numbers(item: Any, rank: int, default: Any = None) -> list[int]:
    """Return a parameter of a window for each of its dimensions."""
    items = list(item) if isinstance(item, (list, tuple)) else [item]
    if not items:
        return numbers(default, rank)
    return items * rank if len(items) == 1 else items


def _rank(call: Call) -> int:
    return int(call.name.partition("pool")[2][0])


def over_window(call: Call, window: Iterable[int]) -> Loops:
    """Return loops over a call's result, and loops over a window of these sizes, which are reduced."""
    rank, sizes = len(call.results[0].sizes), (*call.results[0].sizes, *window)
    places = tuple((d if d < rank else None, 1) for d in range(len(sizes)))
    return Loops(sizes, frozenset(range(rank, len(sizes))), places)


def windows(call: Call) -> Loops:
    """Return the loops of a pool whose windows have one size."""
    return over_window(call, numbers(call.arguments["kernel_size"], _rank(call)))


POOLS = ("avg_pool2d", "avg_pool3d", "max_pool2d_with_indices", "max_pool3d_with_indices")


@rule(*POOLS, loops=windows)
def _pool(lowering: Lowering, call: Call, _index: Index) -> Expression:
    a, rank = call.arguments, _rank(call)
    kernel = numbers(a["kernel_size"], rank)
    stride, dilation = numbers(a["stride"], rank, kernel), numbers(a.get("dilation", 1), rank)
    x = _read(lowering, a["self"], kernel, stride, dilation)
    if call.name.startswith("max"):
        return lowering.reduce("greatest", x)
    return lowering.apply("{0} / {1}", lowering.reduce("sum", x), _divisor(lowering, call))


def _read(
    lowering: Lowering, image: Value, kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Expression:
    """Return an element of a window of an image. The windows have one size."""
    at = list(lowering.home)
    for axis in range(-len(kernel), 0):
        steps = [step * stride[axis] for step in at[axis].steps]
        steps[axis] = dilation[axis] * (kernel[axis] > 1)
        at[axis] = Affine(0, tuple(steps))
    return lowering.read(image, tuple(at))


def _divisor(lowering: Lowering, call: Call) -> Expression:
    """Return the divisor of a mean: the number of places of a window that count."""
    a, rank = call.arguments, _rank(call)
    kernel, extent = numbers(a["kernel_size"], rank), a.get("extent")
    if a["divisor_override"] or not extent:  # without a margin
        return lowering.size(a["divisor_override"] or math.prod(kernel))
    stride, padding, counts = numbers(a["stride"], rank, kernel), numbers(a["padding"], rank), []
    for axis in range(rank):
        home, size = lowering.home[axis - rank], extent[axis]
        low, high = (-padding[axis], size + padding[axis]) if a["count_include_pad"] else (0, size)
        first = Affine(-padding[axis], tuple(step * stride[axis] for step in home.steps))
        start, last = lowering.count(first), lowering.count(Affine(first.offset + kernel[axis], first.steps))
        text = "lesser({0}, {2}) - greater({1}, {3})"
        counts.append(
            lowering.apply(text, last, start, lowering.integer(high), lowering.integer(low), kind=Kind.WHOLE)
        )
    return lowering.real(lowering.apply(" * ".join(f"({{{i}}})" for i in range(rank)), *counts, kind=Kind.WHOLE))


def adaptive(call: Call) -> Loops:
    """Return the loops of an adaptive pool: each window is as long as the longest."""

    def longest(size: int, count: int) -> int:
        return max(-(-(place + 1) * size // count) - place * size // count for place in range(count))

    rank = _rank(call)
    return over_window(call, map(longest, call.arguments["self"].sizes[-rank:], call.results[0].sizes[-rank:]))


@rule("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_max_pool2d", "adaptive_max_pool3d", loops=adaptive)
def _adaptive_pool(lowering: Lowering, call: Call, _index: Index) -> Expression:
    value, rank, loops = call.arguments["self"], _rank(call), len(lowering.loops.sizes)
    parts = [divmod(size, new) for size, new in zip(value.sizes[-rank:], call.results[0].sizes[-rank:], strict=True)]
    if all(rest == 0 for _size, rest in parts):  # and no window overlaps another
        kernel = [size for size, _rest in parts]
        x = _read(lowering, value, kernel, kernel, [1] * rank)
        if "max" in call.name:
            return lowering.reduce("greatest", x)
        return lowering.apply("{0} / {1}", lowering.reduce("sum", x), lowering.size(math.prod(kernel)))
    lookups, inside, count = [], lowering.truth(True), lowering.number(1)
    for axis in range(-rank, 0):
        size, new = value.sizes[axis], call.results[0].sizes[axis]
        place, step = lowering.count(lowering.home[axis]), tuple(int(d == loops + axis) for d in range(loops))
        ends = lowering.integer(size), lowering.integer(new)
        first = lowering.apply("{0} * {1} / {2}", place, *ends, kind=Kind.WHOLE)
        last = lowering.apply("(({0} + 1) * {1} + {2} - 1) / {2}", place, *ends, kind=Kind.WHOLE)
        at = lowering.apply("{0} + {1}", first, lowering.count(Affine(0, step)), kind=Kind.WHOLE)
        within = lowering.compare("<", at, last)
        inside = lowering.apply("({0} & {1})", inside, within, kind=Kind.MASK)
        length = lowering.real(lowering.apply("{0} - {1}", last, first, kind=Kind.WHOLE))
        count = lowering.apply("{0} * {1}", count, length)
        bound = lowering.apply("lesser({0}, {1} - 1)", at, last, kind=Kind.WHOLE)
        lookups.append((bound, value.strides[axis]))
    outside = len(value.sizes) - rank
    start = (*lowering.home[:outside], *[lowering.zero] * rank)
    x = lowering.read(value, start, tuple(lookups))
    if "max" in call.name:
        return lowering.reduce("greatest", x)
    total = lowering.reduce("sum", lowering.choose(inside, x, lowering.number(0)))
    return lowering.apply("{0} / {1}", total, count)


def padded(call: Call, image: torch.Tensor, result: torch.Tensor) -> torch.Tensor | None:
    """Return an image with the margin that a pool's windows reach into, or None if they reach into none.

    The image's size without the margin is noted in ``call`` as ``extent``.
    """
    a, rank, pads = call.arguments, _rank(call), list[int]()
    kernel, padding = numbers(a["kernel_size"], rank), numbers(a["padding"], rank)
    stride, dilation = numbers(a["stride"], rank, kernel), numbers(a.get("dilation", 1), rank)
    for axis in reversed(range(rank)):
        reach = (result.shape[axis - rank] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        pads += [padding[axis], max(reach - image.shape[axis - rank] - padding[axis], 0)]
    if not any(pads):
        return None
    a["extent"] = tuple(image.shape[-rank:])
    fill = -math.inf if call.name.startswith("max") else 0.0
    return torch.ops.aten.constant_pad_nd(image, pads, fill)
