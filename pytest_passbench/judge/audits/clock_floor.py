"""A floor under the clock: no honest program is faster than itself without its kernels.

A kernel that owns the measured process may replace what calls it, and save the harness's own cost of a call. So the
program's blocks are timed in a process that launches no kernel: no machine code of the candidate's runs in it. The
pipeline, the plans, the calls and the inputs are the same.

The kernels' own time comes on top. Blocks of one more process are stopped at drawn moments, as a sampling profiler
does it. The share of stops in the candidate's machine code is that code's share of the time. A kernel that makes the
calls itself is found in that code all the time. A process that sleeps instead is seen to be slow. Kernels call
libraries of mathematics (``erf``), so the libraries' code counts as the kernels', and is left out of the floor.
"""

from __future__ import annotations

import math
import time
from contextlib import closing
from functools import cached_property
from statistics import median

from pytest_passbench.core.record import Finding
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.processes import Code, added_code, mapped_code
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import ForkOrder, Template
from pytest_passbench.judge.audits.blocks import Blocks
from pytest_passbench.judge.audits.findings import violation
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.measure.cpu_clock import PYTHON, CpuClock
from pytest_passbench.timing.measurement import Arms
from pytest_passbench.timing.rounds import disturbed

WARM_BLOCKS, BLOCKS, TRIES = 3, 8, 12
#: The sum of the tries' excesses decides (logs; a sequential test: Wald, 1945). No try counts by more than ``MOST``.
ACCUSED, CLEARED, MOST = 0.8, -0.25, 0.2
#: Seconds to wait after a try with a greater excess than NEAR, since the load of other processes comes in bursts.
PAUSE, NEAR = 0.2, -0.05
QUARTER = 4  # one ratio in so many may be below the value that counts, since other processes disturb single blocks
#: The contents of the kernels' results in a program without kernels. The least time of the three counts: an operator
#: of eager's may be slow for any one of them, as a division by zeros is, or a product with the same tensor each time.
CONTENTS = ("zeros", "ones", "fresh")
FEW_STOPS, STOPS = 12, 48  # of a process's blocks, at drawn moments. The few are enough if none of them is in kernels
LONGEST = 1.25  # times the median block: the latest moment of a stop
#: A program that is slower by CLEAR than each of the first FEW_BLOCKS blocks without kernels is above its floor.
FEW_BLOCKS, CLEAR = 4, 1.2
#: A program may seem faster than its floor by this share. Two processes of one program may differ by so much.
MARGIN = 0.05
#: It may also seem faster by half its estimate's half width, up to half of this one (log): few noisy pairs are vague.
MAX_HALF_WIDTH = 0.1
#: The most that a call and each operator in it cost without kernels, in seconds, on a busy machine: if the engine
#: makes the calls, if Python does, and if Python also checks guards. A kernel could save no more than that.
ENGINE_COSTS, DIRECT_COSTS, GUARDED_COSTS = (0.5e-6, 0.1e-6), (20e-6, 4e-6), (100e-6, 10e-6)
#: By this factor a block may seem shorter than the floor and the kernels' time together.
MAX_GAIN = 1.12
#: A block that is longer than its floor by this factor is above it in any case. No pair may be so many times shorter,
#: and no process in which kernels are looked for so many times slower than the timed ones.
FAR = 2


class ClockFloor:
    """The floor under a candidate's blocks, as ratios to eager's blocks beside them. ``template`` is the candidate's.

    The machine's speed may drift, so everything is compared with eager's blocks of the same minute. ``blocks`` verify
    calls of further processes. ``measured`` are the timed rounds. The estimate from those that count is compared with
    the floor, since it gives the speed-up. Else a kernel could take over the process in some pairs only.
    ``operators`` is the number of the graph's operators. ``suspected``: an earlier measurement was below its floor,
    so less is needed to accuse. One measurement may be wrong because other processes disturbed it.
    """

    def __init__(
        self,
        clock: CpuClock,
        template: Template,
        bench: Bench,
        blocks: Blocks | None,
        measured: Arms,
        operators: int,
        suspected: bool = False,
    ) -> None:
        self._clock, self._template, self._bench, self._blocks = clock, template, bench, blocks
        self._measured, self._operators, self._suspected = measured, operators, suspected
        self._share = self._likely_share = math.inf
        if measured.pairs:
            estimate = measured.whole_ratio(CANDIDATE)
            self._share = 1 / estimate.ratio
            likely = self._share * math.exp(min(estimate.half_width, MAX_HALF_WIDTH) / 2)
            self._likely_share = min(likely, FAR / measured.greatest_whole_ratio(CANDIDATE))
        self._least, self._untried = math.inf, list[str]()  # of the present try
        self._floors = list[float]()  # of the tries so far
        self._wrong: list[Finding] = []
        self._rng = bench.secret.stream("floor")

    def findings(self) -> list[Finding]:
        """Return a violation if the candidate's blocks were shorter than an honest program's can be.

        The candidate's value is the estimate from its pairs. Several tries decide, each in new processes. Raises
        ArmFailed if eager fails, or if the candidate fails in a try and the other tries do not decide: else it could
        escape this audit by failing.
        """
        if not self._template.idles or self._share == math.inf or self._savable_share <= MARGIN:
            return []
        failures, violations = list[ArmFailed](), list[Finding]()
        total = ACCUSED / 2 if self._suspected else 0.0
        for number in range(TRIES):
            try:
                if number:  # eager's processes differ too, and the estimate is from several
                    self._clock.renew(EAGER)
                excess, message = self._floor()
                if excess <= 0 and self._kernels_count(self._least):
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
        return violations if self._suspected and total > 0 else []  # no try has cleared the suspicion

    @property
    def _savable_share(self) -> float:
        """The most that a kernel could save of a call, as a share of its time.

        That time is eager's by the ratio that is held to the floor. The median of the candidate's own blocks would be
        of its making: blocks that are left out as disturbed count in it.
        """
        of_python = DIRECT_COSTS if self._template.arm.settings.pipeline == "direct" else GUARDED_COSTS
        call, operator = of_python if self._clock.maker(CANDIDATE) == PYTHON else ENGINE_COSTS
        return (call + operator * self._operators) / (self._measured.per_call(EAGER) * self._share)

    def _kernels_count(self, ratio: float) -> bool:
        """Return True if the kernels' time counts too: Python makes the calls, and the floor is a large share.

        A kernel must be able to save more than the floor's error: without it, eager's operators miss the cache more.
        """
        most = MAX_GAIN - 1
        return self._clock.maker(CANDIDATE) == PYTHON and ratio > most * self._share and self._savable_share > most

    def _floor(self) -> tuple[float, str]:
        """Compare the blocks with the floor. Return the log of how many times too short they are, and a message."""
        self._least, self._untried, excess = math.inf, list(CONTENTS), math.inf
        self._floors.append(math.inf)
        while excess > 0 and self._lower_floor():
            excess = math.log(self._least * (1 - MARGIN) / self._likely_share)
        return excess, (
            f"a block takes {self._share:.2f} times as long as eager's, and {self._least:.2f} times without its "
            "kernels: something else than the harness made its calls"
        )

    def _lower_floor(self) -> bool:
        """Measure the floor with the next contents, and keep the least of the try. Return False if all were tried."""
        if not self._untried:
            return False
        ratios = self._ratio_without_kernels(self._untried.pop(0))
        self._least, self._floors[-1] = min((self._least, self._floors[-1]), ratios)
        return True

    def _with_kernels(self) -> tuple[float, str]:
        """Compare the blocks with the floor and the kernels' time together. Return as :meth:`_floor` does."""
        kernels = self._ratio_of_kernels()
        while True:
            floor = _lower_quartile(self._floors)
            excess = math.log((floor + kernels) / (MAX_GAIN * self._likely_share))
            if excess <= 0 or not self._lower_floor():
                break
        return excess, (
            f"a block takes {self._share:.2f} times as long as eager's, {floor:.2f} times without its kernels, and "
            f"these {kernels:.2f} times: something else than the harness made its calls"
        )

    def _ratio_without_kernels(self, contents: str) -> tuple[float, float]:
        """Return the ratio of blocks without kernels, in a new process, to eager's.

        Also return the part of that ratio outside kernels' libraries. ``contents`` replace what kernels would have
        written. Both values are infinite if eager's operators fail on other contents than the first: an index of ones
        may be out of bounds. Raises ArmFailed if eager fails, or if the program fails on the first contents.
        """
        try:
            with closing(self._forked(contents)) as runner:
                ratios, stops = _Ratios(runner, self._clock), _Stops(runner, self._clock)
                while ratios.vague and not self._far_below(ratios.values):
                    ratios.measure()
                ratio = _lower_quartile(ratios.values)
                while stops.vague and self._kernels_count(ratio):
                    self._stop(stops, ratios)
                return ratio, ratio * (1 - stops.share)
        except ArmFailed as failure:
            if failure.arm == EAGER or contents == CONTENTS[0]:
                raise
            return math.inf, math.inf

    def _far_below(self, ratios: list[float]) -> bool:
        return len(ratios) >= FEW_BLOCKS and self._share > CLEAR * max(ratios)

    def _ratio_of_kernels(self) -> float:
        """Return the ratio of the time in kernels and their libraries, in a new process, to eager's blocks.

        Timed blocks, each with a verified call, and stopped blocks come in drawn order. The ratio is 0 if Linux does
        not tell at which instruction a process stops. A process that is :data:`FAR` times slower than the timed ones
        could hide its kernels from the stops by sleeping, so all its time counts.
        """
        with closing(self._forked(None)) as runner:
            ratios, stops = _Ratios(runner, self._clock), _Stops(runner, self._clock)
            while ratios.vague or stops.vague:
                timed = ratios.vague and self._rng.random() < BLOCKS / (BLOCKS + STOPS)
                if timed or not ratios.seconds or not stops.vague:
                    ratios.measure()
                    self._verify(runner)
                else:
                    self._stop(stops, ratios)
            ratio = median(ratios.every)  # the stops are of disturbed blocks too
            return ratio if ratio > FAR * self._share else stops.share * ratio

    def _stop(self, stops: _Stops, ratios: _Ratios) -> None:
        stops.stop(self._rng.uniform(0, LONGEST * median(ratios.seconds)))

    def _verify(self, runner: Runner) -> None:
        """Compare a call of the block before with eager's on the same inputs."""
        if self._blocks is not None:
            runners = {EAGER: self._clock.runners[EAGER], CANDIDATE: runner}
            call = self._rng.randrange(self._clock.calls)
            self._wrong += self._blocks.compared(runners, call, "in a block of another process")

    def _forked(self, idle: str | None) -> Runner:
        """Return a new, warm process of the candidate's program: without its kernels if ``idle`` is set."""
        clock = self._clock
        runner = clock.fork_one(CANDIDATE, ForkOrder(clock.program, clock.calls, rehearse=True, idle=idle))
        try:
            for _ in range(WARM_BLOCKS):
                clock.beside(runner, clock.calls)
            runner.watch.find_threads()
        except BaseException:
            runner.close()
            raise
        return runner


class _Ratios:
    """The ratios of a runner's blocks to eager's beside them. ``seconds`` are the times of the runner's blocks.

    As in the timed rounds, each arm comes second in half of them. Blocks that other processes disturbed do not count
    if enough remain. ``every`` has these too.
    """

    def __init__(self, runner: Runner, clock: CpuClock) -> None:
        self._runner, self._clock = runner, clock
        self._quiet, self.every, self.seconds = list[float](), list[float](), list[float]()

    def measure(self) -> None:
        """Run a block of each. Raises ArmFailed."""
        first = (EAGER, CANDIDATE)[len(self.every) % 2]
        blocks = self._clock.beside(self._runner, self._clock.calls, first)
        self.seconds.append(blocks[CANDIDATE].seconds)
        self.every.append(blocks[CANDIDATE].seconds / blocks[EAGER].seconds)
        if not any(disturbed(block.noise) for block in blocks.values()):
            self._quiet.append(self.every[-1])

    @property
    def vague(self) -> bool:
        """True if more blocks are needed."""
        return len(self._quiet) < BLOCKS and len(self.every) < 2 * BLOCKS

    @property
    def values(self) -> list[float]:
        """The ratios that count."""
        return self._quiet if 2 * len(self._quiet) >= len(self.every) else self.every


class _Stops:
    """The stops of a runner's blocks: each is in the candidate's machine code or its libraries, or elsewhere.

    What a library generates counts as the candidate's, unless eager's has generated code too (convolutions do so).
    """

    def __init__(self, runner: Runner, clock: CpuClock) -> None:
        self._runner, self._clock = runner, clock
        self._inside = self._all = self._tries = 0

    @cached_property
    def _code(self) -> tuple[list[Code], list[Code]]:
        """The candidate's machine code, and that of the libraries that it calls."""
        eager, zygote = (mapped_code(pid) for pid in _and_zygote(self._clock.runners[EAGER]))
        generates = any(not code.path for code in eager - zygote)
        added = [code for code in added_code(*_and_zygote(self._runner)) if code.path or not generates]
        return added, [code for code in mapped_code(self._runner.pid) if code.of_kernels_library]

    def stop(self, seconds: float) -> None:
        """Stop a block ``seconds`` after its begin, if it lasts so long. Raises ArmFailed.

        Any thread may be in the candidate's code. In a library only the first one counts: others wait in OpenMP's.
        """
        self._tries += 1
        first = (EAGER, CANDIDATE)[self._tries % 2]
        addresses = self._clock.stopped_at(self._runner, self._clock.calls, seconds, first)
        if addresses:
            added, libraries = self._code
            in_added = any(code.holds(address) for code in added for address in addresses)
            self._all += 1
            self._inside += in_added or any(code.holds(addresses[0]) for code in libraries)

    @property
    def vague(self) -> bool:
        """True if more stops are needed."""
        enough = STOPS if self._inside else FEW_STOPS
        return self._all < enough and self._tries < 2 * enough

    @property
    def share(self) -> float:
        """The share of the stops that were in the candidate's machine code or its libraries."""
        return self._inside / max(1, self._all)


def _and_zygote(runner: Runner) -> tuple[int, int]:
    """Return the ids of a runner and of the zygote that it descends from."""
    return runner.pid, runner.template.arm.zygote


def _lower_quartile(values: list[float]) -> float:
    """Return the value that a quarter of these lie below."""
    return sorted(values)[len(values) // QUARTER]
