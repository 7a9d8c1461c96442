"""The plausibility layer: no program can write its outputs faster than its cores or its device fill memory."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Sequence

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.audits.layers import violation, warning
from pytest_passbench.judge.verify.outputs import Output

BUFFER_BYTES = 256 << 10  # stays in a core's own cache, which is the fastest memory
MAX_SPEEDUP = 2.0  # over the measured rate of filling memory; anything faster is not honest


@functools.cache
def fill_rate() -> float:
    """Return the bytes per second that one core can fill, the best of 50 tries. It is measured once per process."""
    buffer = ctypes.create_string_buffer(BUFFER_BYTES)
    best = math.inf
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(4):
            ctypes.memset(buffer, 0, BUFFER_BYTES)
        best = min(best, (time.perf_counter() - start) / 4)
    return BUFFER_BYTES / best


def bandwidth(written: int, seconds: float, rate: float) -> list[Finding]:
    """Return a violation if ``written`` bytes of outputs in ``seconds`` per call are too fast.

    ``rate`` is the bytes per second that the cores, or the device, fill memory with.
    """
    if seconds <= 0 or written <= seconds * MAX_SPEEDUP * rate:
        return []
    message = (
        f"{written} bytes of outputs in {seconds * 1e6:.2f} us; "
        f"filling as much memory takes {written / rate * 1e6:.2f} us here"
    )
    return [violation("plausibility", "bandwidth", message)]


def written(outputs: Sequence[Output], owners: Sequence[int], fresh: int) -> int:
    """Return the bytes of the outputs in memory of their own (``owners`` says ``fresh``).

    An element of an expanded dimension counts once.
    """
    total = 0
    for output, owner in zip(outputs, owners, strict=True):
        if owner == fresh and output.value is not None:
            form = output.form
            own = math.prod(size for size, stride in zip(form.shape, form.strides, strict=True) if stride)
            total += own * output.value.element_size()
    return total


def null_answer(null_from: int, tolerance: int) -> list[Finding]:
    """Return a warning if zeros, a copy of an input or the mean would pass at t = ``tolerance``."""
    if null_from > tolerance:
        return []
    return [warning("plausibility", "null-answer", f"a null answer passes on this subgraph from t = {null_from}")]
