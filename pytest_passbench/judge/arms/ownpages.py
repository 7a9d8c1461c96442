"""The pages of a private mapping that a process has written to, from ``/proc/PID/pagemap``.

The kernel gives a process its own copy of each page that it writes to. All other pages are still the judge's memory,
so the judge need not read them to know their contents.
Source: ``Documentation/admin-guide/mm/pagemap.rst`` of the Linux kernel.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

PAGE = mmap.PAGESIZE
_PRESENT, _SWAPPED, _SHARED = np.uint64(1 << 63), np.uint64(1 << 62), np.uint64(1 << 61)
_ENTRY_BYTES = 8  # of pagemap for each page


def own_pages(pid: int, address: int, size: int) -> list[range] | None:
    """Return the process's own pages in the ``size`` bytes (at least one) from ``address`` on.

    They are ranges of bytes, counted from ``address``. Return None if the kernel does not tell.
    """
    first, last = address // PAGE, (address + size - 1) // PAGE
    try:
        with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as file:
            data = os.pread(file.fileno(), _ENTRY_BYTES * (last - first + 1), _ENTRY_BYTES * first)
    except OSError:
        return None
    flags = np.frombuffer(data, np.uint64)
    if len(flags) <= last - first:
        return None
    private = (flags & _SWAPPED != 0) | ((flags & _PRESENT != 0) & (flags & _SHARED == 0))
    begin, edges = first * PAGE - address, np.flatnonzero(np.diff(private, prepend=False, append=False))
    ends = (begin + edges * PAGE).clip(0, size).reshape(-1, 2).tolist()
    return [range(start, end) for start, end in ends]
