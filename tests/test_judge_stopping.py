"""Whether a process is stopped, all of it, and what else used the CPU meanwhile."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_passbench.judge import processes
from pytest_passbench.judge.audits import timing
from pytest_passbench.judge.others import Others
from pytest_passbench.judge.watch import Watch

#: Threads that start threads, as long as they may.
RESTLESS = """
import threading
def again():
    while True:
        thread = threading.Thread(target=sum, args=(range(1000),))
        thread.start()
        thread.join()
for _ in range(6):
    threading.Thread(target=again, daemon=True).start()
print("ready", flush=True)
again()
"""


@pytest.fixture
def restless() -> Iterator[int]:
    process = subprocess.Popen([sys.executable, "-c", RESTLESS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.kill()
    process.wait()
    process.stdout.close()


def states(pid: int) -> set[str]:
    paths = [Path(f"/proc/{pid}/task/{thread}/stat") for thread in processes.threads(pid)]
    return {path.read_text().rpartition(")")[2].split()[0] for path in paths}


def test_a_process_is_stopped_when_each_of_its_threads_is(restless):
    watch = Watch(restless)
    try:
        for wait in (watch.wait_stopped, lambda: processes.wait_stopped(restless)) * 20:
            processes.stop(restless)
            wait()
            assert states(restless) == {"T"}
            assert watch.waited() >= 0
            processes.go_on(restless)
            time.sleep(0.005)
    finally:
        watch.close()


def test_what_runs_beside_a_runner_is_found_out(restless):
    class Clock:
        others = Others()

    clock = Clock()
    processes.stop(restless)
    processes.wait_stopped(restless)
    for _ in range(3):
        clock.others.begin({"candidate": [restless]})
        time.sleep(0.02)
        clock.others.end()
    assert [used.cpu for used in clock.others.used["candidate"]] == [0.0] * 3
    assert timing.others(clock, "candidate") == []
    processes.go_on(restless)
    clock.others.begin({"candidate": [restless]})
    time.sleep(0.1)
    (found,) = timing.others(clock, "candidate")
    assert (found.layer, found.rule, found.severity) == ("clock", "other-cpu", "violation")
    assert "1 of 4 pairs" in found.message


THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"


def test_a_thread_that_a_pass_leaves_behind_is_no_honest_one(bench, wrapper):
    for name, head in (("a-thread", THREAD), ("b-honest", "import threading")):
        bench.task(name)
        bench.candidate({"p": wrapper("return torch.nn.functional.gelu(x) + y", head)}, task=name)
    records = bench.judge(policy="open", budget=10)
    arm = records["a-thread/float32-x1"].arm
    assert (arm.status, arm.speed) == ("integrity", None)
    assert "1 threads are left behind" in arm.message
    assert records["b-honest/float32-x1"].arm.status == "correct"


def test_a_template_is_stopped_between_one_runner_and_the_next(bench, gelu_add_pass, monkeypatch):
    from pytest_passbench.judge import clock

    seen, fork_all = [], clock.fork_all

    def noted(templates, *arguments):
        before = [states(template.pid) for template in templates.values()]
        runners = fork_all(templates, *arguments)
        seen.extend([*before, *(states(template.pid) for template in templates.values())])
        return runners

    monkeypatch.setattr(clock, "fork_all", noted)
    bench.task()
    bench.candidate({"p": gelu_add_pass})
    records = bench.judge(budget=3)
    assert [record.arm.status for record in records.values()] == ["correct"]
    assert seen
    assert all(state == {"T"} for state in seen)
