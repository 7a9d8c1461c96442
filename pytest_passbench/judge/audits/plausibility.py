"""The plausibility layer: no program writes its outputs faster than this machine can fill memory."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Sequence

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.audits.layers import violation, warning
from pytest_passbench.judge.verify.outputs import Output

BUFFER_BYTES = 256 << 10  # bytes: what stays in a core's own cache, so the fastest that memory gets
MAX_SPEEDUP = 2.0  # than that is not measured but made up


@functools.cache
def fill_rate() -> float:
    """Bytes a second that one core fills, the best of many tries: an upper bound for writing."""
    buffer = ctypes.create_string_buffer(BUFFER_BYTES)
    best = math.inf
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(4):
            ctypes.memset(buffer, 0, BUFFER_BYTES)
        best = min(best, (time.perf_counter() - start) / 4)
    return BUFFER_BYTES / best


def floor(written: int, seconds: float, cores: int) -> list[Finding]:
    """``written`` bytes of fresh outputs in ``seconds`` a call on so many cores."""
    least = written / (fill_rate() * cores)
    if seconds <= 0 or seconds * MAX_SPEEDUP >= least:
        return []
    said = (
        f"{written} bytes of outputs in {seconds * 1e6:.2f} us; "
        f"this machine takes {least * 1e6:.2f} us to fill as much memory"
    )
    return [violation("plausibility", "bandwidth", said)]


def written(outputs: Sequence[Output], owners: Sequence[int], fresh: int) -> int:
    """Bytes of the outputs that are memory of their own (``owners`` says ``fresh``), expanded elements once."""
    total = 0
    for output, owner in zip(outputs, owners, strict=True):
        if owner == fresh and output.value is not None:
            form = output.form
            own = math.prod(size for size, stride in zip(form.shape, form.strides, strict=True) if stride)
            total += own * output.value.element_size()
    return total


def null_answer(null_from: int, tolerance: int) -> list[Finding]:
    """A warning where zeros, a copy of an input or the mean would pass."""
    if null_from > tolerance:
        return []
    return [warning("plausibility", "null-answer", f"a null answer passes on this subgraph from t = {null_from}")]
