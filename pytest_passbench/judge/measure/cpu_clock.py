"""The CPU clock: it times blocks of calls in runners that are otherwise stopped, and has calls verified afterwards.

It is a :class:`~pytest_passbench.timing.measurement.Clock`. All arms of a round get the same inputs, written once.
The second arm finds the inputs in the caches, and the first arm's data beside them. Each arm comes second in half of
the rounds. The verified calls are drawn when all arms of the round have run.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle

from pytest_passbench.judge.arms import processes
from pytest_passbench.judge.arms.forks import blaming, fork_all
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import BlockTime, Runner
from pytest_passbench.judge.arms.template import ForkOrder, GraphEffects, Template
from pytest_passbench.judge.arms.watch import waited, waiting_times
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Batch
from pytest_passbench.judge.machine.process import Preference
from pytest_passbench.protocol import DEPTHS
from pytest_passbench.timing.measurement import Block
from pytest_passbench.timing.rounds import BLOCK_SECONDS, Disturbance

MAX_WARM_BLOCKS = 12  # to warm a runner up
EMPTY_BLOCKS, EMPTY_PAIRS = 3, 2  # empty blocks of each pair, and pairs that have them
PYTHON, ENGINE = "python", "engine"  # what makes the calls of an arm's blocks
NO_INPUTS = Batch()
#: A function that is called after a round with the arms' runners, its batch, the number of calls in a block, and the
#: number of earlier rounds of the pair.
Verify = Callable[[Mapping[str, Runner], Batch, int, int], None]


class Others:
    """The CPU time of the arms' processes other than runners, over all pairs.

    They get no orders between :meth:`begin` and :meth:`end`. ``used`` has by arm their CPU seconds, and the wall
    seconds in which they used them.
    """

    def __init__(self) -> None:
        self.used: dict[str, list[tuple[float, float]]] = {}
        self._pids: dict[str, list[int]] = {}
        self._before: dict[str, float] = {}
        self._since = 0.0

    def begin(self, pids: Mapping[str, Iterable[int]]) -> None:
        """Note the CPU time that these processes of each arm have used so far."""
        self._pids = {arm: list(processes_of_arm) for arm, processes_of_arm in pids.items()}
        self._before = {arm: processes.used_seconds(numbers) for arm, numbers in self._pids.items()}
        self._since = time.monotonic()

    def end(self) -> None:
        """Add the CPU time since the last :meth:`begin`. A second call does nothing."""
        wall = time.monotonic() - self._since
        for arm, numbers in self._pids.items():
            self.used.setdefault(arm, []).append((processes.used_seconds(numbers) - self._before[arm], wall))
        self._pids = {}


class CpuClock:
    """The clock of arms on the CPU. ``resolution`` is in seconds.

    ``arms`` are the arms that get runners. ``calls`` is the number of calls in each of the next blocks.
    """

    resolution = 1e-9
    min_warm_blocks = 1
    block_seconds = BLOCK_SECONDS  # of a block, about

    def __init__(
        self, templates: Mapping[str, Template], program: GraphEffects, bench: Bench, verify: Verify
    ) -> None:
        self._templates, self._bench, self._verify = templates, bench, verify
        self.program = program  # the subgraph's effects, as eager's template states them
        self._orders = bench.secret.stream("order of arms")
        self._stack = bench.secret.stream("stack depths")
        self._runners: dict[str, Runner] = {}
        self._batch = NO_INPUTS
        self._done: set[str] = set()
        self._rounds = 0
        self._reusable = False
        self._empty, self._empties = dict[str, float](), {PYTHON: list[float](), ENGINE: list[float]()}
        self._depth, self._depths = 0, list[int]()
        self._priority = Preference()
        self._judge = waiting_times("/proc/thread-self")
        self.arms = list(templates)
        self.calls = 1
        self.phases = bench.phases
        #: For each arm and block of a round, its CPU seconds, and those that its cores could give in that time.
        self.cpu: dict[str, list[tuple[float, float]]] = {}
        #: For each arm, True if its last block touched no new memory.
        self.warm: dict[str, bool] = {}
        #: CPU time of the other processes in the arms' sandboxes.
        self.others = Others()

    def fresh(self) -> None:
        """Start a pair: fork new runners, warm them up, and measure empty blocks. Raises ArmFailed."""
        self._draw(self.calls)
        reusable, self._reusable = self._reusable, False
        if not reusable:
            self.fork(rehearse=True)
        self._depth = DEPTHS - 1  # the deepest stack, so that the memory of all depths is touched now
        with self.phases("warm-up"):
            for arm in self._order():
                if reusable or not self._templates[arm].rehearses:
                    self._settle(arm)
            self._measure_empty()
        self._batch, self._depths, self._rounds = NO_INPUTS, [], 0

    def fork(self, rehearse: bool = False) -> None:
        """Fork new, cold runners of all arms. The cost of an empty block is set to 0. Raises ArmFailed.

        With ``rehearse`` each runner first runs a block on the present contents of the input pages.
        """
        self._priority.end()
        self.others.end()
        self._empty = {}
        self._done.clear()
        self._batch = NO_INPUTS
        with self.phases("fork"), self._bench.awake.off():
            _end(self._runners, self._bench.cores.forking[::-1])  # now, so that they have ended when blocks run
            templates = {arm: self._templates[arm] for arm in self.arms}
            self._runners = fork_all(templates, ForkOrder(self.program, self.calls, rehearse), self._bench)
        self.others.begin({arm: template.resting for arm, template in templates.items()})
        self._priority.begin()

    def keep(self, arms: list[str]) -> None:
        """Let the present runners of these arms serve as the next pair, since they are still fresh."""
        self.leave_only(*arms)
        self.arms, self._reusable = arms, set(self._runners) == set(arms)

    def renew(self, arm: str) -> None:
        """Put a new, warm runner in the place of an arm's present one. Raises ArmFailed."""
        self._runners.pop(arm).close()
        with self.phases("fork"):
            self._runners[arm] = self.fork_one(arm, ForkOrder(self.program, self.calls, rehearse=True))
        self._draw(self.calls)
        with self.phases("warm-up"):
            self._settle(arm)

    def fork_one(self, arm: str, order: ForkOrder) -> Runner:
        """Return one more runner of an arm. It is in no round, and the caller ends it. Raises ArmFailed."""
        with self._bench.awake.off():
            return fork_all({arm: self._templates[arm]}, order, self._bench)[arm]

    def leave_only(self, *arms: str) -> None:
        for arm in set(self._runners) - set(arms):
            if (runner := self.take_out(arm)) is not None:
                runner.close()

    def take_out(self, arm: str) -> Runner | None:
        """Return the runner of an arm, if it has one. It is in no further round, and the caller ends it."""
        runner = self._runners.pop(arm, None)
        if runner is not None:
            self._batch = NO_INPUTS
        return runner

    def _settle(self, arm: str) -> None:
        """Run blocks until one touches no new memory. The allocator needs a few blocks to reuse the same places."""
        for number in range(1, MAX_WARM_BLOCKS + 1):
            if self._run(arm, self.calls).warm and number >= self.min_warm_blocks:
                break
        self._runners[arm].watch.find_threads()

    def _measure_empty(self) -> None:
        """Set the time of an empty block of each arm: the least wall time of one of eager's so far, in seconds.

        The least is right, since disturbances only make a block longer, and taking off too much would favour the
        faster arm. Only eager's runner counts: a candidate could make its own overhead look large. An arm whose
        blocks the engine makes has spent none of Python's time per call. So its empty block is one that the engine
        makes, in eager's runner too. The first pairs are enough, since empty blocks of all pairs are alike.

        Each arm runs empty blocks in each pair. So all processes have run for as long when the first round begins,
        and have touched the few pages that answering the judge takes.
        """
        measuring = len(self._empties[PYTHON]) < EMPTY_PAIRS * EMPTY_BLOCKS
        count = EMPTY_BLOCKS if measuring else 1
        times = {arm: [self._run(arm, self.calls, empty=True).wall for _ in range(count)] for arm in self._order()}
        if measuring:
            self._empties[PYTHON] += times[EAGER]
            if any(self.maker(arm) == ENGINE for arm in self._runners):
                with blaming(EAGER), self._bench.deadline.paused():
                    for _ in range(EMPTY_BLOCKS):
                        block = self._runners[EAGER].engine_empty_block(self.calls, self._depth)
                        self._empties[ENGINE].append(block.wall)
        self._empty = {arm: min(self._empties[self.maker(arm)], default=0.0) for arm in self._runners}

    def maker(self, arm: str) -> str:
        """Return what makes the calls of an arm's blocks: :data:`PYTHON` or :data:`ENGINE`."""
        return ENGINE if self._templates[arm].native(self.program) else PYTHON

    def _order(self) -> list[str]:
        return self._orders.sample(list(self._runners), len(self._runners))

    def block(self, arm: str, calls: int) -> Block:
        """Run a block of a round and return its time, without the time of an empty block. Raises ArmFailed.

        When all arms have run, a call of the round may be verified.
        """
        if arm in self._done or not self._batch.calls:
            self._new_round(calls)
        with self.phases("blocks"), blaming(arm):
            duration, noise = self._watched(self._runners[arm], partial(self._run, arm, calls))
        self._done.add(arm)
        if len(self._done) == len(self._runners):
            with self.phases("verify"):
                self._verify(self._runners, self._batch, calls, self._rounds)
            self._rounds += 1
        self.warm[arm] = duration.warm
        self.cpu.setdefault(arm, []).append((duration.cpu, duration.wall * len(self._bench.cores.arms)))
        return Block(_without(self._empty.get(arm, 0.0), duration.wall), calls, noise)

    def _watched(self, runner: Runner, run: Callable[[], BlockTime]) -> tuple[BlockTime, Disturbance]:
        """Run a block of a runner. Return its times, and the signs that others disturbed it."""
        before = runner.watch.waited() + waited(self._judge)
        duration = run()
        stolen = runner.watch.waited() + waited(self._judge) - before
        return duration, Disturbance(duration.wall, stolen=max(0.0, stolen), touched=duration.touched)

    def alone(self, arm: str, calls: int) -> float:
        """Return the seconds of a block of ``arm`` outside of all rounds, with fresh inputs. Raises ArmFailed."""
        self._new_round(calls)
        return _without(self._empty.get(arm, 0.0) * calls / self.calls, self._run(arm, calls).wall)

    def beside(self, runner: Runner, calls: int, first: str = EAGER) -> dict[str, Block]:
        """Return a block of eager's and one of the candidate's in another runner. Nothing is taken off their times.

        Both get the same fresh inputs, the arm ``first`` before the other. Raises ArmFailed.
        """
        self._new_round(calls)
        runners, blocks = {EAGER: self._runners[EAGER], CANDIDATE: runner}, dict[str, Block]()
        for arm in (first, CANDIDATE if first == EAGER else EAGER):
            with blaming(arm), self._bench.deadline.paused():
                run = partial(runners[arm].block, calls, False, self._depth)
                duration, noise = self._watched(runners[arm], run)
            blocks[arm] = Block(duration.wall, calls, noise)
        return blocks

    def stopped_at(self, runner: Runner, calls: int, seconds: float, first: str = EAGER) -> list[int]:
        """Stop a block of the candidate's in another runner, after one of eager's if ``first`` is eager.

        Return the addresses of the instructions that came next ``seconds`` after the block's begin, as
        :meth:`Runner.stopped_at` does. Raises ArmFailed.
        """
        self._new_round(calls)
        if first == EAGER:
            self._run(EAGER, calls)
        with blaming(CANDIDATE), self._bench.deadline.paused():
            return runner.stopped_at(calls, self._depth, seconds)

    @property
    def runners(self) -> Mapping[str, Runner]:
        """The runners of this pair."""
        return self._runners

    def _new_round(self, calls: int) -> None:
        """Choose the round's stack depth and write its inputs.

        Depths come in random order, each for two rounds: the arms in one order, and in the reverse order.
        """
        if not self._depths:
            self._depths = [depth for depth in self._stack.sample(range(DEPTHS), DEPTHS) for _ in range(2)]
        self._depth = self._depths.pop()
        self._draw(calls)

    def _draw(self, calls: int) -> None:
        self._done.clear()
        with self.phases("inputs"), self._bench.deadline.paused():
            self._batch = self._bench.inputs.draw(calls)
            self._bench.inputs.write(self._batch, self._bench.pages)

    def _run(self, arm: str, calls: int, empty: bool = False) -> BlockTime:
        with blaming(arm), self._bench.deadline.paused(arm != CANDIDATE):
            return self._runners[arm].block(calls, empty, self._depth)

    def device_us(self, _arm: str) -> float | None:
        """Return the microseconds of a call by a device's own clock. Return None if there is no such clock."""
        return None

    def slowed_pairs(self) -> tuple[int, int]:
        """Return the number of pairs in which power or heat slowed a device down, and that of all pairs."""
        return 0, 0

    def fill_rate(self) -> float | None:
        """Return the bytes per second that a device fills its memory with. Return None if there is no device."""
        return None

    def close(self) -> None:
        """End the runners. The clock can't be used any more."""
        self._priority.end()
        _end(self._runners)
        if self._judge is not None:
            os.close(self._judge)


def _without(empty: float, wall: float) -> float:
    """Return a block's wall time less that of an empty block, but at least half of it.

    A block that takes little longer than an empty one tells little about its calls. Without the lower bound, the
    ratio of two such blocks could be of any size.
    """
    return max(wall - empty, wall / 2)


def _end(runners: dict[str, Runner], cores: Sequence[int] = ()) -> None:
    """End runners on these cores in turn, since ending one takes as long as a fork.

    Each is removed from ``runners`` before it is closed, so that Ctrl+C meanwhile can't make one be closed twice.
    """
    turn = cycle(cores or (None,))
    while runners:
        runners.popitem()[1].close(next(turn))
