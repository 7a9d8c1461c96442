"""Where in memory timed blocks run: it differs by process and round, is alike for both arms, and has no new pages."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from pytest_passbench import protocol
from pytest_passbench.judge.arms.watch import Watch
from pytest_passbench.judge.verify.outputs import read_call
from pytest_passbench.runner import memory
from pytest_passbench.timing.rounds import MAX_PAIR_SECONDS
from shared.workspace import AS_EAGER


def many_rounds(monkeypatch):
    """Have pairs with rounds for several places and depths, though they agree and waking takes long."""
    from pytest_passbench.judge.measure import allowance
    from pytest_passbench.timing import rounds

    monkeypatch.setattr(allowance, "PAIR_SECONDS", MAX_PAIR_SECONDS)
    monkeypatch.setattr(rounds, "MAX_LONGER", 1)


def test_timed_blocks_find_their_memory_there_and_each_finds_it_elsewhere(bench, wrapper, monkeypatch):
    from pytest_passbench.judge.measure.cpu_clock import CpuClock

    many_rounds(monkeypatch)
    bench.task(shapes=((256, 1024), (256, 1024)), scales=(1,))  # outputs of 1 MiB each
    bench.candidate({"p": wrapper(AS_EAGER)})
    warm, places, stacks, moved = [], set(), [], []
    block, fresh = CpuClock.block, CpuClock.fresh

    def settled(self):
        fresh(self)
        for runner in self.runners.values():
            places.add(read_call(runner, 0)[0].address % 4096)
            stacks.append(stack_of(runner.pid))
            moved.append(set())
        self.timed = True

    def noted(self, arm, calls):
        result = block(self, arm, calls)
        if getattr(self, "timed", False):
            warm.append(self.warm[arm])
            moved[-1].add(read_call(self.runners[arm], 0)[0].address)
        return result

    monkeypatch.setattr(CpuClock, "fresh", settled)
    monkeypatch.setattr(CpuClock, "block", noted)
    (record, *_) = bench.records(policy="open")
    assert record.correct
    assert sum(warm) > 0.9 * len(warm) > 0
    pairs = len(record.arm.speed.pairs)
    assert len(places) > pairs / 2  # by chance a few may be alike
    assert stacks[::2] == stacks[1::2]  # both arms of a pair alike
    assert min(map(len, moved[1::2])) >= 4  # places of a pair's blocks


def test_the_rounds_of_a_pair_run_at_depths_of_the_stack_that_differ_both_arms_at_the_same(
    bench, wrapper, monkeypatch
):
    from pytest_passbench.judge import trial
    from pytest_passbench.judge.arms.runner import Runner
    from pytest_passbench.judge.measure.cpu_clock import CpuClock

    depths, timed, pairs = [], [], []
    run, block, measure = Runner.block, CpuClock.block, trial.measure

    def noted(self, calls, empty=False, depth=0):
        depths.append(depth)
        return run(self, calls, empty, depth)

    def timed_block(self, arm, calls):
        before = len(depths)
        result = block(self, arm, calls)
        timed.append(depths[before])  # later entries are calls to verify
        return result

    def measured(*arguments, **options):
        arms, results = measure(*arguments, **options)
        pairs.extend(arms.pairs)
        return arms, results

    monkeypatch.setattr(Runner, "block", noted)
    monkeypatch.setattr(CpuClock, "block", timed_block)
    monkeypatch.setattr(trial, "measure", measured)
    many_rounds(monkeypatch)
    bench.task(shapes=((64, 256), (64, 256)))  # so short a call has many rounds, whatever the noise
    bench.candidate({"p": wrapper(AS_EAGER)})
    bench.judge(policy="open")
    rounds, others = (timed[start - 2 * len(pairs[-1]) :: 2] for start in (0, 1))  # of the last pair
    assert rounds == others
    assert rounds[::2] == rounds[1::2]  # the two of a couple too, each order of the arms once
    once = rounds[: 2 * protocol.DEPTHS : 2]
    assert len(set(once)) == len(once) > 8


def test_depths_of_the_stack_reach_all_parts_of_a_page_and_of_a_cache_line():
    pointers = [call(0, 0) for call in memory.at_depths(lambda _depth, _first, _second: stack_pointer() % 2**31)]
    below = [pointers[0] - pointer for pointer in pointers]
    assert sorted(below) == below
    assert {distance % 4096 // 512 for distance in below} == set(range(8))
    assert len({distance % 64 for distance in below}) > 1


def stack_pointer() -> int:
    """Return this thread's stack pointer, which another thread reads from /proc while this one waits."""
    mine, (reading, writing), found = threading.get_native_id(), os.pipe(), []

    def look():
        while not found:
            number, *rest = Path(f"/proc/self/task/{mine}/syscall").read_text().split()
            if number != "running" and int(rest[0], 16) == reading:
                found.append(int(rest[-2], 16))
        os.write(writing, b".")

    looking = threading.Thread(target=look)
    looking.start()
    os.read(reading, 1)
    looking.join()
    os.close(reading)
    os.close(writing)
    return found[0]


def stack_of(pid: int) -> tuple[int, int]:
    """Return how many bytes the stack of a process reaches down while it waits for a block, and the length of the
    command line above it."""
    stat, watch = Path(f"/proc/{pid}/stat"), Watch(pid)
    os.kill(pid, signal.SIGCONT)  # it was stopped before it waits
    while (fields := stat.read_text().rpartition(")")[2].split())[0] != "S":
        time.sleep(0.001)
    pointer = int(Path(f"/proc/{pid}/syscall").read_text().split()[-2], 16)
    os.kill(pid, signal.SIGSTOP)
    watch.wait_stopped()
    return int(fields[25]) - pointer, len(Path(f"/proc/{pid}/cmdline").read_bytes())
