"""Weak walls let CUDA's driver do what it needs, and nothing else, and only on a device."""

from __future__ import annotations

import ctypes
import json
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.judge.arms import sandbox
from pytest_passbench.walls.syscalls import SYSCALL_TABLES
from support.paths import TESTS

LANDLOCK = int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1)))
pytestmark = pytest.mark.skipif(
    platform.machine() not in SYSCALL_TABLES or LANDLOCK < 3, reason="no Landlock, or no filters for this machine"
)
#: What weak walls deny on the CPU.
DENIED = {"own name", "thread's name", "parent's name", "killed last", "kernel", "packets", "stream", "network"}


def tried(scratch: Path, form: str) -> dict[str, object]:
    program = [sys.executable, str(TESTS / "support" / "driver_program.py"), str(scratch), form]
    ran = subprocess.run(program, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.mark.parametrize(
    ("form", "granted", "unlimited"),
    [("driver", {"thread's name", "packets"}, [True, True]), ("plain", set(), [False, False])],
)
def test_only_what_the_driver_needs_is_granted(tmp_path, form, granted, unlimited):
    outcomes = tried(tmp_path, form)
    assert outcomes.pop("limits") == unlimited
    assert outcomes.pop("scratch") == "done"
    assert {name for name, outcome in outcomes.items() if outcome == "done"} == granted
    assert {name for name, outcome in outcomes.items() if outcome in ("EACCES", "EPERM")} == DENIED - granted


def test_a_device_brings_its_variables_and_folders_along(monkeypatch, tmp_path):
    named = {name: f"value of {name}" for name in ("CC", "CUDA_VISIBLE_DEVICES")}
    named |= {"LD_LIBRARY_PATH": f"/usr/lib:{tmp_path}", "TRITON_LIBCUDA_PATH": str(tmp_path)}
    for name, value in named.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    sandbox.driver_folders.cache_clear()
    found = sandbox.environment(1, "cuda:1", {})
    assert {name: found[name] for name in named} == named
    assert found["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"  # nvidia-smi's order
    assert "TRITON_INTERPRET" not in found
    plain = sandbox.environment(1, "cpu", {})
    assert not {"LD_LIBRARY_PATH", "CC", "TRITON_LIBCUDA_PATH", "CUDA_DEVICE_ORDER"} & set(plain)
    readable = sandbox.weak_paths(tmp_path / "scratch", True)["read"]
    assert {"/sys", str(tmp_path)} <= set(readable)
    assert not {"/sys", str(tmp_path)} & set(sandbox.weak_paths(tmp_path / "scratch", False)["read"])
    line = sandbox.command(["true"], sandbox.Walls(True), True)
    assert [str(tmp_path), str(tmp_path)] == line[line.index(str(tmp_path)) :][:2]
    sandbox.driver_folders.cache_clear()
