"""The place of a run: machine, versions, sandbox. Data for the results file."""

from __future__ import annotations

import math
import os
import platform
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.inputs import default as default_generator
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.machine.gpu import device_state
from pytest_passbench.judge.machine.process import allowed


def environment(settings: Settings, walls: Walls, cores: Cores) -> dict[str, Any]:
    """Return where a run takes place, JSON-ready. docs/results.md describes each field."""
    return {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "arm_cores": sorted(cores.arms),
        "threads": settings.threads,
        "device": settings.device,
        "sandbox": str(walls),
        "inputs": default_generator().name,
        **(device_state(settings.device) if is_cuda(settings.device) else {}),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "priority": "real-time" if allowed() else "ordinary",
        "frequency_mhz": _frequency(),
        "load": round(os.getloadavg()[0], 2),
        "memory_gib": math.ceil(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.processor()


def _frequency() -> float | None:
    """Return the fastest core's present clock in MHz; None if the kernel does not tell."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    frequencies = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(max(frequencies)) if frequencies else None
