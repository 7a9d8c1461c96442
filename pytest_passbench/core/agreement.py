"""The agreement of tensors with eager's over the ladder of tolerances (docs/scores.md).

Tensors are compared in pieces that fit into a core's cache. Their errors are computed in wider dtypes.
"""

from __future__ import annotations

import ctypes
import math
from bisect import bisect_left

import torch

from pytest_passbench.core.ladder import BITWISE, NEVER, T_FROZEN, T_MIN, tolerances

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
MARGIN = 1e-6  # greater than any relative error of a comparison in float32
PIECE_SIZE = 1 << 15  # elements compared at a time
FIRST_SIZE = 1 << 8  # elements of the first piece, which shows nearly every wrong answer
#: Dtypes to compute in, for those in which torch does not compute everything, or not well.
WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2), torch.float32),
    torch.complex32: torch.complex64,
}


def pieces(flat: torch.Tensor) -> list[torch.Tensor]:
    """Return a flat tensor in pieces that fit into a core's cache. The first one is small."""
    return [flat[:FIRST_SIZE], *flat[FIRST_SIZE:].split(PIECE_SIZE)] if flat.numel() > FIRST_SIZE else [flat]


def correct_from(expected: torch.Tensor, actual: torch.Tensor) -> int:
    """Return the smallest t in -10..1 at which ``actual`` is close to ``expected`` (same shape and dtype).

    BITWISE for the same bits, NEVER if not even t = 1 will do.
    """
    return BITWISE if same_bytes(expected, actual) else level_of(expected.reshape(-1), actual.reshape(-1))


def level_of(expected: torch.Tensor, actual: torch.Tensor, enough: int = NEVER) -> int:
    """Return :func:`correct_from` of flat tensors with elements, but never BITWISE if t matters for their dtype.

    Tolerances grow with t, so the level can only rise from piece to piece, and most wrong answers show in the first
    piece. A level of ``enough`` or more ends the comparison, so the true level may be higher.
    """
    dtype, level = str(expected.dtype).removeprefix("torch."), T_MIN
    if tolerances(dtype, T_FROZEN) == (0.0, 0.0):
        return BITWISE if torch.equal(expected, actual) else NEVER
    for a, b in zip(pieces(expected), pieces(actual), strict=True):
        if level >= enough:
            break
        if surely_within(a, b, *tolerances(dtype, level)):
            continue
        level = _Errors(a, b).level(dtype, level)
    return level


def surely_within(expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> bool:
    """Return True if float32 arithmetic shows that all differences are allowed, by more than its rounding error.

    Return False if it does not show that, or if any value is NaN or infinite. The tensors have elements.
    """
    if expected.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return False
    a, b = expected.float(), actual.float()
    beyond_relative = b.sub(a).abs_().sub_(a.abs(), alpha=rtol * (1 - MARGIN))
    return float(beyond_relative.amax()) < atol * (1 - MARGIN)


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return True if two tensors of the same shape and dtype hold the same bytes."""
    a, b = a.contiguous(), b.contiguous()
    return not _libc.memcmp(a.data_ptr(), b.data_ptr(), a.numel() * a.element_size())


class _Errors:
    """The absolute errors and magnitudes of tensors with elements, in a wider dtype if there is one.

    Equal NaN and equal infinities count as no error.
    """

    def __init__(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        wide = torch.complex128 if expected.is_complex() else WIDER.get(expected.dtype, torch.float64)
        a, b = expected.to(wide), actual.to(wide)
        self.error, self.magnitude = (a - b).abs(), a.abs()
        #: True at the elements that have no finite error and are not equal. None if there are none.
        self.apart: torch.Tensor | None = None
        if not math.isfinite(float(self.error.amax())):
            self._set_apart(a, b)

    def _set_apart(self, a: torch.Tensor, b: torch.Tensor) -> None:
        finite = torch.isfinite(a) & torch.isfinite(b)
        apart = ~(finite | (a == b) | (torch.isnan(a) & torch.isnan(b)))
        self.apart = apart if bool(apart.any()) else None
        self.error = torch.where(finite, self.error, 0.0)
        self.magnitude = torch.where(finite, self.magnitude, 0.0)

    def level(self, dtype: str, least: int) -> int:
        """Return the smallest t from ``least`` on that allows all errors, or NEVER. Any greater t allows them too."""
        if self.apart is not None:
            return NEVER
        ladder = range(least, T_FROZEN + 1)
        step = bisect_left(ladder, True, key=lambda t: self._within(*tolerances(dtype, t)))
        return ladder[step] if step < len(ladder) else NEVER

    def _within(self, rtol: float, atol: float) -> bool:
        return float((self.error - (atol + rtol * self.magnitude)).amax()) <= 0


def worst_element(expected: torch.Tensor, actual: torch.Tensor, tolerance: int) -> tuple[float, int, int]:
    """Return the worst element's excess at t = ``tolerance``, its index, and the number of elements outside.

    The excess is the element's error divided by its tolerance, 0 if all elements are within their tolerances. The
    index is the element's place in the flattened tensor.
    """
    limits = tolerances(str(expected.dtype).removeprefix("torch."), tolerance)
    greatest, place, begin, beyond = 0.0, 0, 0, 0
    for a, b in zip(pieces(expected.reshape(-1)), pieces(actual.reshape(-1)), strict=True):
        if a.numel() and not surely_within(a, b, *limits):
            over = _excess(a, b, *limits)
            beyond += int(over.count_nonzero())
            excess, index = (t.item() for t in over.max(0))
            if excess > greatest:
                greatest, place = excess, begin + int(index)
        begin += a.numel()
    return greatest, place, beyond


def _excess(expected: torch.Tensor, actual: torch.Tensor, rtol: float, atol: float) -> torch.Tensor:
    """Return each element's error divided by its tolerance: 0 within it, infinity if there is no finite error."""
    errors = _Errors(expected, actual)
    limit = atol + rtol * errors.magnitude
    excess = torch.where(errors.error > limit, errors.error / limit.clamp_min(1e-300), 0.0)
    return excess if errors.apart is None else excess.masked_fill(errors.apart, math.inf)
