"""Out of a runner nothing is reached: memory, processes, files, network, the others' inputs. As root or not."""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

import pytest_passbench
from pytest_passbench.judge import processes, sandbox

HERE = Path(__file__).resolve().parent
PACKAGE = Path(pytest_passbench.__file__).resolve().parent
PROBING = "import probe\nprobe.tell()\nreturn torch.nn.functional.gelu(x) + y"
HONEST = "return torch.nn.functional.gelu(x) + y"
SLOW = "import time\ntime.sleep(0.3)\nreturn torch.nn.functional.gelu(x) + y"


def target(folder: Path, stack: ExitStack) -> tuple[str, list[object]]:
    """What the probe is to go for, as JSON, and what has to be kept alive meanwhile."""
    secret = secrets.token_bytes(32)
    kept = ctypes.create_string_buffer(secret, len(secret))
    (folder / "private").mkdir()
    (folder / "private" / "note").write_text("secret")
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
    abstract.bind(f"\0passbench-test-{os.getpid()}")
    abstract.listen()
    home = Path(os.path.expanduser("~"))
    unreadable = [str(folder / "private"), str(HERE), str(PACKAGE.parent / "pyproject.toml"), "/etc/shadow"]
    unreadable += [str(PACKAGE / name) for name in ("judge", "tasks", "forge")]
    unreadable += [str(home)] if not Path(sys.base_prefix).is_relative_to(home) else []
    wanted = {
        "judge": os.getpid(),
        "parent": os.getppid(),
        "address": ctypes.addressof(kept),
        "secret_reversed": secret[::-1].hex(),
        "unreadable": unreadable,
        "unwritable": ["/", "/usr", "/etc", "/candidate", sys.prefix, str(PACKAGE), str(folder), str(folder / "private")],
        "port": listener.getsockname()[1],
        "abstract": f"passbench-test-{os.getpid()}",
    }
    return json.dumps(wanted), [kept, secret]


def probed(bench, wrapper, folder: Path) -> str:
    """What the probing candidate printed."""
    bench.task("probed")
    bench.task("zz-next")
    os.environ["PASSBENCH_TEST_SECRET"] = "yes"
    try:
        with ExitStack() as stack:
            wanted, _kept = target(folder, stack)
            probe = (HERE / "probe.py").read_text().replace("@TARGET@", wanted)
            bench.candidate({"p": wrapper(PROBING)}, task="probed", probe=probe)
            bench.candidate({"p": wrapper(HONEST)}, task="zz-next")
            records = bench.judge(policy="open", budget=20)
    finally:
        del os.environ["PASSBENCH_TEST_SECRET"]
    arm = records["probed/float32-x1"].arm
    assert (arm.status, arm.correct_from) == ("correct", [-11]), arm
    assert records["zz-next/float32-x1"].arm.status == "correct"
    return str(arm.output)


def check(output: str) -> None:
    for phase, least in (("build", 14), ("run", 18)):
        found = re.findall(rf"PROBE {phase} (\d+) (.*)", output)
        assert found, output
        for count, reached in found:
            assert int(count) >= least
            assert reached == "[]", f"{phase}: {reached}"


def leftovers() -> set[str]:
    """Files of ours, but for the machine's locks."""
    names = [*os.listdir(tempfile.gettempdir()), *os.listdir("/dev/shm")]
    return {name for name in names if name.startswith("passbench-") and not name.endswith(".lock")}


@pytest.mark.skipif(not sandbox.walls().strong, reason="needs bubblewrap")
def test_from_a_runner_nothing_is_reached(bench, wrapper, tmp_path):
    before, kept = set(processes.descendants(os.getpid())), leftovers()
    check(probed(bench, wrapper, tmp_path))
    assert not [pid for pid in processes.descendants(os.getpid()) if pid not in before and processes.alive(pid)]
    assert leftovers() <= kept
