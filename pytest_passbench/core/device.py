"""Devices by name: ``cpu``, ``cuda`` or ``cuda:N``."""

from __future__ import annotations


def is_cuda(device: str) -> bool:
    """Return whether a device is a CUDA GPU."""
    return device.partition(":")[0] == "cuda"


def gpu_index(device: str) -> int:
    """Return which GPU ``cuda`` (the first) or ``cuda:N`` is."""
    return int(device.partition(":")[2] or 0)
