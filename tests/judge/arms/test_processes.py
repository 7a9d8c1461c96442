"""The pages of a private mapping that a process has written to, and the machine code that it has mapped."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.judge.arms.processes import PAGE, Gone, added_code, mapped_code, own_pages

PAGES = 32
BYTES = st.integers(0, 9 * PAGE)


@given(written=st.sets(st.integers(0, PAGES * PAGE - 1)), first=BYTES, size=BYTES.filter(bool))
def test_what_was_written_lies_in_the_ranges_and_what_was_only_read_does_not(written, first, size):
    fd = os.memfd_create("pages")
    os.ftruncate(fd, PAGES * PAGE)
    with mmap.mmap(fd, PAGES * PAGE, flags=mmap.MAP_PRIVATE) as pages:
        os.close(fd)
        sum(pages[::PAGE])
        for place in written:
            pages[place] = 1
        view = ctypes.c_char.from_buffer(pages)
        found = own_pages(os.getpid(), ctypes.addressof(view) + first, size)
        del view
    whole = {place // PAGE for place in written}
    assert found is not None
    assert [place for own in found for place in own] == [
        place for place in range(size) if (first + place) // PAGE in whole
    ]


def test_nothing_is_known_of_a_process_that_is_not_there():
    assert own_pages(1 << 22, 0, PAGE) is None


PROGRAM = """
import ctypes, mmap, os, sys
before = ctypes.CDLL(sys.argv[2]) if len(sys.argv) > 2 else None
pid = os.fork()
if pid == 0:
    if len(sys.argv) > 1:
        memory = mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)
        kernel = os.memfd_create("kernel")
        os.write(kernel, open(sys.argv[1], "rb").read())
        libraries = ctypes.CDLL(f"/proc/self/fd/{kernel}"), ctypes.CDLL(sys.argv[1])
        if len(sys.argv) > 2:
            page = ctypes.cast(before.own, ctypes.c_void_p).value & -mmap.PAGESIZE
            for access in mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ | mmap.PROT_EXEC:
                ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, access)
                if access & mmap.PROT_WRITE:
                    ctypes.memset(page, 0x90, 1)
    print(os.getpid(), os.getppid(), flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(pid, 0)
"""


@contextmanager
def forked(*libraries: Path):
    """Yield the ids of a process and of its parent.

    The first maps further code if there is a library. It has written to the code of a second one, which both have.
    """
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *libraries], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield tuple(map(int, process.stdout.readline().split()))
        process.stdin.close()


def test_a_fork_has_added_nothing():
    with forked() as (pid, parent):
        assert mapped_code(pid)
        assert not added_code(pid, parent)


def library(folder: Path, name: str) -> Path:
    source, result = folder / "own.c", folder / f"{name}.so"
    source.write_text("int own(void) { return 1; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", result, source], check=True)
    return result


def test_code_that_a_process_has_written_to_is_added(tmp_path):
    with forked(library(tmp_path, "new"), library(tmp_path, "changed")) as (pid, parent):
        code = added_code(pid, parent)
    assert str(tmp_path / "changed.so") in {mapping.path for mapping in code}
    assert str(tmp_path / "new.so") not in {mapping.path for mapping in code}


def test_memory_with_code_and_files_without_a_path_are_added(tmp_path):
    with forked(library(tmp_path, "own")) as (pid, parent):
        code = added_code(pid, parent)
    # The library itself is a file that the judge finds at the same path.
    assert sorted(mapping.path for mapping in code) == ["", "/memfd:kernel (deleted)"]
    (memory,) = (mapping for mapping in code if not mapping.path)
    assert memory.holds(memory.start)
    assert memory.holds(memory.start + mmap.PAGESIZE - 1)
    assert not memory.holds(memory.start - 1)


def test_a_process_that_ended_is_gone():
    with forked() as (pid, _parent):
        pass
    with pytest.raises(Gone, match=str(pid)):
        mapped_code(pid)
