"""Which pages of a private mapping a process has written to: the kernel has given it copies of those.

What it has not written to is the judge's own memory, and need not be read to know what is there
(``Documentation/admin-guide/mm/pagemap.rst`` of the kernel).
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

PAGE = mmap.PAGESIZE
_PRESENT, _SWAPPED, _SHARED = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)
_ENTRY = 8  # bytes that pagemap has for a page


def own_pages(pid: int, address: int, size: int) -> list[range] | None:
    """Where in ``size`` bytes (at least one) from ``address`` on lie pages of the process's own: ranges of bytes,
    counted from ``address``. None where the kernel does not tell."""
    first, last = address // PAGE, (address + size - 1) // PAGE
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), _ENTRY * (last - first + 1), _ENTRY * first)
    except OSError:
        return None
    flags = np.frombuffer(data, np.uint64)
    if len(flags) <= last - first:
        return None
    own = (flags & _SWAPPED != 0) | ((flags & _PRESENT != 0) & (flags & _SHARED == 0))
    begin, edges = first * PAGE - address, np.flatnonzero(np.diff(own, prepend=False, append=False))
    ends = (begin + edges * PAGE).clip(0, size).reshape(-1, 2).tolist()
    return [range(start, end) for start, end in ends]
