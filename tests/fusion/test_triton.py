"""Triton kernels of the generator: in Triton's interpreter against eager, and compiled without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_passbench.fusion import Unsupported
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import trace
from pytest_passbench.fusion.triton import triton_kernels

QUICK = ("elementwise, with a broadcast", "softmax", "norms", "extremes of doubles, and of rows with NaN")


@pytest.mark.parametrize("names", [QUICK, pytest.param((), marks=pytest.mark.slow)], ids=["quick", "all"])
def test_kernels_answer_as_eager_in_the_interpreter(names: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("interpreted.py"), *names],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.split("\n", 1)[0].strip() == "", done.stdout
    assert done.stdout.strip() == "all were run", done.stdout + done.stderr


def test_what_triton_lacks_is_unsupported() -> None:
    nests = schedule(trace(lambda x: x.atan(), [torch.ones(3)]))
    with pytest.raises(Unsupported, match="atan in Triton"):
        triton_kernels("k", nests)
