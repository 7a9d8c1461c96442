"""Real runs of pytest: two workers find what one finds; Ctrl+C writes the results so far, and leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_passbench.judge.arms import processes
from support.plugin_runs import LEAN

HONEST = "return torch.nn.functional.gelu(x) + y"
# Wrong at every t. The level of a smaller error would depend on the calls that are drawn.
WRONG = "return torch.nn.functional.gelu(x) + y * 100"
EXITS = "import os; os._exit(0)"
SLOW = "import time\ntime.sleep(1)\n" + HONEST
OPTIONS = [
    "--passbench",
    "--candidate=cand",
    "--passbench-pipeline=direct",
    "--passbench-audit=off",
    "-o",
    "passbench_policy=open",
]


def given(bench, wrapper: Callable[[str], str], **bodies: str) -> list[str]:
    """Write tasks with these wrappers. Return the command line that judges them."""
    (bench.folder / "pytest.ini").write_text("[pytest]\n")
    for name, body in bodies.items():
        bench.task(name)
        bench.candidate({"p": wrapper(body)}, task=name)
    return [sys.executable, "-m", "pytest", *OPTIONS, *LEAN, "tasks"]


def results(folder: Path) -> dict:
    return json.loads(next(folder.glob("*/results.json")).read_text())


def found(run: dict) -> dict[tuple[str, str], tuple[str, list[int], bool]]:
    """Return what must not depend on the number of workers."""
    return {
        (record["task"], record["subgraph"]): (
            record["arm"]["status"],
            record["arm"]["correct_from"],
            record["arm"]["speed"] is not None,
        )
        for record in run["records"]
    }


@pytest.mark.slow
def test_two_workers_find_what_a_serial_run_finds(bench, wrapper):
    command = given(bench, wrapper, a=HONEST, b=WRONG, c=EXITS, d=HONEST)
    seen = []
    for number, more in (("1", []), ("2", ["-n2"])):
        line = [*command, "--passbench-budget=4", "--passbench-seed=7e575", *more]
        line += [f"--passbench-report-dir=reports-{number}"]
        ran = subprocess.run(line, cwd=bench.folder, capture_output=True, text=True)
        assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr
        seen.append(found(results(bench.folder / f"reports-{number}")))
    assert seen[0] == seen[1]
    assert [seen[0][name, "float32-x1"][0] for name in "abcd"] == ["ran", "ran", "crash", "ran"]
    assert seen[0]["b", "float32-x1"][1] == [99]


@pytest.mark.slow
def test_ctrl_c_writes_what_there_is_and_ends_every_sandbox(bench, wrapper):
    command = given(bench, wrapper, a=HONEST, b=SLOW)
    (bench.folder / "conftest.py").write_text(
        "def pytest_passbench_record(config, record):\n    (config.rootpath / 'seen').touch()\n"
    )
    process = subprocess.Popen(command, cwd=bench.folder, stdout=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 100
    while not (bench.folder / "seen").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    below = processes.descendants(process.pid)
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, text
    run = results(bench.folder / "reports")
    assert run["interrupted"]
    assert {record["task"] for record in run["records"]} == {"a"}
    assert below
    assert not [pid for pid in below if processes.alive(pid)]
