"""A run with a fault in the middle leaves nothing behind, and loses at most the subgraph that was being judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_passbench.judge.arms import sandbox
from shared import faulted_runs

pytestmark = pytest.mark.sandbox
#: Limit until nothing is left, on a machine with more work than two busy loops. docs/isolation.md has figures.
SECONDS = 30
KILLED = ("judge", "controller")
#: Tests elsewhere: SIGHUP in tests/plugin/test_resume.py (it is handled like SIGTERM), a killed judge below.
LEFT_OUT = ("SIGHUP", "SIGHUP with -n", "judge")
ENDING = [name for name, fault in faulted_runs.FAULTS.items() if fault.ends and name not in LEFT_OUT]
#: Without the faults that stop a process, since runs wait ten seconds or more for it: benchmarks/faults.py has these.
GOING_ON = [
    name
    for name, fault in faulted_runs.FAULTS.items()
    if not (fault.ends or fault.workers or fault.signals == faulted_runs.STOP)
]


def resume(folder: Path, *options: str) -> dict:
    """Resume the run in a folder. Return its results."""
    command = [sys.executable, "-m", "pytest", *faulted_runs.OPTIONS, *options]
    environment = faulted_runs.environment(folder)
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == pytest.ExitCode.OK, ran.stdout + ran.stderr
    return json.loads(max(folder.glob("reports/*/results.json")).read_text())


@pytest.mark.slow
@pytest.mark.parametrize("fault", ENDING)
def test_a_fault_that_ends_a_run_leaves_nothing_behind(fault, tmp_path):
    faulted_runs.prepare(tmp_path)
    (outcome,) = faulted_runs.strike([fault], tmp_path, *(["--busy"] if fault in KILLED else []))
    assert outcome.kept >= outcome.before > 0
    check_left(outcome, fault)
    if outcome.left:
        resume(tmp_path, "--passbench-resume")
        assert not list(tmp_path.glob(f"tmp/{faulted_runs.ABANDONED}*"))


def check_left(outcome: faulted_runs.Outcome, fault: str) -> None:
    """Require that nothing is left, except without bubblewrap after a kill: then the next judge removes folders."""
    if fault in KILLED and not sandbox.walls().strong:
        assert all(f"/{faulted_runs.ABANDONED}" in place for place in outcome.left)
    else:
        assert outcome.left == []
        assert outcome.gone < SECONDS


@pytest.mark.slow
def test_a_lost_worker_costs_the_subgraph_that_it_judged(tmp_path):
    faulted_runs.prepare(tmp_path)
    check_goes_on(faulted_runs.strike(["worker"], tmp_path, "--busy"), faulted_runs.TASKS)


@pytest.mark.slow
def test_whatever_is_lost_of_a_sandbox_the_run_goes_on_and_leaves_nothing_behind(tmp_path):
    lost = [name for name in GOING_ON if name != "candidate's bwrap" or sandbox.walls().strong]
    tasks = len(lost) + faulted_runs.TASKS
    faulted_runs.prepare(tmp_path, tasks)
    check_goes_on(faulted_runs.strike(lost, tmp_path), tasks)


def check_goes_on(outcomes: list[faulted_runs.Outcome], tasks: int) -> None:
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
        faulted_runs.prepare(folder)
    found = []
    seed = "--passbench-seed=7e575"
    (outcome,) = faulted_runs.strike(["judge"], folders[0], "--busy", seed)
    assert 0 < outcome.kept < faulted_runs.TASKS
    assert outcome.kept >= outcome.before
    check_left(outcome, "judge")
    for folder, more in zip(folders, (["--passbench-resume"], []), strict=True):
        run = resume(folder, seed, *more)
        found.append(faulted_runs.statuses(run))
        assert not list(folder.glob(f"tmp/{faulted_runs.ABANDONED}*"))
    assert found[0] == found[1]
    assert len(found[0]) == faulted_runs.TASKS
