"""The machine code that a process has mapped: what it has beside its ancestor's, but for installed files."""

from __future__ import annotations

import mmap
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_passbench.judge.arms import machine_code
from pytest_passbench.judge.arms.processes import Gone

PROGRAM = """
import ctypes, mmap, os, sys
pid = os.fork()
if pid == 0:
    if len(sys.argv) > 1:
        memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
        kernel = os.memfd_create("kernel")
        os.write(kernel, open(sys.argv[1], "rb").read())
        libraries = ctypes.CDLL(f"/proc/self/fd/{kernel}"), ctypes.CDLL(sys.argv[1])
    print(os.getpid(), os.getppid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(pid, 0)
"""


@contextmanager
def forked(*library: Path):
    """Yield the ids of a process and of its parent. The first has mapped further code if ``library`` is given."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield tuple(map(int, process.stdout.readline().split()))
        process.stdin.close()


def test_a_fork_has_added_nothing():
    with forked() as (pid, parent):
        assert machine_code.mapped(pid)
        assert not machine_code.added(pid, parent)


def test_memory_with_code_and_files_without_a_path_are_added(tmp_path):
    source, library = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text("int own(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    with forked(library) as (pid, parent):
        added = machine_code.added(pid, parent)
    # The library itself is a file that the judge finds at the same path.
    assert sorted(mapping.path for mapping in added) == ["", "/memfd:kernel (deleted)"]
    start = next(mapping.start for mapping in added if not mapping.path)
    assert machine_code.holds(added, start)
    assert machine_code.holds(added, start + mmap.PAGESIZE - 1)
    assert not machine_code.holds(added, 1)


def test_a_process_that_ended_is_gone():
    with forked() as (pid, _parent):
        pass
    with pytest.raises(Gone, match=str(pid)):
        machine_code.mapped(pid)
