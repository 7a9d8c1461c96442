"""A floor under the clock: no honest program is faster than itself without its kernels.

A kernel that owns the measured process may replace what calls it, and save the harness's own cost of a call. So the
program's blocks are timed in a process that launches no kernel: no machine code of the candidate's runs in it. The
pipeline, the plans, the calls and the inputs are the same.
"""

from __future__ import annotations

from statistics import median

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms.forks import ArmFailed, fork_all
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.audits.layers import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.measure.cpu_clock import CpuClock

WARM_BLOCKS, BLOCKS, TRIES = 2, 8, 3
#: A program that is slower than the least of so many blocks by this factor is above its floor.
FEW_BLOCKS, CLEAR = 2, 1.2
#: A program may seem faster than its floor by this share. Two processes of one program may differ by so much.
MARGIN = 0.05


def floor(clock: CpuClock, template: Template, bench: Bench) -> list[Finding]:
    """Return a violation if the candidate's blocks were shorter than those of its program without kernels.

    Both are held against eager's blocks beside them, since the machine's speed may drift. The candidate's value is
    the median over all rounds of all pairs, the floor's the least of several blocks in several processes. A process
    without kernels that fails is no evidence. ``template`` is the candidate's.
    """
    rounds = list(zip(clock.walls.get(CANDIDATE, []), clock.walls.get(EAGER, []), strict=False))
    if not rounds or not template.idles:
        return []
    share, least = median(candidate / eager for candidate, eager in rounds), float("inf")
    for _ in range(TRIES):
        try:
            least = min(least, _least(clock, template, bench, share))
        except ArmFailed as failed:
            if failed.arm == EAGER:
                raise
            return []
        if share >= least * (1 - MARGIN):
            return []
    said = (
        f"a block takes {share:.2f} times as long as eager's, and {least:.2f} times without its kernels: "
        "calls were made by something else than the harness"
    )
    return [violation("clock", "floor", said)]


def _least(clock: CpuClock, template: Template, bench: Bench, share: float) -> float:
    """Return the least ratio of a block without kernels to eager's beside it, in a new process."""
    with bench.awake.off():
        templates = {CANDIDATE: template}
        runners = fork_all(templates, clock.program, clock.calls, bench.cores, bench.deadline, True, idle=True)
    try:
        return _ratio(clock, runners[CANDIDATE], share)
    finally:
        runners[CANDIDATE].close()


def _ratio(clock: CpuClock, runner: Runner, share: float) -> float:
    for _ in range(WARM_BLOCKS):
        clock.beside(runner, clock.calls)
    least = float("inf")
    for number in range(BLOCKS):
        eager, idle = clock.beside(runner, clock.calls)
        least = min(least, idle / eager)
        if number >= FEW_BLOCKS - 1 and share > CLEAR * least:
            break
    return least
