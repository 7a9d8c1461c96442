"""A reader reaches nothing outside its sandbox: no memory, processes, files, network or inputs, as root or not."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

import pytest_passbench
from pytest_passbench.judge.arms import processes, sandbox
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.arms.failures import SandboxFailed
from support.paths import SHARED, TESTS

PACKAGE = Path(pytest_passbench.__file__).resolve().parent
#: Where other processes find the package, this module and the helpers.
IMPORTS = os.pathsep.join(map(str, (PACKAGE.parent, TESTS, SHARED.parent, Path(__file__).parent)))
PROBING = "import probe\nprobe.tell()\nreturn torch.nn.functional.gelu(x) + y"
HONEST = "return torch.nn.functional.gelu(x) + y"


def target(folder: Path, stack: ExitStack) -> tuple[str, list[object]]:
    """Return what the probe tries to reach, as JSON, and the objects that have to stay alive meanwhile."""
    secret = secrets.token_bytes(32)
    kept = ctypes.create_string_buffer(secret, len(secret))
    (folder / "private").mkdir()
    (folder / "private" / "note").write_text("secret")
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
    abstract.bind(f"\0passbench-test-{os.getpid()}")
    abstract.listen()
    home = Path.home()
    unreadable = [str(folder / "private"), str(TESTS), str(PACKAGE.parent / "pyproject.toml"), "/etc/shadow"]
    unreadable += [str(PACKAGE / name) for name in ("judge", "tasks", "forge")]
    unreadable += [str(home)] if not Path(sys.base_prefix).is_relative_to(home) else []
    wanted = {
        "judge": os.getpid(),
        "parent": os.getppid(),
        "address": ctypes.addressof(kept),
        "secret_reversed": secret[::-1].hex(),
        "unreadable": unreadable,
        "unwritable": ["/", "/usr", "/etc", sys.prefix, str(PACKAGE), str(folder), unreadable[0]],
        "port": listener.getsockname()[1],
        "abstract": f"passbench-test-{os.getpid()}",
    }
    return json.dumps(wanted), [kept, secret]


def probed(bench, wrapper, folder: Path) -> str:
    """Return what the probing candidate printed."""
    bench.task("probed")
    bench.task("zz-next")
    os.environ["PASSBENCH_TEST_SECRET"] = "yes"
    try:
        with ExitStack() as stack:
            wanted, _kept = target(folder, stack)
            probe = (TESTS / "support" / "escaping_candidate.py").read_text().replace("@TARGET@", wanted)
            bench.candidate({"p": wrapper(PROBING)}, task="probed", probe=probe)
            bench.candidate({"p": wrapper(HONEST)}, task="zz-next")
            records = bench.judge(policy="open", budget=20)
    finally:
        del os.environ["PASSBENCH_TEST_SECRET"]
    record = records["probed/float32-x1"]
    assert record.correct, record.arm
    assert records["zz-next/float32-x1"].correct
    return str(record.arm.output)


def check(output: str) -> None:
    found = re.findall(r"PROBE (\d+) (.*)", output)
    assert found, output
    for count, reached in found:
        assert int(count) >= 15
        assert reached == "[]"


def leftovers() -> set[str]:
    """Return the names of our temporary files, without the machine's locks."""
    folders = Path(tempfile.gettempdir()), Path("/dev/shm")
    names = [path.name for folder in folders for path in folder.iterdir()]
    return {name for name in names if name.startswith("passbench-") and not name.endswith(".lock")}


@pytest.mark.slow
@pytest.mark.sample
@pytest.mark.bubblewrap
def test_from_a_reader_nothing_is_reached(bench, wrapper, tmp_path, monkeypatch):
    (tmp_path / "own").mkdir()  # other judges may be at work beside this one
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    before, kept = set(processes.descendants(os.getpid())), leftovers()
    check(probed(bench, wrapper, tmp_path))
    assert not [pid for pid in processes.descendants(os.getpid()) if pid not in before and processes.alive(pid)]
    assert leftovers() <= kept


@pytest.mark.bubblewrap
@pytest.mark.root
def test_an_ordinary_user_is_as_safe():
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as scratch:
        for folder in (home, scratch):
            os.chown(folder, 65534, 65534)
        environment = {**os.environ, "HOME": home, "TMPDIR": scratch, "PYTHONPATH": IMPORTS}
        command = [sys.executable, "-c", "import test_isolation as test; test.alone()", home]
        nobody = {"user": 65534, "group": 65534, "extra_groups": [], "cwd": home, "env": environment}
        ran = subprocess.run(command, **nobody, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        check(ran.stdout)


def alone() -> None:
    """Run the probe without pytest, in the folder that is the first argument."""
    from shared.workspace import Workspace, make_wrapper

    folder = Path(sys.argv[1])
    print(probed(Workspace(folder), make_wrapper, folder))


def runners(arm: str) -> list[int]:
    """Return the measured runners of an arm below this process: those with both filters."""
    found = []
    for pid in processes.descendants(os.getpid()):
        try:
            status = Path(f"/proc/{pid}/status").read_text()
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if f"\0{arm} ".encode() in line and re.search(r"Seccomp_filters:\t2", status):
            found.append(pid)
    return found


def working(pid: int) -> bool:
    """Return True if a runner is in its block. One that waits for its turn is stopped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:
        return False


def computed(pid: int) -> float:
    """Return the seconds that a process has used the CPU, 0 if it is gone."""
    with suppress(processes.Gone):
        return processes.cpu_seconds(processes.cpu_clock(pid))
    return 0.0


def kill_a_runner(killed: list[int]) -> None:
    """Kill a runner in the middle of a call: one that has computed for longer than an honest block takes."""
    first: dict[int, float] = {}
    deadline = time.monotonic() + 120
    while not killed and time.monotonic() < deadline:
        for pid in runners("candidate"):
            seconds = computed(pid)
            if working(pid) and seconds > first.setdefault(pid, seconds) + 0.25:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
                break
        time.sleep(0.02)


@pytest.mark.slow
def test_a_killed_runner_is_one_crash_and_the_rest_are_judged(bench, wrapper, gelu_add_pass):
    idle = "for (volatile int64_t k = 0; k < 2000000000; k = k + 1) {}"
    slow = gelu_add_pass.replace("{\n    for", f"{{\n    {idle}\n    for", 1)
    for name, text in (("a-first", wrapper(HONEST)), ("b-slow", slow), ("c-last", wrapper(HONEST))):
        bench.task(name)
        bench.candidate({"p": text}, task=name)
    killed: list[int] = []
    thread = threading.Thread(target=kill_a_runner, args=(killed,))
    thread.start()
    records = bench.judge(policy="open", budget=30)
    thread.join()
    statuses = [records[f"{name}/float32-x1"].arm.status for name in ("a-first", "b-slow", "c-last")]
    assert killed
    assert sorted(statuses) == ["crash", "ran", "ran"]
    crashed = next(record.arm for record in records.values() if record.arm.status == "crash")
    assert "SIGKILL" in crashed.message
    assert crashed.speed is None


ORPHANS = """
import os, time
for length in (0, 60):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(length)
        os._exit(0)
    os.wait()
"""
LISTS = """
import pathlib
states = [path.read_text().rpartition(")")[2].split()[0] for path in pathlib.Path("/proc").glob("[0-9]*/stat")]
print("STATES", len(states), [state for state in states if state in "ZX"], flush=True)
"""


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_process_1_is_our_zygote_and_buries_what_nobody_else_does(bench, wrapper):
    for name, head in (("a-orphans", ORPHANS), ("b-lists", LISTS)):
        bench.task(name)
        bench.candidate({"p": wrapper(HONEST, head=head)}, task=name)
    records = bench.judge(policy="open", budget=20)
    assert all(record.correct for record in records.values())
    assert records["b-lists/float32-x1"].arm.output.startswith("STATES 2 []")  # the zygote and the reader


def starter(program: str, folder: Path | None = None) -> subprocess.Popen[str]:
    """Start a process of this interpreter in this folder, which starts a sandbox and waits."""
    command = [program, "-c", "import test_isolation as test; test.start_and_wait()"]
    environment = {**os.environ, "PYTHONPATH": IMPORTS}
    return subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)


@pytest.mark.bubblewrap
def test_a_sandbox_ends_with_who_started_it():
    with starter(sys.executable) as started:
        assert started.stdout is not None
        zygote = int(started.stdout.readline())
        assert processes.alive(zygote)
        assert processes.inner(zygote) == 1
        started.kill()
    deadline = time.monotonic() + 10
    while processes.alive(zygote) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not processes.alive(zygote)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("delays", [(0, 5), pytest.param(range(1, 20, 3), marks=pytest.mark.slow)])
def test_a_sandbox_that_is_struck_while_it_starts_leaves_no_process(delays):
    name = f"struck-{os.getpid()}"
    for milliseconds in delays:
        arm = Arm(ArmSettings(name, "cpu", 1, "direct", sandbox.walls(), 60.0))
        time.sleep(milliseconds / 1000)
        os.kill(arm._process.pid, signal.SIGKILL)
        if milliseconds % 2:
            with pytest.raises(SandboxFailed):
                arm.ready()
        arm.close()
    deadline = time.monotonic() + 60  # a process that imports modules notices the closed channel afterwards
    while named(name) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not named(name)


@pytest.mark.bubblewrap
@pytest.mark.parametrize(("strikes", "strong"), [(1, True), (99, False)])
def test_a_trial_of_bubblewrap_that_is_killed_is_repeated_and_never_hushed_up(tmp_path, monkeypatch, strikes, strong):
    program, counter = tmp_path / "bwrap", tmp_path / "runs"
    program.write_text(f"#!/bin/sh\necho >> {counter}\n[ $(wc -l < {counter}) -gt {strikes} ] || kill -9 $$\n"
                       f'exec {shutil.which("bwrap")} "$@"\n')  # fmt: skip
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    walls = sandbox.walls.__wrapped__()
    assert walls.strong == strong
    assert strong or "killed by signal 9" in walls.reason


def named(word: str) -> list[int]:
    """Return the ids of the processes with a word in their command line."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in path.read_bytes():
                pids.append(int(path.parent.name))
    return pids


@pytest.mark.bubblewrap
def test_an_interpreter_may_be_named_by_a_path_through_folders_that_no_sandbox_has(tmp_path):
    path = os.path.relpath(sys.executable, tmp_path)
    assert path.startswith("..")
    with starter(path, tmp_path) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        started.kill()
    assert line.strip().isdigit()


def start_and_wait() -> None:
    """Start an arm without a candidate, print its zygote's process id, and wait to be killed."""
    arm = Arm(ArmSettings("eager", "cpu", 1, "direct", sandbox.walls(), 60.0))
    arm.ready()
    print(arm.zygote, flush=True)
    time.sleep(60)


BREEDS = """
import os, threading, time
bred = []
def breed():
    while True:
        bred.append(os.fork())
        if bred[-1] == 0:
            time.sleep(60)
            os._exit(0)
        time.sleep(0.002)
threading.Thread(target=breed, daemon=True).start()
while len(bred) < 200:
    time.sleep(0.01)
"""


@pytest.mark.slow
@pytest.mark.bubblewrap
def test_a_pass_that_goes_on_starting_processes_is_ended_and_the_next_is_judged(bench, wrapper):
    for name, head in (("a-breeds", BREEDS), ("b-honest", "")):
        bench.task(name)
        bench.candidate({"p": wrapper(HONEST, head=head)}, task=name)
    records = bench.judge(policy="open", budget=20)
    arm = records["a-breeds/float32-x1"].arm
    assert (arm.status, arm.phase) == ("crash", "load")
    assert "processes" in arm.message
    assert records["b-honest/float32-x1"].correct
