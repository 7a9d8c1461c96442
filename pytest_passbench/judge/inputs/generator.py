"""The generators of inputs: compiled code (native/), or numpy if there is no compiler. Their values differ.

A generator's writer has two methods: ``block`` writes the inputs of calls 0, 1, ... of a block, ``stride`` bytes
apart from ``address`` on; ``single`` writes one input of one call. The same numbers give the same values.

- Compiled code draws random words and turns them into values in one loop. It uses AES-128 in counter mode if the CPU
  has instructions for it, and ChaCha8 otherwise.
- In numpy every input of every call has a key of its own: SHA-256 of the subgraph's key and the counter. So knowledge
  of one call's generator tells nothing about another's. It is slower; its values are as fresh.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import torch

from pytest_passbench.judge.inputs.distribution import ASIDE, NARROWER, Draw, Integers, Normal, TwoValues
from pytest_passbench.judge.native_library import compiled
from pytest_passbench.kernels.toolchain import CompileError
from pytest_passbench.plans.launch import ITEM_BYTES

SOURCE = Path(__file__).with_name("native") / "generate.cpp"
CHACHA8, AES_NI, VAES = range(3)
NAMES = ("ChaCha8", "AES-128-CTR (AES-NI)", "AES-128-CTR (VAES)")
_FLOATS = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 3}
_INTEGER, _CHOICE = 4, 5
_u64, _double = ctypes.c_uint64, ctypes.c_double
_PIECE_VALUES = 1 << 18  # drawn at a time


class _Input(ctypes.Structure):
    """The struct Input of generate.cpp."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("size", ctypes.c_int32),
        *((name, _u64) for name in ("index", "offset", "count")),
        *((name, _double) for name in ("mean", "deviation", "low", "high", "narrower", "aside")),
        *((name, _u64) for name in ("first", "range", "share")),
    )


def load() -> ctypes.CDLL:
    """Return the compiled generator. Raises CompileError."""
    with compiled(SOURCE) as path:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise CompileError(f"the compiled library does not load: {error}") from error


class Native:
    """The compiled generator. ``cipher`` is one of the three; the fastest is the default. Raises CompileError."""

    def __init__(self, cipher: int | None = None) -> None:
        self.library: Any = load()
        self.cipher = self.library.passbench_best() if cipher is None else cipher
        self.name = NAMES[self.cipher]
        self.library.passbench_write.restype = None
        self.library.passbench_write.argtypes = (
            *(ctypes.c_int32, ctypes.c_char_p, ctypes.c_void_p, _u64, ctypes.c_void_p, ctypes.c_int32),
            *(ctypes.c_void_p, _u64, _u64, _u64),
        )
        self.writer = partial(NativeWriter, self)


class NativeWriter:
    """A writer of one subgraph's inputs. It leaves inputs out that are None in ``draws``."""

    def __init__(self, native: Native, key: bytes, draws: Sequence[Draw | None]) -> None:
        self._write, self._cipher, self._key = native.library.passbench_write, native.cipher, key
        self._inputs = {i: _input(i, draw) for i, draw in enumerate(draws) if draw is not None and draw.count}
        self._all = (_Input * len(self._inputs))(*self._inputs.values())

    def block(self, block: int, calls: int, address: int, offsets: Sequence[int], stride: int) -> None:
        """Write the inputs of all calls of a block."""
        for item in self._all:
            item.offset = offsets[item.index]
        self._call(block, self._all, len(self._all), address, stride, 0, calls)

    def single(self, block: int, call: int, index: int, address: int) -> None:
        """Write one input of one call."""
        if index in self._inputs:
            self._call(block, ctypes.byref(self._inputs[index]), 1, address, 0, call, 1)

    def _call(self, block: int, inputs: Any, count: int, address: int, stride: int, first: int, calls: int) -> None:
        self._write(self._cipher, self._key, table(), block, inputs, count, address, stride, first, calls)


def _input(index: int, draw: Draw) -> _Input:
    kind = _FLOATS.get(draw.dtype, _INTEGER)
    item = _Input(kind=kind, size=ITEM_BYTES[draw.dtype], index=index, count=draw.count)
    of = draw.of
    if isinstance(of, Normal):
        item.mean, item.deviation, item.low, item.high = of.mean, of.deviation, of.low, of.high
        item.narrower, item.aside = NARROWER, ASIDE
    elif isinstance(of, Integers):
        item.first, item.range = of.first & (1 << 64) - 1, of.range & (1 << 64) - 1
    elif isinstance(of, TwoValues):
        item.kind, item.share = _CHOICE, of.share
        item.first, item.range = _bits(of.value, draw.dtype), _bits(of.other, draw.dtype)
    return item


def _bits(value: float, dtype: str) -> int:
    """Return the bits of a value in a float dtype. A value that is too great for the dtype becomes infinite."""
    converted = torch.tensor([value], dtype=torch.float64).to(getattr(torch, dtype))
    return int.from_bytes(converted.view(torch.uint8).numpy().tobytes(), "little")


@cache
def table() -> ctypes.Array[ctypes.c_float]:
    """Return the negated inverse normal distribution on (0, 1/2] as 32 straight pieces: intercepts, then slopes.

    There are two pieces in each octave of u = 2^15 .. 2^31, which stands for a probability of u / 2^32. Straight
    pieces lie outside of the curve, so all of them are scaled to a variance of 1.
    """
    edges = [2.0**octave * (1 + half / 2) for octave in range(15, 31) for half in range(2)] + [2.0**31]
    curve = [-NormalDist().inv_cdf(edge * 2.0**-32) for edge in edges]
    squares = edges[0] * curve[0] ** 2  # below the first piece, the curve is constant
    for (a, b), (x, y) in zip(pairwise(edges), pairwise(curve), strict=True):
        squares += (b - a) * (x * x + x * y + y * y) / 3
    scale = (edges[-1] / squares) ** 0.5
    values = (ctypes.c_float * 64)()
    for number, ((a, b), (x, y)) in enumerate(zip(pairwise(edges), pairwise(curve), strict=True)):
        place = number + 2 * (15 + 127) & 31  # the last four bits of a float32's exponent, the first of its fraction
        values[32 + place] = (y - x) / (b - a) * scale
        values[place] = x * scale - (y - x) / (b - a) * scale * a
    return values


class Portable:
    """The generator in numpy. ``why`` says why there is no compiled one."""

    def __init__(self, why: str) -> None:
        self.name = f"Philox, keyed anew by SHA-256 for every input of every call ({why})"
        self.writer = PortableWriter


class PortableWriter:
    """A writer of one subgraph's inputs. It leaves inputs out that are None in ``draws``."""

    def __init__(self, key: bytes, draws: Sequence[Draw | None]) -> None:
        self._key, self._draws = key, draws

    def block(self, block: int, calls: int, address: int, offsets: Sequence[int], stride: int) -> None:
        """Write the inputs of all calls of a block."""
        for call in range(calls):
            for index, offset in enumerate(offsets):
                self.single(block, call, index, address + call * stride + offset)

    def single(self, block: int, call: int, index: int, address: int) -> None:
        """Write one input of one call."""
        draw = self._draws[index]
        if draw is None or draw.count == 0:
            return
        label = b"".join(number.to_bytes(8, "little") for number in (block, call, index))
        secret = int.from_bytes(hashlib.sha256(self._key + label).digest()[:16], "little")
        rng = np.random.Generator(np.random.Philox(key=secret))
        variation = (1 - NARROWER * rng.random(), ASIDE * (2 * rng.random() - 1))
        for begin in range(0, draw.count, _PIECE_VALUES):
            values = _values(rng, draw, min(_PIECE_VALUES, draw.count - begin), variation)
            size = values.element_size()
            ctypes.memmove(address + begin * size, values.data_ptr(), values.numel() * size)


def _values(rng: np.random.Generator, draw: Draw, count: int, variation: tuple[float, float]) -> torch.Tensor:
    """Return the next ``count`` values. ``variation`` are the call's scale and shift."""
    of, dtype = draw.of, draw.torch_dtype
    if isinstance(of, Normal):
        values = _normal(rng, of, count, variation, np.float64 if draw.dtype == "float64" else np.float32)
    elif isinstance(of, Integers):
        values = _integers(rng, of, count)
    else:
        assert isinstance(of, TwoValues)
        values = np.where(rng.integers(0, 256, count) < of.share, of.value, of.other)
    return torch.from_numpy(values).to(dtype)


def _normal(rng: np.random.Generator, of: Normal, count: int, variation: tuple[float, float], dtype: Any) -> Any:
    scale, shift = variation
    values = rng.standard_normal(count, dtype=dtype)
    values *= of.deviation * scale
    values += of.mean + of.deviation * shift
    return values if math.isinf(of.low) and math.isinf(of.high) else values.clip(of.low, of.high)


def _integers(rng: np.random.Generator, of: Integers, count: int) -> Any:
    """Return integers as int64. Great values of uint64 have the same bits in it."""
    picked = rng.integers(0, of.range - 1, count, dtype=np.uint64, endpoint=True)
    return (picked + np.uint64(of.first & (1 << 64) - 1)).view(np.int64)


#: A source of keyed random values. ``name`` stands in the record of a run.
Generator = Native | Portable


@cache
def default() -> Generator:
    """Return the fastest generator that works here. It is chosen once per process."""
    try:
        return Native()
    except CompileError as error:
        return Portable(str(error))
