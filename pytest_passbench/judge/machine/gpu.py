"""What nvidia-smi says of a GPU, for the report. The judge itself opens no device."""

from __future__ import annotations

import functools
import shutil
import subprocess
from typing import Any

from pytest_passbench.core.device import gpu_index

_QUERY = ("name", "driver_version", "clocks.sm", "clocks_throttle_reasons.active", "temperature.gpu")


@functools.cache
def _smi() -> str | None:
    return shutil.which("nvidia-smi")


def device_state(device: str) -> dict[str, Any]:
    """Return a GPU's name (``gpu``) and state (``gpu_state``: SM clock in MHz, reasons for throttling, ...).

    Empty if there is no nvidia-smi.
    """
    program = _smi()
    if program is None:
        return {}
    asked = [f"--query-gpu={','.join(_QUERY)}", f"--id={gpu_index(device)}"]
    command = [program, *asked, "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = [value.strip() for value in said.stdout.strip().split(",")]
    if len(values) != len(_QUERY):
        return {}
    return {"gpu": values[0], "gpu_state": dict(zip(_QUERY[1:], values[1:], strict=True))}
