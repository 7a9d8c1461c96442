"""The state of a GPU as nvidia-smi reports it, and the device's files, which are held open.

The judge makes no context on a device.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from pytest_passbench.core.device import gpu_index

_QUERY = ("name", "driver_version", "clocks.sm", "temperature.gpu")
#: The field with the reasons for throttling. Newer drivers have the first name, older ones the second.
_THROTTLING = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
TIMEOUT_SECONDS = 10
#: The bits of the reasons that slow a device down: power, heat, and the hardware's own brake. The bits of an idle
#: device and of clocks set by a user are not among them. Source: NVML, ``nvmlClocksEventReasons``.
_SLOWING = 0x04 | 0x08 | 0x20 | 0x40 | 0x80


def device_name(device: str) -> str:
    """Return what nvidia-smi calls a device: its number or its UUID. CUDA_VISIBLE_DEVICES is respected."""
    index = gpu_index(device)
    named = [item.strip() for item in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return named[index] if index < len(named) and named[index] else str(index)


def device_state(device: str) -> dict[str, Any]:
    """Return a GPU's name (``gpu``) and state (``gpu_state``: SM clock in MHz, reasons for throttling, ...).

    Return an empty dictionary if there is no nvidia-smi, or if it fails.
    """
    for throttling in _THROTTLING:
        values = _query(device, (*_QUERY, throttling))
        if values:
            state = dict(zip((*_QUERY[1:], _THROTTLING[0]), values[1:], strict=True))
            return {"gpu": values[0], "gpu_state": state}
    return {}


def throttled(device: str) -> bool | None:
    """Return True if power, heat or a brake slows the device down now. Return None if nvidia-smi does not tell."""
    for throttling in _THROTTLING:
        values = _query(device, (throttling,))
        if values:
            with contextlib.suppress(ValueError):
                return bool(int(values[0], 16) & _SLOWING)
    return None


def _query(device: str, fields: tuple[str, ...]) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [
        program,
        f"--query-gpu={','.join(fields)}",
        f"--id={device_name(device)}",
        "--format=csv,noheader,nounits",
    ]
    try:
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return []
    values = [value.strip() for value in completed.stdout.strip().split(",")]
    return values if completed.returncode == 0 and len(values) == len(fields) else []


class HeldOpen:
    """The device files of NVIDIA's driver, open. While any process has them open, the driver keeps the devices ready.

    Otherwise it starts a device anew for the first process that uses it, in one to three seconds (NVIDIA's "Driver
    Persistence", overview). Opening a file makes no context. A file that cannot be opened is left out.
    """

    def __init__(self, folder: Path = Path("/dev")) -> None:
        self._files: list[int] = []
        for path in sorted(folder.glob("nvidia[0-9]*")):
            with contextlib.suppress(OSError):
                self._files.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())
