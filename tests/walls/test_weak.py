"""Without bubblewrap: Landlock and seccomp deny what they can, and the run names them; "required" refuses to run."""

from __future__ import annotations

import os
import re
import socket
import tempfile
from pathlib import Path

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms import sandbox

PROBE = """
import ctypes, os, resource, signal, socket
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)

def tried(name, attempt):
    try:
        return "" if attempt() in (None, False) else name
    except Exception:
        return ""

def signal_judge():
    os.kill(JUDGE, 0)
    return True

def tell():
    if tell.told:
        return
    tell.told = True
    reached = [
        tried("network", lambda: socket.create_connection(("127.0.0.1", PORT), 2)),
        tried("private", lambda: open(PRIVATE).read()),
        tried("home", lambda: os.listdir(os.path.dirname(PRIVATE))),
        tried("write", lambda: Path(PRIVATE).write_text("x")),
        tried("tmp", lambda: Path("/tmp/written-by-a-candidate").write_text("x")),
        tried("candidate", lambda: Path(CANDIDATE, "more.py").write_text("x")),
        tried("memory", lambda: open(f"/proc/{JUDGE}/mem", "rb")),
        tried("environment", lambda: open(f"/proc/{JUDGE}/environ", "rb").read()),
        tried("trace", lambda: libc.ptrace(16, JUDGE, None, None) == 0),
        tried("mount", lambda: libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0),
        tried("limits", lambda: resource.prlimit(JUDGE, resource.RLIMIT_NOFILE)),
        tried("priority", lambda: os.setpriority(os.PRIO_PROCESS, JUDGE, 0) or True),
        tried("cores", lambda: os.sched_setaffinity(JUDGE, os.sched_getaffinity(JUDGE)) or True),
        tried("shared memory", lambda: libc.shmget(0, 4096, 0o1600) >= 0),
        tried("signal", signal_judge),
    ]
    Path(os.environ["TMPDIR"], "mine").write_text("scratch can be written")
    print("REACHED", [name for name in reached if name], os.environ["TMPDIR"], flush=True)

tell.told = False
"""


@pytest.fixture
def without_bubblewrap(monkeypatch):
    monkeypatch.setattr(sandbox.shutil, "which", lambda _name: None)
    sandbox.walls.cache_clear()
    yield
    sandbox.walls.cache_clear()


def test_required_refuses_with_one_message(without_bubblewrap):
    with pytest.raises(UserError) as caught:
        sandbox.require("required")
    message = str(caught.value)
    assert "bubblewrap is not installed" in message
    assert "passbench_sandbox = required" in message
    assert "\n" not in message.strip()


def test_the_weak_form_says_what_holds(without_bubblewrap):
    words = str(sandbox.require("auto"))
    assert words.startswith("weak (bubblewrap is not installed; ")
    assert "Landlock" in words
    assert "seccomp" in words


def test_the_weak_form_holds_what_it_says(without_bubblewrap, bench, wrapper, tmp_path):
    private = tmp_path / "private"
    private.mkdir()
    (private / "note").write_text("secret")
    bench.task("weak")
    with socket.create_server(("127.0.0.1", 0)) as server:
        head = f"JUDGE, PORT, PRIVATE = {os.getpid()}, {server.getsockname()[1]}, {str(private / 'note')!r}\n"
        head += f"CANDIDATE = {str(bench.folder / 'cand')!r}\n"
        body = "import probe\nprobe.tell()\nreturn torch.nn.functional.gelu(x) + y"
        bench.candidate({"p": wrapper(body)}, task="weak", probe=head + PROBE)
        arm = bench.judge(policy="open", budget=15)["weak/float32-x1"].arm
    assert (arm.status, arm.correct_from) == ("ran", [-11]), arm
    reached, scratch = re.search(r"REACHED (\[.*?\]) (\S+)", arm.output).groups()
    assert reached == ("[]" if "signals" in str(sandbox.walls()) else "['signal']")
    scratch = Path(scratch)
    assert scratch.is_relative_to(tempfile.gettempdir())
    assert not scratch.exists()
