"""Measured processes: what of their template's memory they must not share."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, mmap, os, sys
from pytest_passbench.runner import memory

rights, pages, reserved = int(sys.argv[1]), 3, 1 << 30
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
place = libc.mmap(None, ctypes.c_size_t(reserved), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
ctypes.memset(place, 0xC3, pages * 4096)
libc.mprotect(ctypes.c_void_p(place), ctypes.c_size_t(reserved), rights)


def facts():
    lines = open("/proc/self/smaps").read().split(f"{place:x}-", 1)[1].splitlines()
    kept = [line for line in lines[1:30] if line.startswith("Private_Dirty")]
    return lines[0].split()[1], kept[0].split()[1]


pieces = memory.code()
if os.fork() == 0:
    before = facts()
    memory.own(pieces)
    print(*before, *facts(), ctypes.string_at(place, pages * 4096) == b"\\xc3" * pages * 4096, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("rights", "shown"), [(7, "rwxp"), (5, "r-xp")])
def test_code_made_in_a_template_gets_pages_of_its_own(rights, shown):
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(rights)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [shown, "0", shown, "12", "True"]
