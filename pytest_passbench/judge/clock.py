"""The CPU clock: blocks of calls in stopped runners, timed by the judge, verified after the fact.

Implements :class:`pytest_passbench.timing.clock.Clock`. A round's arms get the same inputs, written anew before
each block, so that neither finds them warmer than the other; which calls are verified is drawn when all arms of
the round have run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from ..timing.clock import Block
from ..timing.rounds import Noise
from .arm import ArmFailure, Program, Runner, Template
from .inputs import Batch, Inputs
from .pages import Pages
from .processes import Gone

EAGER = "eager"
WARM_BLOCKS = 2
EMPTY_BLOCKS = 5
LEAST_SECONDS = 1e-7


class ArmFailed(Exception):
    """An arm failed in a block; whose failure it is decides what the record says."""

    def __init__(self, arm: str, failure: ArmFailure) -> None:
        self.arm, self.failure = arm, failure
        super().__init__(f"{arm}: {failure}")


@contextmanager
def blaming(arm: str) -> Iterator[None]:
    """Say whose failure it is."""
    try:
        yield
    except ArmFailure as failure:
        raise ArmFailed(arm, failure) from failure
    except Gone as gone:
        raise ArmFailed(arm, ArmFailure("crash", "run", str(gone))) from gone


#: Called after a round with the arms' runners, its batch and the number of calls.
Verify = Callable[[Mapping[str, Runner], Batch, int], None]


class CpuClock:
    """Times the arms on the CPU. ``resolution`` in seconds."""

    name = "cpu-wall"
    resolution = 1e-9

    def __init__(
        self,
        templates: Mapping[str, Template],
        program: Program,
        pages: Pages,
        inputs: Inputs,
        core: frozenset[int],
        verify: Verify,
        rng: random.Random,
    ) -> None:
        self._templates, self._program, self._core = templates, program, core
        self._pages, self._inputs, self._verify, self._rng = pages, inputs, verify, rng
        self._runners: dict[str, Runner] = {}
        self._batch: Batch = []
        self._done: set[str] = set()
        self._empty = 0.0
        self.calls = 1
        self.spent = {"fork": 0.0, "inputs": 0.0, "blocks": 0.0, "verify": 0.0}
        self.cpu_excess = 0.0

    def fresh(self) -> None:
        """New runners of all arms, warm, and the cost of an empty block of ``self.calls`` calls."""
        begin = time.perf_counter()
        self.close()
        for arm, template in self._templates.items():
            with blaming(arm):
                self._runners[arm] = template.fork(self._program, self.calls, self._core)
        self.spent["fork"] += time.perf_counter() - begin
        self._new_round(self.calls)
        for arm in self._runners:
            for _ in range(WARM_BLOCKS):
                self._write()
                self._run(arm, self.calls)
        self._empty = self._measure_empty()
        self._done.clear()

    def _measure_empty(self) -> float:
        """Only eager's runner is asked: what a candidate's says of its own overhead would be its word."""
        with blaming(EAGER):
            return median(
                self._runners[EAGER].block(self.calls, empty=True).wall for _ in range(EMPTY_BLOCKS)
            )

    def block(self, arm: str, calls: int) -> Block:
        """One timed block. Raises ArmFailed."""
        if arm in self._done or not self._batch:
            self._new_round(calls)
        self._write()
        before = self._noise(arm)
        wall, _cpu = self._run(arm, calls)
        after = self._noise(arm)
        self._done.add(arm)
        if len(self._done) == len(self._runners):
            self._after_round(calls)
        noise = Noise(wall, after[0] - before[0], max(0.0, after[1] - before[1]))
        return Block(max(wall - self._empty, LEAST_SECONDS), calls, noise)

    def _new_round(self, calls: int) -> None:
        self._done.clear()
        self._batch = self._inputs.draw(calls)

    def _write(self) -> None:
        begin = time.perf_counter()
        self._inputs.write(self._batch, self._pages)
        self.spent["inputs"] += time.perf_counter() - begin

    def _run(self, arm: str, calls: int) -> tuple[float, float]:
        with blaming(arm):
            taken = self._runners[arm].block(calls)
        self.spent["blocks"] += taken.wall
        if arm != EAGER:
            self.cpu_excess = max(self.cpu_excess, taken.cpu - taken.wall * len(self._core))
        return taken.wall, taken.cpu

    def _after_round(self, calls: int) -> None:
        begin = time.perf_counter()
        self._verify(self._runners, self._batch, calls)
        self.spent["verify"] += time.perf_counter() - begin

    def _noise(self, arm: str) -> tuple[int, float]:
        with blaming(arm):
            return interruptions(self._runners[arm].pid)

    def close(self) -> None:
        """End the runners."""
        for runner in self._runners.values():
            runner.close()
        self._runners = {}


def interruptions(pid: int) -> tuple[int, float]:
    """Involuntary context switches so far, and seconds spent waiting for the core (main thread)."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        waited = Path(f"/proc/{pid}/schedstat").read_text().split()[1]
    except OSError as error:
        raise Gone(f"process {pid} ended") from error
    switches = int(status.rpartition("nonvoluntary_ctxt_switches:")[2])
    return switches, int(waited) * 1e-9
