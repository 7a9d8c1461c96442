"""Temporary folders of a judge: the next judge removes those of a killed one, and leaves those in use alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.judge.scratch import Scratch
from support.paths import ROOT

HOLDS = """
import sys, time
from pathlib import Path
from pytest_passbench.judge.scratch import Scratch

kept = Scratch(Path(sys.argv[1]))
(kept.path / "folder").mkdir()
(kept.path / "folder" / "file").touch()
print(kept.path, flush=True)
time.sleep(60)
"""


@pytest.fixture
def other(tmp_path):
    """Start another judge, which has a folder."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_what_a_killed_judge_left_is_removed_by_the_next(other, tmp_path):
    theirs = Path(other.stdout.readline().strip())
    with Scratch(tmp_path) as mine:
        assert theirs.is_dir()  # it is in use
        assert mine != theirs
    other.kill()
    other.wait()
    with Scratch(tmp_path) as mine:
        assert not theirs.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_has_another_name_is_not_touched(tmp_path):
    (tmp_path / "passbench-results-x").mkdir()
    with Scratch(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["passbench-results-x"]
