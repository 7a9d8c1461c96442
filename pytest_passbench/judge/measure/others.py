"""CPU time of an arm's zygote and template, which should be asleep or stopped while its runner is measured.

Another process in the sandbox could work for the runner, or continue it while it is stopped. New processes are looked
for elsewhere (:meth:`pytest_passbench.judge.arms.arm.Arm.strays`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.processes import Gone


@dataclass(frozen=True)
class Used:
    """The CPU seconds of an arm's other processes, and the wall seconds in which they used them."""

    cpu: float
    wall: float


class Others:
    """The account of these processes over all pairs. Between :meth:`begin` and :meth:`end` they get no orders."""

    def __init__(self) -> None:
        self.used: dict[str, list[Used]] = {}
        self._clocks: dict[str, list[int]] = {}
        self._before: dict[str, float] = {}
        self._since = 0.0

    def begin(self, pids: Mapping[str, Iterable[int]]) -> None:
        """Note the CPU time that these processes of each arm have used so far."""
        self._clocks = {
            arm: [processes.cpu_clock(pid) for pid in processes_of_arm] for arm, processes_of_arm in pids.items()
        }
        self._before = {arm: _seconds(clocks) for arm, clocks in self._clocks.items()}
        self._since = time.monotonic()

    def end(self) -> None:
        """Add the CPU time since the last :meth:`begin`. A second call does nothing."""
        wall = time.monotonic() - self._since
        for arm, clocks in self._clocks.items():
            self.used.setdefault(arm, []).append(Used(_seconds(clocks) - self._before[arm], wall))
        self._clocks = {}


def _seconds(clocks: Iterable[int]) -> float:
    """Return the CPU seconds of all processes together. One that has ended is left out: its arm fails elsewhere."""
    total = 0.0
    for clock in clocks:
        try:
            total += processes.cpu_seconds(clock)
        except Gone:
            continue
    return total
