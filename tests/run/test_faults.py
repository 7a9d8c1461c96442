"""A run that is struck in the middle leaves nothing behind, and loses at most the subgraph that was being judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import faults
import pytest

from pytest_passbench.judge.arms import sandbox

pytestmark = pytest.mark.sandbox
#: On a machine with more to do than the two loops. docs/faults.md has what was measured.
SECONDS = 30
KILLED = ("judge", "controller")
ENDING = [name for name, fault in faults.FAULTS.items() if fault.ends]
GOING_ON = [name for name, fault in faults.FAULTS.items() if not fault.ends and not fault.workers]


def resume(folder: Path, *options: str) -> dict:
    """Go on with the run in a folder; return its results."""
    command = [sys.executable, "-m", "pytest", *faults.OPTIONS, *options]
    environment = faults.environment(folder)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    return json.loads(max(folder.glob("reports/*/results.json")).read_text())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ENDING)
def test_a_fault_that_ends_a_run_leaves_nothing_behind(fault, tmp_path):
    faults.prepare(tmp_path)
    (outcome,) = faults.strike([fault], tmp_path, *(["--busy"] if fault in KILLED else []))
    assert outcome.kept >= outcome.before > 0
    if fault in KILLED and not sandbox.walls().strong:
        # Nobody is there to remove the folders of the sandboxes: the next judge does.
        assert all(f"/{faults.ABANDONED}" in place for place in outcome.left)
        resume(tmp_path, "--passbench-resume")
        assert not list(tmp_path.glob(f"tmp/{faults.ABANDONED}*"))
    else:
        assert outcome.left == []
        assert outcome.gone < SECONDS


@pytest.mark.slow
def test_a_lost_worker_costs_the_subgraph_that_it_judged(tmp_path):
    faults.prepare(tmp_path)
    check_goes_on(faults.strike(["worker"], tmp_path, "--busy"), faults.TASKS)


@pytest.mark.slow
def test_whatever_is_lost_of_a_sandbox_the_run_goes_on_and_leaves_nothing_behind(tmp_path):
    lost = [name for name in GOING_ON if name != "candidate's bwrap" or sandbox.walls().strong]
    tasks = len(lost) + faults.TASKS
    faults.prepare(tmp_path, tasks)
    check_goes_on(faults.strike(lost, tmp_path), tasks)


def check_goes_on(outcomes: list[faults.Outcome], tasks: int) -> None:
    for outcome in outcomes:
        assert outcome.kept >= outcome.before > 0
        assert outcome.left == []
        assert outcome.gone < SECONDS
        assert outcome.next is not None, outcome
        assert outcome.code in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED), outcome.output
    correct = [task for task, status in outcomes[-1].statuses.items() if status == "correct"]
    assert len(correct) >= tasks - len(outcomes), outcomes[-1]


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_one_that_was_not(tmp_path):
    folders = [tmp_path / name for name in ("killed", "undisturbed")]
    for folder in folders:
        folder.mkdir()
        faults.prepare(folder)
    found = []
    seed = "--passbench-seed=tests"
    (outcome,) = faults.strike(["judge"], folders[0], seed)
    assert 0 < outcome.kept < faults.TASKS
    for folder, more in zip(folders, (["--passbench-resume"], []), strict=True):
        run = resume(folder, seed, *more)
        found.append(faults.statuses(run))
    assert found[0] == found[1]
    assert len(found[0]) == faults.TASKS
