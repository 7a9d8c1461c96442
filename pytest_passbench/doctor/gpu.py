"""The check of NVIDIA GPUs, if there are any, for other users."""

from __future__ import annotations

import os

from pytest_passbench.doctor.machine import Check, MachineProbe


def gpu(machine: MachineProbe) -> Check | None:
    """Find other processes on a GPU. Return None without ``nvidia-smi``."""
    listed = machine.command("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
    if listed is None:
        return None
    if listed.code != 0:
        message = (listed.text.splitlines() or ["no message"])[0]
        return Check("GPU", "problem", f"nvidia-smi fails: {message}", "check the driver and the container")
    lines = [line.strip() for line in listed.text.splitlines() if line.strip()[:1].isdigit()]
    others = [line for line in lines if line.partition(",")[0].strip() != str(os.getpid())]
    if others:
        text = "; ".join(others[:5])
        return Check("GPU", "warning", f"shared with {text}", "stop them, or use another GPU")
    return Check("GPU", "ok", "no other process")
