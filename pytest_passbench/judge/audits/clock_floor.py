"""A floor under the clock: no honest program is faster than itself without its kernels.

A kernel that owns the measured process may replace what calls it, and save the harness's own cost of a call. So the
program's blocks are timed in a process that launches no kernel: no machine code of the candidate's runs in it. The
pipeline, the plans, the calls and the inputs are the same.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack, closing

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms.forks import ArmFailed, fork_all
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import ForkOrder, Template
from pytest_passbench.judge.audits.blocks import Blocks
from pytest_passbench.judge.audits.findings import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.measure.cpu_clock import ENGINE, PYTHON, CpuClock
from pytest_passbench.timing.measurement import Arms
from pytest_passbench.timing.rounds import disturbed

WARM_BLOCKS, BLOCKS, TRIES = 3, 8, 12
#: The sum of the tries' excesses decides (logs; a sequential test: Wald, 1945), since noise may mislead a single try.
#: Those of honest programs scatter by 0.12 about -0.1. No try counts by more than ``MOST``.
ACCUSED, CLEARED, MOST = 0.8, -0.25, 0.2
#: Seconds after a try with a greater excess than NEAR, since what others do on the machine comes in bursts.
PAUSE, NEAR = 0.2, -0.05
QUARTER = 4  # one block in so many may be shorter than the value that counts: beside others, single ones are
#: What a program without kernels computes with in their results' place: the least time counts. An operator of eager's
#: may be slow for any one of them: a division by zeros, or a product with results that are the same tensor each time.
CONTENTS = ("zeros", "ones", "fresh")
FEW_CALLS = 4  # in a block of fewer, operators of torch's scatter more
#: A program that is slower than so many of these blocks, each by this factor, is above its floor.
FEW_BLOCKS, CLEAR = 2, 1.2
#: A program may seem faster than its floor by this share. Two processes of one program may differ by so much.
MARGIN = 0.05
#: And by half the half width of its estimate, up to this one (log): a few noisy pairs are known to no better. Where
#: the kernels' time counts too, which is noisier, by all of it.
MAX_HALF_WIDTH = 0.1
#: The most that a call and each operator in it cost beside kernels, in seconds, by what makes the calls. That is all
#: that a kernel could save. The cost of guards is in it, and that of a busy machine.
COSTS = {ENGINE: (0.5e-6, 0.1e-6), PYTHON: (100e-6, 10e-6)}
#: So many times shorter than the floor and the kernels' time together a block may seem.
MAX_GAIN = 1.12
FAR = 2  # times longer than its floor, a block is above it in any case


class ClockFloor:
    """The floor under a candidate's blocks, as ratios to eager's blocks beside them. ``template`` is the candidate's.

    The machine's speed may drift, so everything is held against eager's blocks of the same minute. ``blocks`` verify
    the calls of the kernels alone. ``measured`` are the timed rounds: what is held to the floor is the estimate from
    those that count, just as it is in the speed-up. Else a program could be taken over in some pairs only.
    ``operators`` is how many the graph has.
    """

    def __init__(
        self, clock: CpuClock, template: Template, bench: Bench, blocks: Blocks | None, measured: Arms, operators: int
    ) -> None:
        self._clock, self._template, self._bench, self._blocks = clock, template, bench, blocks
        self._measured, self._operators = measured, operators
        self._share = self._upper_share = self._likely_share = math.inf
        if measured.pairs:
            estimate = measured.whole_ratio(CANDIDATE)
            self._share = 1 / estimate.ratio
            half_width = min(estimate.half_width, MAX_HALF_WIDTH)
            self._upper_share = self._share * math.exp(half_width)
            self._likely_share = self._share * math.exp(half_width / 2)
        self._least = self._kernels = math.inf
        self._lowest = math.inf  # of all tries: whole processes may be a third slower than others
        self._wrong: list[Finding] = []
        self._rng = bench.secret.stream("floor")

    def findings(self) -> list[Finding]:
        """Return a violation if the candidate's blocks were shorter than an honest program's can be.

        The candidate's value is the estimate from its pairs. Several tries decide, each in new processes. Raises
        ArmFailed for eager, and if the kernels alone failed in a try and the others do not decide. A candidate could
        make them fail to be rid of this audit.
        """
        if not self._template.idles or self._share == math.inf or not self._could_gain:
            return []
        total, failures, violations = 0.0, list[ArmFailed](), list[Finding]()
        for _ in range(TRIES):
            try:
                excess, message = self._floor()
                if excess <= 0 and self._kernels_count:
                    excess, message = self._with_kernels()
                elif excess < -math.log(FAR):
                    return []
            except ArmFailed as failure:
                if failure.arm == EAGER or failure.failure.status != "crash":
                    raise
                failures.append(failure)
                continue
            total += min(max(excess, -MOST), MOST)
            if self._wrong or total <= CLEARED:
                return self._wrong[:1]
            if excess > 0:
                violations = [violation("clock", "floor", message)]
            if total >= ACCUSED:
                return violations
            if excess > NEAR:
                with self._bench.deadline.paused():
                    time.sleep(PAUSE)
        if failures:
            raise failures[-1]
        return []

    @property
    def _could_gain(self) -> bool:
        """True if what a call costs beside its kernels is more than two processes of one program may differ by."""
        call, operator = COSTS[self._clock.maker(CANDIDATE)]
        return call + operator * self._operators > MARGIN * self._measured.per_call(CANDIDATE)

    @property
    def _kernels_count(self) -> bool:
        """True if the kernels' time is needed, and the engine can tell it but does not make the timed blocks.

        Nobody's blocks are shorter than the kernels' time. So where the floor is a small share of the blocks, the two
        together cannot be much longer than the blocks are.
        """
        program, small = self._clock.program, self._least <= (MAX_GAIN - 1) * self._share
        alone = self._template.can_be_native(program) and not self._template.native(program)
        return alone and not small and self._blocks is not None

    def _floor(self) -> tuple[float, str]:
        """Hold the blocks against the floor. Return the log by which they are too short, and a message."""
        self._least = math.inf
        for contents in CONTENTS:
            self._least = min(self._least, self._ratio_without_kernels(contents))
            excess = math.log(self._least * (1 - MARGIN) / self._likely_share)
            if excess <= 0:
                break
        self._lowest = min(self._lowest, self._least)
        return excess, (
            f"a block takes {self._share:.2f} times as long as eager's, and {self._least:.2f} times without its "
            "kernels: something else than the harness made its calls"
        )

    def _with_kernels(self) -> tuple[float, str]:
        """Hold the blocks against the floor and the kernels' time together. Return as :meth:`_floor` does."""
        self._kernels = self._ratio_of_kernels()
        return math.log((self._lowest + self._kernels) / (MAX_GAIN * self._upper_share)), (
            f"a block takes {self._share:.2f} times as long as eager's, its program without kernels "
            f"{self._lowest:.2f} times and its kernels alone {self._kernels:.2f} times: something else than the "
            "harness made its calls"
        )

    def _ratio_without_kernels(self, contents: str) -> float:
        """Return the ratio of blocks without kernels, in a new process, to eager's.

        ``contents`` are in place of what kernels would have written. It is infinite if eager's operators fail on
        others than the first, as an index of ones may be beyond its tensor. Raises ArmFailed for eager, and for the
        first contents.
        """
        try:
            with closing(self._forked(contents, native=None)) as runner:
                return self._share_without_kernels(runner)
        except ArmFailed as failure:
            if failure.arm == EAGER or contents == CONTENTS[0]:
                raise
            return math.inf

    def _ratio_of_kernels(self) -> float:
        """Return the ratio of the kernels alone, as the engine calls them, to eager's blocks.

        If the engine calls operators of torch's too, they take their time in another process without the kernels.
        """
        with ExitStack() as runners:
            kernels, operators = runners.enter_context(closing(self._forked(None, native=True))), None
            if self._template.operates:
                operators = runners.enter_context(closing(self._forked(CONTENTS[0], native=True)))
            return self._share_of_kernels(kernels, operators)

    def _forked(self, idle: str | None, native: bool | None) -> Runner:
        """Return a new, warm process of the candidate's program: without its kernels if ``idle`` is set."""
        bench, clock = self._bench, self._clock
        with bench.awake.off():
            order = ForkOrder(clock.program, clock.calls, rehearse=True, idle=idle, native=native)
            runner = fork_all({CANDIDATE: self._template}, order, bench)[CANDIDATE]
        try:
            for _ in range(WARM_BLOCKS):
                clock.beside(runner, clock.calls)
            runner.watch.find_threads()
        except BaseException:
            runner.close()
            raise
        return runner

    def _share_without_kernels(self, runner: Runner) -> float:
        """Return the lower quartile of the ratios without kernels; the greatest if a few are clearly below."""
        ratios = _Ratios(runner, self._clock)
        while ratios.vague:
            ratios.measure()
            clear = [ratio for ratio in ratios.values if self._share > CLEAR * ratio]
            if len(clear) >= FEW_BLOCKS:
                return max(clear)
        return ratios.lower_quartile()

    def _share_of_kernels(self, runner: Runner, operators: Runner | None) -> float:
        """Return the lower quartile of the ratios of the kernels alone. A call of each block is verified.

        ``operators`` is a process of the same blocks without kernels, whose ratios are taken off, if there is one.
        In a block of few long calls, what is left is a small difference of two noisy values. Their upper quartile is
        taken off then. Raises ArmFailed.
        """
        clock = self._clock
        empty = min(clock.runners[EAGER].engine_empty_block(clock.calls, 0).wall for _ in range(BLOCKS // 2))
        ratios = _Ratios(runner, clock, empty)
        taken_off = [] if operators is None else [_Ratios(operators, clock, empty)]
        while ratios.vague:
            for item in (*taken_off, ratios):  # last, since eager's call on the same inputs is compared
                item.measure()
            runners = {EAGER: clock.runners[EAGER], CANDIDATE: runner}
            call = self._rng.randrange(clock.calls)
            if self._blocks is not None:
                self._wrong += self._blocks.compared(runners, call, "in a block of its kernels alone")
            most = max(ratios.values) - sum(min(item.values) for item in taken_off)
            if len(ratios.values) >= FEW_BLOCKS and self._upper_share * MAX_GAIN >= self._lowest + most:
                return most
        quartile = _Ratios.upper_quartile if clock.calls < FEW_CALLS else _Ratios.lower_quartile
        return max(0.0, ratios.lower_quartile() - sum(map(quartile, taken_off)))


class _Ratios:
    """The ratios of a runner's blocks, less ``empty`` seconds, to eager's beside them.

    As in the timed rounds, each arm comes second in half of them, and those that others disturbed do not count, if
    enough remain.
    """

    def __init__(self, runner: Runner, clock: CpuClock, empty: float = 0.0) -> None:
        self._runner, self._clock, self._empty = runner, clock, empty
        self._quiet, self._all = list[float](), list[float]()

    def measure(self) -> None:
        """Run a block of each. Raises ArmFailed."""
        first = (EAGER, CANDIDATE)[len(self._all) % 2]
        blocks = self._clock.beside(self._runner, self._clock.calls, first)
        ratio = max(0.0, blocks[CANDIDATE].seconds - self._empty) / blocks[EAGER].seconds
        self._all.append(ratio)
        if not any(disturbed(block.noise) for block in blocks.values()):
            self._quiet.append(ratio)

    @property
    def vague(self) -> bool:
        """True if more blocks are needed."""
        return len(self._quiet) < BLOCKS and len(self._all) < 2 * BLOCKS

    @property
    def values(self) -> list[float]:
        """The ratios that count."""
        return self._quiet if 2 * len(self._quiet) >= len(self._all) else self._all

    def lower_quartile(self) -> float:
        """Return the value that a quarter of those that count lie below."""
        return sorted(self.values)[len(self.values) // QUARTER]

    def upper_quartile(self) -> float:
        """Return the value that a quarter of those that count lie above."""
        return sorted(self.values, reverse=True)[len(self.values) // QUARTER]
