"""CPU time of the processes in an arm's sandbox that are to be asleep or stopped while its runner is measured.

Whatever else runs there could work for the runner, or continue it while it is stopped. New processes are looked for
elsewhere (:meth:`pytest_passbench.judge.arms.arm.Arm.strays`); these are the zygote and the template.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.processes import Gone


@dataclass(frozen=True)
class Used:
    """CPU seconds of an arm's other processes, in so many seconds of wall time."""

    cpu: float
    wall: float


class Others:
    """Keeps accounts from pair to pair: between :meth:`begin` and :meth:`end` nobody orders any work of them."""

    def __init__(self) -> None:
        self.used: dict[str, list[Used]] = {}
        self._clocks: dict[str, list[int]] = {}
        self._before: dict[str, float] = {}
        self._since = 0.0

    def begin(self, pids: Mapping[str, Iterable[int]]) -> None:
        """Note what these processes of each arm have used so far."""
        self._clocks = {arm: [processes.cpu_clock(pid) for pid in found] for arm, found in pids.items()}
        self._before = {arm: _seconds(clocks) for arm, clocks in self._clocks.items()}
        self._since = time.monotonic()

    def end(self) -> None:
        """Add up what they have used since the last beginning. Nothing the second time."""
        wall = time.monotonic() - self._since
        for arm, clocks in self._clocks.items():
            self.used.setdefault(arm, []).append(Used(_seconds(clocks) - self._before[arm], wall))
        self._clocks = {}


def _seconds(clocks: Iterable[int]) -> float:
    """All together; a process that ended has a failure of its own to tell of."""
    total = 0.0
    for clock in clocks:
        try:
            total += processes.cpu_seconds(clock)
        except Gone:
            continue
    return total
