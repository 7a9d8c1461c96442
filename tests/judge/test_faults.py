"""Faults that are not the candidate's: they get a second attempt, and a status of their own. A fault that happens
only with the candidate's processes is the candidate's crash."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms import arm as arms
from pytest_passbench.judge.arms import processes, sandbox
from pytest_passbench.judge.arms.failures import SandboxFailed
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.session import Session
from pytest_passbench.suite.taskfile import read_task
from shared import shape_tables
from shared.workspace import AS_EAGER, GELU_ADD_KERNEL, Workspace, make_cpp_pass

CANDIDATE = "candidates-code"
PR_SET_NAME = 15
#: The name of a process can be seen from outside its sandbox.
NAMES_ITSELF = f"import ctypes\nctypes.CDLL(None).prctl({PR_SET_NAME}, b'{CANDIDATE}', 0, 0, 0)"
SETTINGS = Settings(pipeline="direct", audit="off", policy="open")


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(SETTINGS, b"a secret of the tests") as session:
        yield session


@pytest.fixture
def judged(tmp_path: Path, session: Session, wrapper: Callable[..., str]) -> Iterator[Record]:
    """Return the records of two subgraphs of an honest candidate, each judged when the iterator gets to it."""
    bench = Workspace(tmp_path)
    path = bench.task(scales=(1, 2))
    folder = bench.candidate({"p": wrapper(AS_EAGER, NAMES_ITSELF)})
    return session.judge(read_task(path), Candidate.open(folder))


def inside(name: str) -> list[int]:
    """Return the processes in an arm's sandbox by their ids outside of it, the zygote first."""
    pids = [pid for pid in processes.descendants(os.getpid()) if processes.name(pid) != "bwrap"]
    return [pid for pid in pids if f"{name:{arms.NAME_WIDTH}}".encode() in command(pid)]


def command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def is_first(pid: int) -> bool:
    """Return True for the first process of a sandbox, its zygote. There may be several sandboxes for eager."""
    with contextlib.suppress(OSError):
        return bool(re.search(r"^NSpid:.*\t1$", Path(f"/proc/{pid}/status").read_text(), re.M))
    return False


@contextlib.contextmanager
def killer(when: Callable[[], bool], most: int = 10**6, zygote: bool = False) -> Iterator[list[int]]:
    """Kill eager's processes, at most ``most``, while a condition holds. Give the list of those killed."""
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003) and len(killed) < most:
            pids = inside("eager")
            victims = [pid for pid in pids if is_first(pid) == zygote]
            if len(pids) > 2 and victims and victims[-1] not in killed and when():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victims[-1], signal.SIGKILL)
                    killed.append(victims[-1])

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("zygote", [False, True])
def test_eagers_process_that_is_killed_once_is_no_more_than_a_delay(judged, zygote):
    with killer(lambda: True, most=1, zygote=zygote) as killed:
        record = next(judged)
    assert len(killed) == 1
    assert record.correct
    assert record.arm.speed is not None
    assert next(judged).correct


@pytest.mark.slow
def test_eagers_process_that_is_always_killed_is_the_harness_failure(judged):
    with killer(lambda: True) as killed:
        record = next(judged)
    assert len(killed) > 1
    assert (record.arm.status, record.judged, record.correct) == ("harness_fail", False, False)
    assert record.arm.message.startswith("eager: the ")  # the runner, or the template that builds for it
    assert "was killed by SIGKILL" in record.arm.message
    assert "\n" not in record.arm.message
    assert record.arm.speed is None
    assert next(judged).correct  # and the next one is judged


@pytest.mark.slow
def test_a_fault_that_comes_only_while_the_candidates_code_runs_is_the_candidates(judged):
    with killer(lambda: any(processes.name(pid) == CANDIDATE for pid in inside("reader"))):
        record = next(judged)
    assert (record.arm.status, record.judged) == ("crash", True), record.arm.message
    assert "not with eager in its place" in record.arm.message
    assert next(judged).correct


@pytest.mark.slow
@pytest.mark.parametrize(("most", "seconds", "status"), [(1, 2, "ran"), (10**6, 10, "crash")])
def test_a_fault_at_a_further_size_is_tried_once_more_and_then_the_candidates(tmp_path, most, seconds, status):
    """Eager's process is killed long before the candidate has slept ``seconds``, also on a busy machine."""
    task = shape_tables.task()
    names_itself = "; ".join([*NAMES_ITSELF.splitlines(), "import time", f"time.sleep({seconds})"])
    call = f"    if tuple(x.shape) not in TABLE: {names_itself}\n{shape_tables.CALL}"
    candidate = shape_tables.candidate(tmp_path, call, task)
    with (
        Session(replace(SETTINGS, held_out=1), b"a secret of the tests") as session,
        killer(lambda: any(processes.name(pid) == CANDIDATE for pid in inside("reader")), most=most) as killed,
    ):
        record = next(session.judge(task, candidate))
    assert killed
    assert record.correct, record.arm.message
    (further,) = record.held_out
    assert (further.arm.status, further.judged) == (status, True), further.arm.message
    assert bool(record.held_out_failures) == (status == "crash")
    assert status == "ran" or "not with eager in its place" in further.arm.message


def test_a_limit_of_the_judge_that_is_lowered_ends_the_run_with_its_name(judged):
    assert next(judged).correct
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        with pytest.raises(UserError, match=rf"RLIMIT_NOFILE was {soft} of {hard} and is {soft - 1} of {hard}"):
            next(judged)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.bubblewrap
@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_a_readers_zygote_that_is_lost_once_is_no_more_than_a_delay(judged, number):
    with losing_zygotes(number, most=1) as lost:
        record = next(judged)
    assert len(lost) == 1
    assert record.correct, record.arm.message


@pytest.mark.bubblewrap
def test_a_readers_zygote_that_is_always_lost_is_the_harness_failure(judged):
    with losing_zygotes(signal.SIGKILL) as lost:
        record = next(judged)
    assert len(lost) >= 2
    assert record.arm.status == "harness_fail"
    assert "the first process of the sandbox 'reader' was killed from outside" in record.arm.message
    assert next(judged).correct


@contextlib.contextmanager
def losing_zygotes(number: signal.Signals, most: int = 10**6) -> Iterator[list[int]]:
    """Send a signal to the first process of a reader's sandbox while the candidate's code runs there."""
    lost: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003) and len(lost) < most:
            zygote, *others = inside("reader") or [0]
            if zygote not in lost and any(processes.name(pid) == CANDIDATE for pid in others):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(zygote, number)
                    lost.append(zygote)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.bubblewrap
@pytest.mark.parametrize(("most", "status"), [(1, "ran"), (10**6, "harness_fail")])
def test_a_compiler_that_is_killed_is_tried_once_more(tmp_path, most, status):
    bench = Workspace(tmp_path)
    text = f"// {secrets.token_hex(8)}\n{GELU_ADD_KERNEL}"  # never compiled before
    candidate = Candidate.open(bench.candidate({"p": make_cpp_pass(text)}))
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003) and len(killed) < most:
            for pid in processes.descendants(os.getpid()):
                if processes.name(pid) == "cc1plus":
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        killed.append(pid)

    with Session(SETTINGS, b"a secret of the tests") as session:
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            *_, record = session.judge(read_task(bench.task(shapes=((64, 256), (64, 256)))), candidate)
        finally:
            over.set()
            thread.join()
    assert killed
    assert record.arm.status == status, record.arm.message


SLEEPS = f"{NAMES_ITSELF}\nimport time\ntime.sleep(0.3)"


@pytest.mark.slow
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_reader_that_ends_where_another_candidate_was_read_is_read_in_a_new_sandbox(tmp_path, wrapper, everywhere):
    bench = Workspace(tmp_path)
    task = read_task(bench.task())
    first = Candidate.open(bench.candidate({"p": wrapper(AS_EAGER)}, name="first"))
    second = Candidate.open(bench.candidate({"p": wrapper(AS_EAGER, SLEEPS)}, name="second"))
    with Session(SETTINGS, b"a secret of the tests") as session:
        assert all(record.correct for record in session.judge(task, first))
        used = inside("reader")[0]
        with ending_readers(lambda: everywhere or used in inside("reader")) as ended:
            *_, record = session.judge(task, second)
    assert ended
    if everywhere:
        assert (record.arm.status, record.arm.phase) == ("crash", "load")
    else:
        assert record.correct, record.arm.message


@contextlib.contextmanager
def ending_readers(when: Callable[[], bool]) -> Iterator[list[int]]:
    """Kill the process that reads the candidate, by the name that the candidate gives it, while a condition holds."""
    ended: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.003):
            for pid in inside("reader"):
                if processes.name(pid) == CANDIDATE and when():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                        ended.append(pid)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
def test_a_folder_for_temporary_files_that_is_gone_is_the_harness_failure(judged, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/tmp/not/there")
    record = next(judged)
    assert record.arm.status == "harness_fail"
    assert "/tmp/not/there" in record.arm.message
    monkeypatch.undo()
    assert next(judged).correct


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exit 1", "exec sleep 60"])
@pytest.mark.skipif("not __import__('shutil').which('bwrap')", reason="takes bubblewrap")
def test_a_bubblewrap_that_no_longer_works_is_the_harness_failure(judged, session, monkeypatch, tmp_path, what):
    session.close()  # so that new sandboxes are needed
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(f"#!/bin/sh\n{what}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=os.pathsep)
    monkeypatch.setattr(arms, "START_TIMEOUT_SECONDS", 1.0)
    record = next(judged)
    assert record.arm.status == "harness_fail"
    assert "the sandbox of the arm " in record.arm.message
    monkeypatch.undo()
    assert next(judged).correct


@pytest.mark.skipif("not __import__('shutil').which('bwrap')", reason="takes bubblewrap")
def test_a_compilers_sandbox_that_does_not_start_is_no_failure_of_the_kernel(monkeypatch, tmp_path):
    (tmp_path / "bwrap").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    walls = sandbox.walls()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(SandboxFailed, match="the sandbox of the compiler did not start: it ended with 1"):
        Builder(walls, None).library('extern "C" void f(float* x) { x[0] = 1; }')
