"""The check that all threads of a process are stopped, and what else used the CPU meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.watch import Watch, wait_stopped
from pytest_passbench.judge.audits import evidence
from pytest_passbench.judge.machine.process import Preference, allowed, prefer
from pytest_passbench.judge.measure.cpu_clock import Others
from shared.workspace import GELU_ADD_KERNEL, make_cpp_pass

#: Threads that start threads without end.
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


@pytest.mark.slow
def test_a_process_that_gets_no_turn_for_six_seconds_is_waited_for():
    late = "import os, signal, time; time.sleep(6); os.kill(os.getpid(), signal.SIGSTOP)"
    process = subprocess.Popen([sys.executable, "-c", late])
    try:
        wait_stopped(process.pid)
        Watch(process.pid).wait_stopped()
    finally:
        process.kill()
        process.wait()


def test_the_next_instruction_of_a_stopped_process_is_in_its_machine_code():
    endless = "print(1, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            watch, addresses = Watch(process.pid), set()
            for _ in range(20):
                processes.stop(process.pid)
                watch.wait_stopped()
                addresses.update(watch.instructions())
                processes.go_on(process.pid)
            code = processes.mapped_code(process.pid)
            assert all(any(mapping.holds(address) for mapping in code) for address in addresses)
            watch.close()
        finally:
            process.kill()
    assert watch.instructions() == []


def test_a_stopped_process_is_seen_as_such():
    process = subprocess.Popen(["sleep", "60"])
    watch = Watch(process.pid)
    try:
        with pytest.raises(processes.Gone):
            watch.wait_stopped(limit=0.01)
        os.kill(process.pid, signal.SIGSTOP)
        watch.wait_stopped()
        assert watch.waited() >= 0
    finally:
        process.kill()
        process.wait()
    with pytest.raises(processes.Gone):
        watch.waited()
    watch.close()


def test_a_process_on_the_judges_core_stops_although_both_have_real_time_priority():
    if not allowed():
        pytest.skip("needs real-time priority")
    cores, preference = os.sched_getaffinity(0), Preference()
    endless = "print(1, flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", endless], stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            watch = Watch(process.pid)
            preference.begin()
            for pid in (0, process.pid):
                os.sched_setaffinity(pid, {max(cores)})
            prefer(process.pid)
            processes.stop(process.pid)
            watch.wait_stopped(limit=2)
        finally:
            os.sched_setaffinity(0, cores)
            preference.end()
            process.kill()
    watch.close()


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
        for wait in (watch.wait_stopped, lambda: wait_stopped(restless)) * 20:
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
    wait_stopped(restless)
    for _ in range(3):
        clock.others.begin({"candidate": [restless]})
        time.sleep(0.02)
        clock.others.end()
    assert [cpu for cpu, _wall in clock.others.used["candidate"]] == [0.0] * 3
    assert evidence.others(clock, "candidate") == []
    processes.go_on(restless)
    clock.others.begin({"candidate": [restless]})
    time.sleep(0.1)
    (found,) = evidence.others(clock, "candidate")
    assert (found.layer, found.rule, found.severity) == ("clock", "other-cpu", "violation")
    assert "1 of 4 pairs" in found.message


SPINNING = """
import threading

def spin():
    while True:
        pass

threading.Thread(target=spin, daemon=True).start()
"""


def test_what_a_pass_starts_while_it_is_read_stands_still_while_blocks_run(bench, wrapper, monkeypatch):
    from pytest_passbench.judge.measure.cpu_clock import CpuClock
    from pytest_passbench.judge.planning.reader_process import ReaderProcess

    bench.task()
    bench.candidate({"p": wrapper("return torch.nn.functional.gelu(x) + y", SPINNING)})
    readers, seen, freeze = [], [], ReaderProcess.freeze

    def noted(reader):
        readers.append(reader.arm)
        freeze(reader)

    def watched(do):
        def watching(self, *arguments, **named):
            seen.append([states(pid) for arm in readers for pid in arm.everything_inside()])
            return do(self, *arguments, **named)

        return watching

    monkeypatch.setattr(ReaderProcess, "freeze", noted)
    monkeypatch.setattr(CpuClock, "fork", watched(CpuClock.fork))  # before the blocks of a pair
    monkeypatch.setattr(CpuClock, "close", watched(CpuClock.close))  # after all blocks
    records = bench.judge(policy="open")
    assert records["gelu-add/float32-x1"].correct
    assert seen
    assert all(found and all(set(each) == {"T"} for each in found) for found in seen)


@pytest.mark.slow
def test_a_template_is_stopped_between_one_runner_and_the_next(bench, gelu_add_pass, monkeypatch):
    from pytest_passbench.judge.measure import cpu_clock

    seen, fork_all = [], cpu_clock.fork_all

    def noted(templates, *arguments):
        before = [states(template.pid) for template in templates.values()]
        runners = fork_all(templates, *arguments)
        seen.extend([*before, *(states(template.pid) for template in templates.values())])
        return runners

    monkeypatch.setattr(cpu_clock, "fork_all", noted)
    bench.task()
    bench.candidate({"p": gelu_add_pass})
    records = bench.judge()
    assert [record.correct for record in records.values()] == [True]
    assert seen
    assert all(state == {"T"} for state in seen)


@pytest.mark.slow
def test_a_pool_of_threads_that_waits_for_work_spinning_is_not_accused(bench):
    loop = "for (int64_t i"
    kernel = GELU_ADD_KERNEL.replace(loop, f"\n#pragma omp parallel for\n    {loop}")
    bench.task(shapes=((8, 256), (8, 256)))
    bench.candidate({"p": make_cpp_pass(kernel).replace("''')", "''', openmp=True)")})
    (record,) = bench.judge(threads=2, audit="standard").values()
    assert record.correct, record.arm
    assert not [finding for finding in record.findings if finding.layer == "clock"]
