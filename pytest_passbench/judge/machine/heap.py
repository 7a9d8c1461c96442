"""The judge's heap. Outputs that were compared leave free memory between the records that stay."""

from __future__ import annotations

import ctypes

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, other C libraries need not


def give_back() -> None:
    """Give the free memory of the heap back to the system, wherever in it that lies (``man malloc_trim``)."""
    if _trim is not None:
        _trim(0)
