"""On a device a zygote imports, but does not initialise CUDA: otherwise its forks could not use CUDA."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.runner import zygote
from support.paths import TESTS


def imported(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(TESTS / "support" / "zygote_program.py"), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_on_a_device_the_zygote_of_arms_imports_the_compilers_and_asks_nothing_of_cuda():
    ran = imported("arms")
    assert ran.stdout == "modules True True\n", ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("reader",), ("reader", "warm")])
def test_a_zygote_of_readers_asks_nothing_of_cuda_either(arguments):
    ran = imported(*arguments)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_compiling_would_ask_cuda():
    ran = imported("arms", "warm")
    assert ran.returncode != 0
    assert "torch.cuda.is_available was called" in ran.stderr


def test_an_open_device_is_found(tmp_path: Path):
    assert zygote.opened_devices() == []
    for number, path in enumerate(("/dev/nvidia0", "/dev/null", "/dev/nvidiactl")):
        (tmp_path / str(number)).symlink_to(path)
    (tmp_path / "closed").write_text("no link")
    assert zygote.opened_devices(tmp_path) == ["/dev/nvidia0", "/dev/nvidiactl"]
