"""The layers of the clock and of plausibility: evidence from the timed blocks, and from the size of their outputs."""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Collection, Sequence
from statistics import median

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.audits.findings import violation, warning
from pytest_passbench.judge.measure.cpu_clock import CpuClock
from pytest_passbench.judge.verify.outputs import Output

#: Greatest honest ratio of CPU time to the time of an arm's cores. A thread on another core makes it 2. Stopping a
#: runner may add STOPPING_SECONDS. MAX_SHARE of the blocks may have a greater ratio, since a hypervisor may take time
#: away. Eager's blocks show if it does: MAX_EAGER_SHARES times the share of such blocks among them is allowed too.
MAX_CPU_RATIO, STOPPING_SECONDS, MAX_SHARE, MAX_EAGER_SHARES = 1.5, 5e-5, 0.1, 2
#: Greatest honest ratio of the CPU time of stopped or sleeping processes to a pair's wall time, and seconds on top.
MAX_OTHER_RATIO, WAKING_SECONDS = 0.01, 1e-3
#: Blocks of one call and of all calls in each try, and the number of tries.
SINGLE_BLOCKS, FULL_BLOCKS, TRIES = 5, 2, 3
#: A call by itself costs more than one of many. Up to so many times eager's ratio, or so many seconds, are honest.
MAX_FIRST_RATIO, MAX_FIRST_SECONDS = 6.0, 2e-4
BUFFER_BYTES = 256 << 10  # stays in a core's own cache, which is the fastest memory
MAX_SPEEDUP = 2.0  # over the measured rate of filling memory; anything faster is not honest


def excess(clock: CpuClock, arm: str) -> list[Finding]:
    """Return a violation if an arm used more CPU time than its cores could give, so that a thread ran elsewhere.

    A smaller share of blocks is tolerated, since it moves a pair's median by less than noise does.
    """
    over, share = _beyond_cores(clock, arm)
    if share <= MAX_SHARE + MAX_EAGER_SHARES * _beyond_cores(clock, EAGER)[1]:
        return []
    message = f"{median(over):.1f} times the CPU time that its cores could give, in {share:.0%} of its blocks"
    return [violation("clock", "cpu-time", message)]


def _beyond_cores(clock: CpuClock, arm: str) -> tuple[list[float], float]:
    """Return the ratios of CPU time in an arm's timed blocks that are too great, and the share of these blocks."""
    blocks = clock.cpu.get(arm, [])
    over = [cpu / room for cpu, room in blocks if cpu > MAX_CPU_RATIO * room + STOPPING_SECONDS]
    return over, len(over) / max(1, len(blocks))


def others(clock: CpuClock, arm: str) -> list[Finding]:
    """Return a violation if processes beside the arm's runner used CPU time while it was measured."""
    clock.others.end()
    pairs = clock.others.used.get(arm, [])
    over = [cpu / wall for cpu, wall in pairs if cpu > MAX_OTHER_RATIO * wall + WAKING_SECONDS]
    if len(over) <= MAX_SHARE * len(pairs):
        return []
    message = f"processes beside the runner used {median(over):.0%} of a core, in {len(over)} of {len(pairs)} pairs"
    return [violation("clock", "other-cpu", message)]


def first_call(clock: CpuClock, arm: str, calls: int) -> list[Finding]:
    """Return a violation if one call by itself takes far longer than its share of a block of ``calls`` calls.

    It compares T(1) with T(k)/k, and the ratio with eager's, in the runners of the last pair. A first call that does
    the work of all k calls takes k times its share; an honest one may take up to :data:`MAX_FIRST_RATIO` times. So
    blocks of few calls are not tested. All tries must agree, since another process may hold the core for a whole try.
    Raises ArmFailed.
    """
    if calls <= MAX_FIRST_RATIO:
        return []
    suspicion = ""
    for _ in range(TRIES):
        suspicion = _suspicion(clock, arm, calls)
        if not suspicion:
            return []
    return [violation("clock", "first-call", suspicion)]


def _suspicion(clock: CpuClock, arm: str, calls: int) -> str:
    """Return the evidence against an arm as a sentence; an empty string if its first call is honest."""
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


def slowed(pairs: int, of: int) -> list[Finding]:
    """Return a warning if power or heat slowed a device down in some pairs. It accuses nobody."""
    if not pairs:
        return []
    return [warning("clock", "throttled", f"power or heat slowed the device down in {pairs} of {of} pairs")]


def strays(arm: Arm) -> list[Finding]:
    """Return a violation if a sandbox has unknown processes, and kill them. Runners that are ending are known."""
    pids = arm.strays()
    names = sorted({processes.name(pid) for pid in pids})
    for pid in pids:
        processes.kill(pid)
    if not pids:
        return []
    return [
        violation("clock", "process-left", f"{counted(len(pids), 'process')} left behind: {', '.join(names)[:200]}")
    ]


@functools.cache
def fill_rate() -> float:
    """Return the bytes per second that one core can fill, the best of 50 tries. It is measured once per process."""
    buffer = ctypes.create_string_buffer(BUFFER_BYTES)
    best = math.inf
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(4):
            ctypes.memset(buffer, 0, BUFFER_BYTES)
        best = min(best, (time.perf_counter() - start) / 4)
    return BUFFER_BYTES / best


def bandwidth(written: int, seconds: float, rate: float) -> list[Finding]:
    """Return a violation if ``written`` bytes of outputs in ``seconds`` per call are too fast.

    ``rate`` is the bytes per second that the cores, or the device, fill memory with.
    """
    if seconds <= 0 or written <= seconds * MAX_SPEEDUP * rate:
        return []
    message = (
        f"{written} bytes of outputs in {seconds * 1e6:.2f} us; "
        f"filling as much memory takes {written / rate * 1e6:.2f} us here"
    )
    return [violation("plausibility", "bandwidth", message)]


def written(outputs: Sequence[Output], owners: Sequence[Collection[int]]) -> int:
    """Return the bytes of outputs that have no ``owners``. An element of an expanded dimension counts once."""
    total = 0
    for output, of_others in zip(outputs, owners, strict=True):
        if not of_others and output.value is not None:
            form = output.form
            elements = math.prod(size for size, stride in zip(form.shape, form.strides, strict=True) if stride)
            total += elements * output.value.element_size()
    return total


def null_answer(null_from: int, tolerance: int) -> list[Finding]:
    """Return a warning if zeros, a copy of an input or the mean would pass at t = ``tolerance``."""
    if null_from > tolerance:
        return []
    return [warning("plausibility", "null-answer", f"a null answer passes on this subgraph from t = {null_from}")]
