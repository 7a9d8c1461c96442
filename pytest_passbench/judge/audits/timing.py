"""The clock layer: what the timed blocks themselves give away.

CPU time beyond what the cores of an arm could give in the time; a first call that takes as long as a block, where
eager's does not; processes that a candidate leaves in its sandbox.
"""

from __future__ import annotations

from statistics import median

from ...report.record import Finding
from .. import processes
from ..arm import Arm
from ..clock import EAGER, CpuClock
from .layers import violation

#: CPU time over what an arm's cores could give: a thread on a core of its own makes it 2, stopping a runner adds
#: less than a tenth.
EXCESS = 1.5
SINGLES, FULL = 5, 2
#: One call by itself costs more than one of many; what eager pays times this, and this many seconds, is honest.
LENIENT, SLACK = 6.0, 2e-4


def excess(clock: CpuClock, arm: str) -> list[Finding]:
    """More CPU time than wall time on the arm's cores: a thread that ran elsewhere.

    In most blocks, since nothing is gained otherwise; in a single one it may be time that a hypervisor took away.
    """
    share = median(clock.cpu_shares.get(arm, [0.0]))
    if share <= EXCESS:
        return []
    return [violation("clock", "cpu-time", f"{share:.1f} times the CPU time that its cores could give in a block")]


def first_call(clock: CpuClock, arm: str, calls: int) -> list[Finding]:
    """T(1) against T(k)/k beside eager's, by the runners of the last pair. Raises ArmFailed."""
    if calls < 4:
        return []
    ratio, single, each = _ratio(clock, arm, calls)
    usual, _single, _each = _ratio(clock, EAGER, calls)
    if ratio <= LENIENT * max(usual, 1.0) or single - each <= SLACK:
        return []
    said = (
        f"one call takes {single * 1e6:.0f} us by itself and {each * 1e6:.0f} us in a block of {calls} "
        f"({ratio:.1f} times, eager {usual:.1f} times): a call does the work of others"
    )
    return [violation("clock", "first-call", said)]


def _ratio(clock: CpuClock, arm: str, calls: int) -> tuple[float, float, float]:
    many = median(clock.alone(arm, calls) for _ in range(FULL)) / calls
    single = median(clock.alone(arm, 1) for _ in range(SINGLES))
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
