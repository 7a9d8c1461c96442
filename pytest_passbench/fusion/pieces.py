"""Operators whose result is stored piece by piece: joins, margins, repetitions, rearranged images."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import partial

from pytest_passbench.fusion.elements import moved
from pytest_passbench.fusion.ir import Buffer, Call, Expression, Index, Unsupported, Value, kind_of
from pytest_passbench.fusion.lower import Lowering, Needed, rule
from pytest_passbench.fusion.windows import numbers


@dataclass(frozen=True)
class Piece:
    """A part of a buffer: where it lies, and what is stored there: a tensor's elements, or a number.

    Without a ``value``, the rule of the buffer's call gives the elements. ``of`` turns an index in the piece into one
    in the value, or in the buffer.
    """

    buffer: Buffer
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    value: Value | float | None = None
    of: Callable[[Index], Index] = tuple

    def element(self, lowering: Lowering, index: Index) -> Expression:
        """Return the element at an index of the piece."""
        if self.value is None:
            return lowering.element(self.buffer, self.of(index))
        x = lowering.operand(self.value, self.of(index), self.buffer.dtype)
        return lowering.rounded(lowering.cast(x, kind_of(self.buffer.dtype)), self.buffer.dtype)


def whole(buffer: Buffer) -> Piece:
    """Return all of a buffer, with the elements that its call's rule gives."""
    return Piece(buffer, buffer.sizes, buffer.strides, 0)


_Pieces = Callable[[Call, Buffer], Iterator[Piece]]
PIECES: dict[str, _Pieces] = {}
"""The pieces of a call's result, by the operator's name. They are stored in order."""


def to_be_stored(_lowering: Lowering, call: Call, _index: Index) -> Expression:
    """Raise Needed: the rule of an operator whose result is read from memory alone."""
    raise Needed(call.results[0])


def by_pieces(*names: str) -> Callable[[_Pieces], _Pieces]:
    """Return a decorator that enters a function as the pieces of what operators with these names return."""

    def enter(function: _Pieces) -> _Pieces:
        PIECES.update(dict.fromkeys(names, function))
        rule(*names)(to_be_stored)
        return function

    return enter


def _part(buffer: Buffer, starts: Sequence[int], value: Value) -> Piece:
    offset = sum(start * stride for start, stride in zip(starts, buffer.strides, strict=True))
    return Piece(buffer, value.sizes, buffer.strides, offset, value)


@by_pieces("cat")
def _cat(call: Call, buffer: Buffer) -> Iterator[Piece]:
    dim = call.arguments["dim"] % len(buffer.sizes)
    for start, value in joined(call):
        yield _part(buffer, [start * (d == dim) for d in range(len(buffer.sizes))], value)


def joined(call: Call) -> Iterator[tuple[int, Value]]:
    """Yield where each tensor of a ``cat`` begins along its dimension, and the tensor."""
    start, dim = 0, call.arguments["dim"]
    for value in call.arguments["tensors"]:
        if value.sizes != (0,):
            yield start, value
            start += value.sizes[dim]


@rule("cat", exact=True)
def _joined_element(lowering: Lowering, call: Call, index: Index) -> Expression:
    """Return the element of a ``cat`` where the loops stay within one of its tensors. Raises Needed elsewhere."""
    buffer = call.results[0]
    dim = call.arguments["dim"] % len(buffer.sizes)
    at = index[dim]
    inside: list[tuple[int, Value]] = []
    with contextlib.suppress(Unsupported):  # sizes that differ between traces may have no common answer
        last = at.offset + sum((n - 1) * step for n, step in zip(lowering.loops.sizes, at.steps, strict=True))
        parts = joined(call) if min(at.steps, default=0) >= 0 else ()
        inside = [(start, x) for start, x in parts if start <= at.offset and last < start + x.sizes[dim]]
    if not inside:
        raise Needed(buffer)
    ((start, value),) = inside
    return lowering.converted(lowering.operand(value, moved(index, dim, -start)), buffer.dtype)


def cut(buffer: Buffer, stored: Set[Buffer]) -> list[Piece]:
    """Return all of a buffer as pieces: cut at the joints of a ``cat`` that its elements are computed from."""
    dim, call = next(_joints(buffer, stored), (0, None))
    if call is None:
        return [whole(buffer)]
    pieces = []
    for start, value in joined(call):
        size = value.sizes[call.arguments["dim"]]
        sizes = tuple(size if d == dim else other for d, other in enumerate(buffer.sizes))
        offset = start * buffer.strides[dim]
        pieces.append(Piece(buffer, sizes, buffer.strides, offset, of=partial(moved, dim=dim, by=start)))
    return [piece for piece in pieces if math.prod(piece.sizes)]


def _joints(buffer: Buffer, stored: Set[Buffer]) -> Iterator[tuple[int, Call]]:
    """Yield each ``cat`` that a buffer's elements may be computed from, with the buffer's dimension that it joins."""
    front, visited = [buffer], set[Buffer]()
    while front:
        call = front.pop().maker
        for value in call.values() if call else ():
            maker, shift = value.buffer.maker, len(buffer.sizes) - len(value.sizes)
            if maker is None or value.buffer in stored or value.buffer in visited or not value.whole:
                continue
            visited.add(value.buffer)
            if maker.name != "cat":
                front.append(value.buffer)
            elif shift >= 0:
                dim = maker.arguments["dim"] % len(value.sizes)
                if buffer.sizes[dim + shift] == value.sizes[dim]:
                    yield dim + shift, maker


@by_pieces("stack")
def _stack(call: Call, buffer: Buffer) -> Iterator[Piece]:
    dim = call.arguments["dim"] % len(buffer.sizes)
    strides = tuple(stride for d, stride in enumerate(buffer.strides) if d != dim)
    for place, value in enumerate(call.arguments["tensors"]):
        yield Piece(buffer, value.sizes, strides, place * buffer.strides[dim], value)


@by_pieces("constant_pad_nd")
def _pad(call: Call, buffer: Buffer) -> Iterator[Piece]:
    value, widths, rank = call.arguments["self"], call.arguments["pad"], len(buffer.sizes)
    before = [widths[2 * place] if 2 * place < len(widths) else 0 for place in reversed(range(rank))]
    if min(widths, default=0) < 0:
        raise Unsupported("a margin below zero")
    yield Piece(buffer, buffer.sizes, buffer.strides, 0, call.arguments["value"])
    yield _part(buffer, before, value)


@by_pieces("repeat")
def _repeat(call: Call, buffer: Buffer) -> Iterator[Piece]:
    value, times = call.arguments["self"], call.arguments["repeats"]
    sizes = (*[1] * (len(times) - len(value.sizes)), *value.sizes)
    strides = [x for size, stride in zip(sizes, buffer.strides, strict=True) for x in (size * stride, stride)]
    dims = tuple(x for pair in zip(times, sizes, strict=True) for x in pair)
    rank = len(value.sizes)
    yield Piece(buffer, dims, tuple(strides), 0, value, lambda index: index[1::2][len(times) - rank :])


@by_pieces("pixel_shuffle", "pixel_unshuffle")
def _pixels(call: Call, buffer: Buffer) -> Iterator[Piece]:
    value = call.arguments["self"]
    *lead, channels, height, width = value.sizes if call.name == "pixel_unshuffle" else buffer.sizes
    factor = call.arguments["upscale_factor" if call.name == "pixel_shuffle" else "downscale_factor"]
    dims = (*lead, channels, factor, factor, height // factor, width // factor)
    large, small = (buffer, value) if call.name == "pixel_shuffle" else (value, buffer)
    *outer, c, h, w = large.strides
    to_large = (*outer, c, h, w, h * factor, w * factor)
    *outer, c, h, w = small.strides
    to_small = (*outer, c * factor * factor, c * factor, c, h, w)
    strides, origin = (to_large, to_small) if large is buffer else (to_small, to_large)
    yield Piece(buffer, dims, strides, 0, Value(value.buffer, dims, origin, value.offset))


@by_pieces("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
def _nearest(call: Call, buffer: Buffer) -> Iterator[Piece]:
    value = call.arguments["self"]
    factors = [new // size for new, size in zip(buffer.sizes, value.sizes, strict=True)]
    if any(size * factor != new for size, factor, new in zip(value.sizes, factors, buffer.sizes, strict=True)):
        raise Unsupported("resizing by a fraction")
    names = ("scales", "scales_d", "scales_h", "scales_w")
    scales = [call.arguments[name] for name in names if name in call.arguments]
    if any(scale not in (None, factor) for scale, factor in zip(scales, factors[2:], strict=True)):
        raise Unsupported("resizing by another factor than the sizes have")
    dims = tuple(x for pair in zip(value.sizes, factors, strict=True) for x in pair)
    strides = [x for factor, stride in zip(factors, buffer.strides, strict=True) for x in (factor * stride, stride)]
    yield Piece(buffer, dims, tuple(strides), 0, value, lambda index: index[::2])


@by_pieces("roll")
def _roll(call: Call, buffer: Buffer) -> Iterator[Piece]:
    value, dims, shifts = call.arguments["self"], call.arguments["dims"], [0] * len(buffer.sizes)
    if not dims:
        raise Unsupported("roll of all dimensions as one")
    for shift, dim in zip(numbers(call.arguments["shifts"], len(dims)), dims, strict=True):
        shifts[dim] += shift
    moves = [(size, shift % max(size, 1)) for size, shift in zip(buffer.sizes, shifts, strict=True)]
    # Of each dimension's two parts: the place that it goes to, the one that it is from, and its size.
    for parts in itertools.product(*(((by, 0, size - by), (0, size - by, by)) for size, by in moves)):
        to, origin, sizes = zip(*parts, strict=True)
        if math.prod(sizes):
            offset = value.offset + sum(x * stride for x, stride in zip(origin, value.strides, strict=True))
            yield _part(buffer, to, Value(value.buffer, sizes, value.strides, offset))


@by_pieces("im2col", "col2im")
def _columns(call: Call, buffer: Buffer) -> Iterator[Piece]:
    """Yield the columns of an image's windows, or the image that columns are put back into.

    Raises Unsupported for windows over a margin, and for an image from windows that overlap, which are added up.
    """
    value, back = call.arguments["self"], call.name == "col2im"
    image, columns = (buffer, value) if back else (value, buffer)
    names = ("kernel_size", "dilation", "padding", "stride")
    kernel, dilation, padding, stride = (numbers(call.arguments[name], 2) for name in names)
    overlap = any(step < window for step, window in zip(stride, kernel, strict=True)) or max(dilation) > 1
    if any(padding) or len(image.sizes) != 4 or len(columns.sizes) != 3:
        raise Unsupported(f"{call.name} with a margin, or without a batch")
    if back and overlap:
        raise Unsupported("col2im of windows that overlap")
    ends = zip(image.sizes[2:], dilation, kernel, stride, strict=True)
    height, width = ((size - more * (window - 1) - 1) // step + 1 for size, more, window, step in ends)
    dims = (*image.sizes[:2], *kernel, height, width)
    n, c, h, w = image.strides
    to_image = (n, c, h * dilation[0], w * dilation[1], h * stride[0], w * stride[1])
    n, c, place = columns.strides
    to_columns = (n, c * kernel[0] * kernel[1], c * kernel[1], c, place * width, place)
    strides, origin = (to_image, to_columns) if back else (to_columns, to_image)
    if back and math.prod(dims) < math.prod(buffer.sizes):  # what lies between the windows
        yield Piece(buffer, buffer.sizes, buffer.strides, 0, 0.0)
    yield Piece(buffer, dims, strides, 0, Value(value.buffer, dims, origin, value.offset))
