"""The state of a GPU as nvidia-smi reports it, for the report. The judge itself opens no device."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

from pytest_passbench.core.device import gpu_index

_QUERY = ("name", "driver_version", "clocks.sm", "clocks_throttle_reasons.active", "temperature.gpu")


def device_state(device: str) -> dict[str, Any]:
    """Return a GPU's name (``gpu``) and state (``gpu_state``: SM clock in MHz, reasons for throttling, ...).

    Return an empty dictionary if there is no nvidia-smi, or if it fails.
    """
    program = shutil.which("nvidia-smi")
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
