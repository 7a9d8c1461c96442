"""Measured processes: which parts of their template's memory they must not share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_passbench.judge.arms import sandbox

CODE = """
import ctypes, mmap, os, sys
from pytest_passbench.walls import jit_code

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


pieces = jit_code.made_here()
if os.fork() == 0:
    before = facts()
    jit_code.make_private(pieces)
    print(*before, *facts(), ctypes.string_at(place, pages * 4096) == b"\\xc3" * pages * 4096, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.parametrize(("rights", "shown"), [(7, "rwxp"), (5, "r-xp")])
def test_code_made_in_a_template_gets_pages_of_its_own_that_are_not_written_to_again(rights, shown):
    done = subprocess.run([sys.executable, "-c", CODE, str(rights)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [shown, "0", "r-xp", "12", "True"]


IMPORTS = """
import os, sys
from pytest_passbench.runner import memory

imports = memory.Imports()
import torch
kept = [[number] for number in range(10_000)]
imports.keep()


def own():
    return int(next(line for line in open("/proc/self/status") if "RssAnon" in line).split()[1])


def shown():
    print(own() // 1024, sum(map(sum, kept)), flush=True)


shown()
if os.fork() == 0:
    for item in kept:
        item[0] += 1
    shown()
    os._exit(0)
os.wait()
shown()
print([line.split()[1] for line in open("/proc/self/maps") if "memfd:imports" in line])
"""


def imported(environment):
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    *shown, maps = done.stdout.splitlines()
    return [tuple(map(int, line.split())) for line in shown], maps


def without_malloc() -> dict[str, str]:
    """Return an arm's environment in which the heap is not in one piece."""
    return {name: value for name, value in sandbox.environment(1, "cpu", {}).items() if "MALLOC" not in name}


@pytest.mark.slow
def test_what_is_imported_is_shared_by_all_forks_until_they_write_to_it():
    shown, maps = imported(sandbox.environment(1, "cpu", {}))
    assert maps == "['rw-p']"
    (before, same), (_more, changed), (after, unchanged) = shown
    assert (changed, unchanged) == (same + 10_000, same)
    ((alone, _same), *_), _maps = imported(without_malloc())
    assert alone - max(before, after) > 60  # MiB


def test_where_the_heap_is_not_in_one_piece_imports_are_left_alone():
    shown, maps = imported(without_malloc())
    assert maps == "[]"
    assert len({total for _size, total in shown}) == 2


TOUCHED = """
import ctypes, mmap, random
from pytest_passbench.runner import memory

libc, size, not_huge = ctypes.CDLL(None), 4 * memory.PAGE_BYTES, 15
libc.mmap.restype = ctypes.c_void_p
place = ctypes.c_void_p(libc.mmap(None, ctypes.c_size_t(size), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0))
libc.madvise(place, ctypes.c_size_t(size), not_huge)
memory.displace(random.Random(0), (place.value + memory.PAGE_BYTES - 8, 2 * memory.PAGE_BYTES))
present = (ctypes.c_ubyte * 4)()
libc.mincore(place, ctypes.c_size_t(size), present)
print(*present)
"""


def test_all_pages_of_the_pieces_are_touched_wherever_they_begin():
    done = subprocess.run([sys.executable, "-c", TOUCHED], capture_output=True, text=True, check=True)
    if done.stdout == "0 0 0 0\n":
        pytest.skip("this kernel does not know MADV_POPULATE_WRITE")
    assert done.stdout == "1 1 1 0\n"


HEAPS = """
import ctypes, os, random
from pytest_passbench.runner import memory
from pytest_passbench.walls import harden

harden.same_layout()
libc = ctypes.CDLL(None)
libc.malloc.argtypes, libc.malloc.restype = (ctypes.c_size_t,), ctypes.c_void_p
libc.memalign.argtypes, libc.memalign.restype = (ctypes.c_size_t, ctypes.c_size_t), ctypes.c_void_p
libc.free.argtypes = (ctypes.c_void_p,)


def in_a_fork(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    os.waitpid(pid, 0)


def template(busy):
    chance = random.Random(busy)
    taken = [libc.malloc(chance.choice((40, 300, 3000, 30_000, 3_000_000))) for _ in range(200 * busy)]
    for place in taken[::2]:
        libc.free(place)
    pieces = memory.release()
    in_a_fork(lambda: measured(pieces))


def measured(pieces):
    memory.displace(random.Random(7), pieces)
    spacer = memory.Spacer(random.Random(7), 1 << 20)
    places = []
    for depth in range(8):
        spacer.take(depth)
        for _ in range(10):
            libc.malloc(600)
        places.append(libc.memalign(64, 1 << 20))
        libc.free(places[-1])
    print(*(place % memory.HEAP_END_BYTES for place in places), flush=True)


imports = memory.Imports()
import torch
imports.keep()
for busy in (0, 1, 5):
    in_a_fork(lambda: template(busy))
"""


@pytest.mark.slow
def test_what_a_template_has_freed_does_not_move_what_its_runners_allocate():
    environment = sandbox.environment(1, "cpu", {})
    done = subprocess.run([sys.executable, "-c", HEAPS], capture_output=True, text=True, check=True, env=environment)
    idle, busy, busier = done.stdout.splitlines()
    assert idle == busy == busier
    assert len(set(idle.split())) > 4  # most blocks' outputs have other addresses: memory between them is free again
