"""The judge's own process: it is lost, interrupted, and not the only one on the machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pytest_passbench
from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms import processes
from shared.workspace import Workspace, make_cpp_pass
from support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(300)]


@pytest.fixture
def bench(tmp_path) -> Workspace:
    made = Workspace(tmp_path)
    for name in ("one", "two"):
        made.task(name, scales=(1, 2))
    made.candidate({"p": make_cpp_pass()})
    made.candidate({"p": "import time\ntime.sleep(1000)\n" + make_cpp_pass()}, "stalls")
    return made


def servers(pid: int) -> list[int]:
    """Return the ids of the judges' processes below a process."""
    found = processes.descendants(pid)
    return [one for one in found if b"api.backend" in Path(f"/proc/{one}/cmdline").read_bytes()]


def test_a_process_that_is_lost_is_replaced_once(bench):
    with pytest_passbench.Evaluator(bench.tasks, pipeline="direct") as evaluator:
        killed: list[int] = []

        def kill_once(_record):
            if not killed:
                killed.extend(servers(os.getpid()))
                os.kill(killed[0], signal.SIGKILL)

        run = evaluator.evaluate(bench.folder / "cand", on_record=kill_once)
        assert killed
        assert [record.correct for record in run.records] == [True] * 4

        def kill(_record):
            os.kill(servers(os.getpid())[0], signal.SIGKILL)

        with pytest.raises(UserError, match="the judge's process was lost twice: it ended by SIGKILL"):
            evaluator.evaluate(bench.folder / "cand", on_record=kill)
        assert evaluator.evaluate(bench.folder / "cand", bench.tasks / "one.task.yaml").score("correct") == 1.0


SCRIPT = """
import sys, pytest_passbench
bench = sys.argv[1]
with pytest_passbench.Evaluator(f"{bench}/tasks/one.task.yaml", pipeline="direct") as evaluator:
    for name in sys.argv[2:]:
        print("begin", flush=True)
        try:
            print(evaluator.evaluate(f"{bench}/{name}").score("correct"), flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def start(bench: Workspace, *names: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, str(bench.folder), *names]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def test_two_processes_judge_at_once(bench):
    both = [start(bench, "cand", "cand") for _ in range(2)]
    assert [process.communicate()[0].split() for process in both] == [["begin", "1.0"] * 2] * 2


def test_after_an_interruption_the_next_call_is_judged_and_nothing_outlives_its_process(bench):
    process = start(bench, "stalls", "cand", "stalls")
    assert process.stdout is not None
    assert process.stdout.readline() == "begin\n"
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    assert [process.stdout.readline() for _ in range(3)] == ["interrupted\n", "begin\n", "1.0\n"]
    inside = processes.descendants(process.pid)
    assert len(inside) > 3
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 20
    while any(map(processes.alive, inside)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(processes.alive, inside))
