"""The descriptors that a measured process inherits: its channel and its output, and none of the inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.judge.verify.checker import Checker


@pytest.mark.parametrize("pipeline", ["direct", "dynamo"])
def test_it_has_a_channel_and_its_output_alone(bench, gelu_add_pass, monkeypatch, pipeline):
    targets, check = [], Checker.check

    def noted(self, runners, batch, call, certain=False):
        for runner in runners.values():
            targets.append(sorted(str(path.readlink()) for path in Path(f"/proc/{runner.pid}/fd").iterdir()))
        check(self, runners, batch, call, certain)

    monkeypatch.setattr(Checker, "check", noted)
    bench.task()
    bench.candidate({"p": gelu_add_pass})
    (record,) = bench.judge(pipeline=pipeline).values()
    assert record.correct, record.arm.message
    assert targets
    for target in targets:
        assert len(target) == 3
        assert len([name for name in target if name.startswith("socket:")]) == 1
        assert not [name for name in target if name.startswith("/memfd:")]


OPENED = """
import os
from pytest_passbench.walls.harden import limit_resources
limit_resources(None, None, 4096)
try:
    while True:
        last = os.open(os.devnull, os.O_RDONLY)
except OSError as error:
    print(error.strerror, last)
"""


def test_it_has_few_descriptors_so_that_its_user_can_hold_few_in_messages():
    ran = subprocess.run([sys.executable, "-c", OPENED], capture_output=True, text=True, check=True)
    assert ran.stdout == "Too many open files 255\n"
