"""The clock layer: what the timed blocks themselves give away.

CPU time beyond what the cores of an arm could give in the time; a first call that takes as long as a block, where
eager's does not; CPU time of processes beside the runner; processes that a candidate leaves in its sandbox.
"""

from __future__ import annotations

from statistics import median

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.audits.layers import violation
from pytest_passbench.judge.measure.cpu_clock import CpuClock

#: CPU time over what an arm's cores could give: a thread on a core of its own makes it 2. Stopping a runner may take
#: so many seconds more; and in one block of ten it may be time that a hypervisor took away.
MAX_CPU_RATIO, STOPPING_SECONDS, MAX_SHARE = 1.5, 5e-5, 0.1
#: CPU time of what is stopped or asleep, over the time that a pair took; and so many seconds more.
MAX_OTHER_RATIO, WAKING_SECONDS = 0.01, 1e-3
SINGLE_BLOCKS, FULL_BLOCKS, TRIES = 5, 2, 3
#: One call by itself costs more than one of many; what eager pays times this, and this many seconds, is honest.
MAX_FIRST_RATIO, MAX_FIRST_SECONDS = 6.0, 2e-4


def excess(clock: CpuClock, arm: str) -> list[Finding]:
    """More CPU time than wall time on the arm's cores: a thread that ran elsewhere.

    In fewer blocks than are tolerated it moves no pair's median by as much as noise does.
    """
    blocks = clock.cpu.get(arm, [])
    over = [cpu / room for cpu, room in blocks if cpu > MAX_CPU_RATIO * room + STOPPING_SECONDS]
    if len(over) <= MAX_SHARE * len(blocks):
        return []
    said = f"{median(over):.1f} times the CPU time that its cores could give, in {len(over)} of {len(blocks)} blocks"
    return [violation("clock", "cpu-time", said)]


def others(clock: CpuClock, arm: str) -> list[Finding]:
    """CPU time of processes beside the arm's runner, while that was measured: they worked for it."""
    clock.others.end()
    pairs = clock.others.used.get(arm, [])
    over = [used for used in pairs if used.cpu > MAX_OTHER_RATIO * used.wall + WAKING_SECONDS]
    if len(over) <= MAX_SHARE * len(pairs):
        return []
    share = median(used.cpu / used.wall for used in over)
    said = f"processes beside the runner used {share:.0%} of a core, in {len(over)} of {len(pairs)} pairs"
    return [violation("clock", "other-cpu", said)]


def first_call(clock: CpuClock, arm: str, calls: int) -> list[Finding]:
    """T(1) against T(k)/k beside eager's, by the runners of the last pair. Raises ArmFailed.

    A call that does the work of all k costs k times its share: where honest ones may too, there is nothing to see.
    Every try must say the same: others may keep a core from us for as long as one try takes.
    """
    if calls <= MAX_FIRST_RATIO:
        return []
    said = ""
    for _ in range(TRIES):
        said = _suspicion(clock, arm, calls)
        if not said:
            return []
    return [violation("clock", "first-call", said)]


def _suspicion(clock: CpuClock, arm: str, calls: int) -> str:
    """What speaks against the arm, in a sentence; nothing where that is no more than eager's may be."""
    ratio, single, each = _ratio(clock, arm, calls)
    usual, _single, _each = _ratio(clock, EAGER, calls)
    if ratio <= MAX_FIRST_RATIO * max(usual, 1.0) or single - each <= MAX_FIRST_SECONDS:
        return ""
    return (
        f"one call takes {single * 1e6:.0f} us by itself and {each * 1e6:.0f} us in a block of {calls} "
        f"({ratio:.1f} times, eager {usual:.1f} times): a call does the work of others"
    )


def _ratio(clock: CpuClock, arm: str, calls: int) -> tuple[float, float, float]:
    many = median(clock.alone(arm, calls) for _ in range(FULL_BLOCKS)) / calls
    single = median(clock.alone(arm, 1) for _ in range(SINGLE_BLOCKS))
    return single / many, single, many


def strays(arm: Arm) -> list[Finding]:
    """Processes in a sandbox that nobody ordered; they are ended. Runners that are still ending are ours."""
    found = arm.strays()
    names = sorted({processes.name(pid) for pid in found})
    for pid in found:
        processes.kill(pid)
    if not found:
        return []
    return [violation("clock", "process-left", f"{len(found)} processes left behind: {', '.join(names)[:200]}")]
