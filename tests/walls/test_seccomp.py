"""The filters of the untrusted side, tried with system calls: what they deny, and that computing still works."""

from __future__ import annotations

import json
import platform
import signal
import subprocess
import sys

import pytest

from pytest_passbench.judge.arms import sandbox
from pytest_passbench.walls.syscalls import OF_ITSELF, SIGNALS, SYSCALL_TABLES
from support.paths import TESTS

pytestmark = pytest.mark.skipif(platform.machine() not in SYSCALL_TABLES, reason="no filters for this machine")
JIT = {"executable memory", "memory made executable"}
#: System calls that the machine may refuse without our filters, too.
UNCERTAIN = {"child in a namespace", "clone3", "terminal of one's own", "message queue",
             "another's limits", "another's memory moved", "named queue", "keyring",
             "watches of file systems"}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(TESTS / "support" / "seccomp_program.py"), *arguments]
    return subprocess.run(program, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)


def tried(*arguments: str) -> list[dict[str, str]]:
    ran = run(*arguments)
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def refused(outcomes: dict[str, str]) -> set[str]:
    return {name for name, outcome in outcomes.items() if outcome in ("EPERM", "ENOSYS")}


def test_the_ways_to_be_continued_are_there_without_a_filter():
    (free,) = tried("none")
    assert len(free) >= 15
    assert refused(free) <= UNCERTAIN


def test_whoever_sees_a_candidate_can_build_but_neither_be_continued_nor_change_others():
    (outcomes,) = tried("untrusted")
    building = {"child", "file to read", "thread"}
    building |= {"limits of one's own", "cores of one's own", "cores of another", "scheduler of one's own"}
    assert {outcomes.pop(name) for name in building} == {"done"}
    assert refused(outcomes) == set(outcomes)


def test_a_measured_process_computes_and_does_nothing_else():
    (outcomes,) = tried("measured", "1")
    assert outcomes.pop("compute") == "done"
    assert refused(outcomes) == set(outcomes)


def test_one_of_several_threads_may_start_them_and_make_code_in_its_first_block():
    first, then = tried("measured", "2")
    assert then.pop("code that can be written") == "EFAULT"
    for outcomes, more in ((first, {*JIT, "another filter", "reading"}), (then, set())):
        assert outcomes["compute"] == outcomes["thread"] == "done"
        assert set(outcomes) - refused(outcomes) == {"compute", "thread", *more}


def test_a_measured_process_that_aborts_says_so():
    assert run("measured", "1", "abort").returncode == -signal.SIGABRT


def test_no_sandbox_starts_where_the_kernel_refuses_the_filters():
    ran = run("refused")
    assert ran.returncode == 1
    assert ran.stderr == "the kernel refuses a filter of system calls (seccomp)\n"


@pytest.mark.skipif("no Landlock" in sandbox.weak_protection(), reason="no Landlock")
def test_rules_of_landlock_that_the_kernel_refuses_end_a_process():
    ran = run("rules")
    assert ran.returncode == 1
    assert ran.stderr.endswith("the kernel refuses rules of Landlock\n")


def test_both_machines_have_numbers_for_all_that_the_filters_name():
    for machine in SYSCALL_TABLES.values():
        named = {name for name, _argument in SIGNALS}
        named |= {*machine.denied, *OF_ITSELF, *machine.allowed, *machine.processes}
        named |= {"socket", "clone", "clone3", "fcntl", "ioctl", "prctl", "mmap", "mprotect", "seccomp"}
        assert named <= set(machine.calls)
        assert len(set(machine.calls.values())) == len(machine.calls)
