"""Which cores the arms of a run's workers get, where their processes are forked, and that none falls asleep."""

from __future__ import annotations

import os
import stat
import tempfile
import time

import pytest

from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.watch import wait_stopped
from pytest_passbench.judge.machine.cores import Awake, Cores, exclusive


@pytest.fixture
def machine(monkeypatch):
    """Return a function that pretends a machine with so many cores, and returns the cores that its workers choose."""

    def chosen(count: int, threads: int, workers: int) -> list[Cores]:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(count)))
        return [Cores.choose(threads, worker) for worker in range(workers)]

    return chosen


@pytest.mark.parametrize(("count", "threads", "workers"), [(2, 1, 1), (4, 1, 3), (16, 1, 8), (16, 2, 7), (64, 4, 8)])
def test_no_two_workers_share_a_core_and_none_forks_on_anothers(machine, count, threads, workers):
    everyone = machine(count, threads, workers)
    for number, cores in enumerate(everyone):
        others = set().union(*(other.arms for other in everyone[:number] + everyone[number + 1 :]))
        assert len(cores.arms) == threads
        assert not others & {*cores.arms, *cores.forking}
        assert cores.arms < set(cores.forking)
        assert not cores.judge & cores.arms


@pytest.mark.parametrize(("count", "threads"), [(1, 1), (2, 2), (2, 8)])
def test_a_machine_with_too_few_cores_shares_them(machine, count, threads):
    (cores,) = machine(count, threads, 1)
    assert cores.arms == set(range(count)) == set(cores.forking)
    assert cores.judge


def works_beyond(pid: int, seconds: float) -> bool:
    """Return True once a process has used the CPU for longer than ``seconds``. Wait for at most 10 s."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if processes.cpu_seconds(processes.cpu_clock(pid)) > seconds:
            return True
        time.sleep(0.05)
    return False


def test_a_core_is_kept_awake_by_what_gives_way_to_everything_and_ends_with_us():
    core = max(os.sched_getaffinity(0))
    others = set(processes.descendants(os.getpid()))
    awake = Awake([core])
    with awake.on():
        (pid,) = set(processes.descendants(os.getpid())) - others
        assert os.sched_getaffinity(pid) == {core}
        assert os.getpgid(pid) != os.getpgrp()  # else the kernel sends SIGHUP to us all when it is stopped
        assert os.sched_getscheduler(pid) == os.SCHED_IDLE
        before = processes.cpu_seconds(processes.cpu_clock(pid))
        assert works_beyond(pid, before)
        with awake.off():  # ordinary processes must not wait for its time slice
            wait_stopped(pid)
            still = processes.cpu_seconds(processes.cpu_clock(pid))
        assert works_beyond(pid, still)
    wait_stopped(pid)
    with awake.on():
        assert set(processes.descendants(os.getpid())) - others == {pid}  # the same again
    awake.close()
    assert set(processes.descendants(os.getpid())) <= others


def test_a_lock_is_everybodys_whatever_the_umask_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0o077)
    try:
        with exclusive(["core-0"]):
            (lock,) = tmp_path.iterdir()
            assert stat.S_IMODE(lock.stat().st_mode) == 0o666
    finally:
        os.umask(before)


def test_a_slice_of_a_gpu_has_a_lock_though_its_name_has_slashes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-GPU-5f/1/0")
    with exclusive(Cores.choose(1).locks("cuda")):
        assert len(list(tmp_path.iterdir())) == 2  # the device's lock, and a core's


def test_another_file_that_has_a_locks_name_too_keeps_its_mode(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    (tmp_path / "passbench-core-0.lock").hardlink_to(secret)
    with exclusive(["core-0"]):
        assert stat.S_IMODE(secret.stat().st_mode) == 0o600
