"""How tensors of different shapes and strides line up, for kernels that broadcast."""

import ctypes
from functools import cache


@cache
def layout(rank, keep_last, *tensors):
    """Line up (shape, stride) pairs: their broadcast shape, and a table of int64 for the kernel.

    The table holds `rank` sizes, then `rank` strides for each tensor (0 where it is broadcast; along the last
    dimension always 0 or 1). Dimensions that are contiguous in every tensor are merged; `keep_last` leaves the
    last one alone. A number, which has no shape (None), is marked by a last stride of -1. Raises ValueError where
    more than `rank` dimensions are left.
    """
    numbers = [i for i, pair in enumerate(tensors) if pair is None]
    tensors = [pair or ((), ()) for pair in tensors]
    most = max(len(shape) for shape, _ in tensors)
    sizes = [(1,) * (most - len(shape)) + tuple(shape) for shape, _ in tensors]
    steps = [(0,) * (most - len(stride)) + tuple(stride) for _, stride in tensors]
    steps = [[0 if n == 1 else s for n, s in zip(*pair, strict=True)] for pair in zip(sizes, steps, strict=True)]
    full = tuple(max(column) if 0 not in column else 0 for column in zip(*sizes, strict=True))
    dims = [list(column) for column in zip(full, *steps, strict=True)]
    merged = [dims.pop()]
    while dims:
        dim, inner = dims.pop(), merged[0]
        fits = all(s == t * inner[0] for s, t in zip(dim[1:], inner[1:], strict=True))
        if dim[0] == 1:
            continue
        if fits and not (keep_last and len(merged) == 1):
            merged[0] = [dim[0] * inner[0], *inner[1:]]
        else:
            merged.insert(0, dim)
    if len(merged) > rank or any(s not in (0, 1) for s in merged[-1][1:]):
        raise ValueError(f"no kernel for these shapes and strides: {tensors}")
    merged = [[1] + [0] * len(tensors)] * (rank - len(merged)) + merged
    merged[-1] = [-1 if i - 1 in numbers else value for i, value in enumerate(merged[-1])]
    table = [value for column in zip(*merged, strict=True) for value in column]
    return full, (ctypes.c_int64 * len(table))(*table)
