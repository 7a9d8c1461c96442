"""Devices by name: ``cpu``, ``cuda`` or ``cuda:N``."""

from __future__ import annotations


def is_cuda(device: str) -> bool:
    """Return True if a device is a CUDA GPU."""
    return device.partition(":")[0] == "cuda"


def gpu_index(device: str) -> int:
    """Return the number of the GPU: 0 for ``cuda``, N for ``cuda:N``."""
    return int(device.partition(":")[2] or 0)
