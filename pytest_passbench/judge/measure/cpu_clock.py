"""The CPU clock: blocks of calls in stopped runners, timed by the judge, verified after the fact.

Implements :class:`pytest_passbench.timing.clock.Clock`. A round's arms get the same inputs, written once:
who runs second finds them warmer, as it finds the caches full of the other's data, and each arm does so in half of
the rounds. Which calls are verified is drawn when all arms of the round have run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle

from pytest_passbench.judge.arms.forks import blaming, fork_all
from pytest_passbench.judge.arms.names import EAGER
from pytest_passbench.judge.arms.runner import BlockTime, Runner
from pytest_passbench.judge.arms.template import Effects, Template
from pytest_passbench.judge.arms.watch import waited, waiting
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.machine.priority import Preference
from pytest_passbench.judge.measure.others import Others
from pytest_passbench.protocol import DEPTHS
from pytest_passbench.timing.clock import Block
from pytest_passbench.timing.rounds import Disturbance

MAX_WARM_BLOCKS = 12
EMPTY_BLOCKS, EMPTY_PAIRS = 3, 2
NO_INPUTS = Batch()


#: Called after a round with the arms' runners, its batch, the number of calls, and how many rounds of the pair
#: came before.
Verify = Callable[[Mapping[str, Runner], Batch, int, int], None]


class CpuClock:
    """Times the arms on the CPU. ``resolution`` in seconds.

    ``arms`` are those that get runners, ``calls`` the calls per block of what comes next.
    """

    name = "cpu-wall"
    resolution = 1e-9
    least_warm_blocks = 1

    def __init__(
        self,
        templates: Mapping[str, Template],
        program: Effects,
        bench: Bench,
        verify: Verify,
    ) -> None:
        self._templates, self._program, self._bench, self._verify = templates, program, bench, verify
        self._orders = bench.secret.stream("order of arms")
        self._stack = bench.secret.stream("stack depths")
        self._runners: dict[str, Runner] = {}
        self._batch = NO_INPUTS
        self._done: set[str] = set()
        self._rounds = 0
        self._kept = False
        self._empty, self._empties = 0.0, list[float]()
        self._depth, self._depths = 0, list[int]()
        self._priority = Preference()
        self._judge = waiting("/proc/thread-self/schedstat")
        self.arms = list(templates)
        self.calls = 1
        self.phases = bench.phases
        #: Per arm and block of a round, its CPU seconds and those that its cores could give meanwhile.
        self.cpu: dict[str, list[tuple[float, float]]] = {}
        #: Per arm, whether its last block touched no new memory.
        self.warm: dict[str, bool] = {}
        #: What else ran in the arms' sandboxes.
        self.others = Others()

    def fresh(self) -> None:
        """New runners of all arms, warm, and the cost of an empty block of ``self.calls`` calls."""
        self._draw(self.calls)
        self._write()
        kept, self._kept = self._kept, False
        if not kept:
            self.fork(rehearse=True)
        self._depth = DEPTHS - 1  # where a block's memory lies farthest: what other rounds touch is touched then
        with self.phases("warm-up"):
            for arm in self._order():
                if kept or not self._templates[arm].rehearses:
                    self._settle(arm)
            self._empty = self._measure_empty()
        self._batch, self._depths, self._rounds = NO_INPUTS, [], 0

    def fork(self, rehearse: bool = False) -> None:
        """New runners of all arms, cold (but for a block each, of what the input pages hold, with ``rehearse``); the
        empty block is taken to cost nothing."""
        self._priority.end()
        self.others.end()
        self._empty = 0.0
        self._done.clear()
        self._batch = NO_INPUTS
        with self.phases("fork"), self._bench.awake.off():
            _end(self._runners, self._bench.cores.forking[::-1])  # so that they are gone when the first blocks run
            templates = {arm: self._templates[arm] for arm in self.arms}
            forked = fork_all(templates, self._program, self.calls, self._bench.cores, rehearse)
            self._runners = forked
        self.others.begin({arm: template.resting for arm, template in templates.items()})
        self._priority.begin()

    def keep(self, arms: list[str]) -> None:
        """Let the runners of these arms serve as the next pair: they are as fresh as any."""
        self.leave_only(*arms)
        self.arms, self._kept = arms, set(self._runners) == set(arms)

    def leave_only(self, *arms: str) -> None:
        """Let no others take any further part."""
        for arm in set(self._runners) - set(arms):
            self.leave_out(arm)

    def leave_out(self, arm: str) -> None:
        """Let an arm take no further part, where it did so far."""
        if arm in self._runners:
            self._runners.pop(arm).close()
            self._batch = NO_INPUTS

    def _settle(self, arm: str) -> None:
        """Run blocks until one touches no new memory; the allocator needs a few to find its places again."""
        for number in range(1, MAX_WARM_BLOCKS + 1):
            if self._run(arm, self.calls).warm and number >= self.least_warm_blocks:
                break
        self._runners[arm].watch.find_threads()

    def _measure_empty(self) -> float:
        """The least that an empty block has taken: what disturbs the machine makes one dearer, and who is faster
        would gain from every microsecond that is taken off too much.

        Only eager's runner is asked: what a candidate's says of its own overhead would be its word. In the first
        pairs only: the blocks of all pairs are alike.
        The others run empty blocks too: by the first round all processes have run as much.
        """
        if len(self._empties) < EMPTY_PAIRS * EMPTY_BLOCKS:
            self._empties += {arm: self._empty_blocks(arm) for arm in self._order()}[EAGER]
        return min(self._empties)

    def _empty_blocks(self, arm: str) -> list[float]:
        return [self._run(arm, self.calls, empty=True).wall for _ in range(EMPTY_BLOCKS)]

    def _order(self) -> list[str]:
        return self._orders.sample(list(self._runners), len(self._runners))

    def block(self, arm: str, calls: int) -> Block:
        """One timed block. Raises ArmFailed."""
        if arm in self._done or not self._batch:
            self._new_round(calls)
            self._write()
        watch = self._runners[arm].watch
        with blaming(arm):
            before = watch.waited() + waited(self._judge)
            with self.phases("blocks"):
                taken = self._run(arm, calls)
            stolen = watch.waited() + waited(self._judge) - before
        self._done.add(arm)
        if len(self._done) == len(self._runners):
            with self.phases("verify"):
                self._verify(self._runners, self._batch, calls, self._rounds)
            self._rounds += 1
        self.warm[arm] = taken.warm
        self.cpu.setdefault(arm, []).append((taken.cpu, taken.wall * len(self._bench.cores.arms)))
        noise = Disturbance(taken.wall, stolen=max(0.0, stolen), touched=taken.touched)
        return Block(_without(self._empty, taken.wall), calls, noise)

    def alone(self, arm: str, calls: int) -> float:
        """Seconds of one block of ``arm`` outside any round, with fresh inputs. Raises ArmFailed."""
        self._new_round(calls)
        self._write()
        return _without(self._empty * calls / self.calls, self._run(arm, calls).wall)

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The runners of this pair."""
        return self._runners

    @property
    def program(self) -> Effects:
        """What eager's template says of the subgraph."""
        return self._program

    def _new_round(self, calls: int) -> None:
        self._depth = self._next_depth()
        self._draw(calls)

    def _draw(self, calls: int) -> None:
        self._done.clear()
        with self.phases("inputs"):
            self._batch = self._bench.inputs.draw(calls)

    def _next_depth(self) -> int:
        """Each depth of the stack in random order, and each for two rounds: an order of the arms and its reverse."""
        if not self._depths:
            self._depths = [depth for depth in self._stack.sample(range(DEPTHS), DEPTHS) for _ in range(2)]
        return self._depths.pop()

    def _write(self) -> None:
        with self.phases("inputs"):
            self._bench.inputs.write(self._batch, self._bench.pages)

    def _run(self, arm: str, calls: int, empty: bool = False) -> BlockTime:
        with blaming(arm):
            return self._runners[arm].block(calls, empty, self._depth)

    def device_us(self, _arm: str) -> float | None:
        """What a device's own clock says of a call; None where the judge's clock is the only one."""
        return None

    def close(self) -> None:
        """End the runners, for good."""
        self._priority.end()
        _end(self._runners)
        os.close(self._judge)


def _without(empty: float, wall: float) -> float:
    """What a block took for its calls, at least half of it: a block that takes little longer than an empty one says
    little of its calls, and a difference between two such blocks must not be made a ratio of any size."""
    return max(wall - empty, wall / 2)


def _end(runners: dict[str, Runner], cores: Sequence[int] = ()) -> None:
    """None twice, though somebody press Ctrl+C meanwhile. On these cores in turn: it takes as long as a fork."""
    turn = cycle(cores or (None,))
    while runners:
        runners.popitem()[1].close(next(turn))
