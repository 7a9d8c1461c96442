"""The floor under the clock: only a program that seems faster than itself without its kernels is accused."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, repeat
from types import SimpleNamespace

import pytest

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.audits import clock_floor
from pytest_passbench.judge.audits.clock_floor import CONTENTS, TRIES, ClockFloor
from pytest_passbench.judge.bench import Deadline
from pytest_passbench.judge.measure.cpu_clock import ENGINE, PYTHON, CpuClock
from shared.workspace import GELU_ADD, GELU_ADD_KERNEL, make_cpp_pass


def taken_over(monkeypatch, factor):
    """Have all timed blocks of the candidate take ``factor`` times as long, as if something else made its calls."""
    run = CpuClock._run

    def changed(self, arm, calls, empty=False):
        taken = run(self, arm, calls, empty)
        return replace(taken, wall=taken.wall * factor) if arm == CANDIDATE and not empty else taken

    monkeypatch.setattr(CpuClock, "_run", changed)


@pytest.mark.parametrize("pipeline", ["direct", pytest.param("dynamo", marks=pytest.mark.slow)])
def test_a_block_below_the_floor_is_a_violation(bench, monkeypatch, pipeline):
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    taken_over(monkeypatch, 0.02)
    (record, *_) = bench.records(pipeline=pipeline, audit="standard")
    rules = {(finding.layer, finding.rule, finding.severity) for finding in record.findings}
    assert ("clock", "floor", "violation") in rules
    assert record.arm.status == "integrity"
    assert "without its kernels" in next(item.message for item in record.findings if item.rule == "floor")


def taken_over_at_times(monkeypatch, pairs, disturbs):
    """Have timed blocks take a hundredth of the time, in so many of six pairs.

    With ``disturbs`` these are every second block, and the others take ten times as long and touch memory.
    """
    run, fresh, counts = CpuClock._run, CpuClock.fresh, {"pairs": 0, "blocks": 0}

    def begun(self):
        counts["pairs"] += 1
        fresh(self)

    def changed(self, arm, calls, empty=False):
        taken = run(self, arm, calls, empty)
        if arm != CANDIDATE or empty or counts["pairs"] % 6 >= pairs:
            return taken
        counts["blocks"] += 1
        fast = not disturbs or counts["blocks"] % 2 > 0
        return replace(taken, wall=taken.wall * 0.01) if fast else replace(taken, wall=taken.wall * 10, touched=100)

    monkeypatch.setattr(CpuClock, "fresh", begun)
    monkeypatch.setattr(CpuClock, "_run", changed)


@pytest.mark.parametrize(("pairs", "disturbs"), [(2, False), (6, True)])
def test_a_program_that_is_below_the_floor_in_some_blocks_is_accused(bench, monkeypatch, pairs, disturbs):
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    taken_over_at_times(monkeypatch, pairs, disturbs)
    (record, *_) = bench.records(pipeline="dynamo", audit="standard")
    assert "floor" in {finding.rule for finding in record.findings}


def test_blocks_that_are_below_the_floor_in_a_first_measurement_alone_are_timed_anew(bench, monkeypatch):
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    honest = bench.records(pipeline="dynamo")[-1].arm.speed.ratio
    run, fresh, pairs = CpuClock._run, CpuClock.fresh, [0]

    def begun(self):
        pairs[0] += 1
        fresh(self)

    def changed(self, arm, calls, empty=False):
        taken = run(self, arm, calls, empty)
        wrong = arm == CANDIDATE and not empty and pairs[0] <= 6
        return replace(taken, wall=taken.wall * 0.1, cpu=taken.cpu * 0.1) if wrong else taken

    monkeypatch.setattr(CpuClock, "fresh", begun)
    monkeypatch.setattr(CpuClock, "_run", changed)
    (record, *_) = bench.records(pipeline="dynamo", audit="standard")
    assert pairs[0] == 12
    assert (record.correct, record.findings) == (True, [])
    assert record.arm.speed.ratio < 2 * honest


@pytest.mark.parametrize("pipeline", ["direct", "dynamo"])
def test_a_plan_that_copies_scratch_memory_has_a_floor(bench, monkeypatch, pipeline):
    text = make_cpp_pass(GELU_ADD_KERNEL)
    assert "    return out\n" in text
    bench.task()
    bench.candidate({"p": text.replace("    return out\n", "    out.clone().copy_(out.clone())\n    return out\n")})
    taken_over(monkeypatch, 0.02)
    (record, *_) = bench.records(pipeline=pipeline, audit="standard")
    assert "floor" in {finding.rule for finding in record.findings}
    assert record.arm.status == "integrity"


@pytest.mark.parametrize("pipeline", ["direct", "dynamo"])
@pytest.mark.parametrize("scale", [1, 64])
def test_an_honest_program_is_above_it(bench, pipeline, scale):
    bench.task(scales=(scale,))
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    (record, *_) = bench.records(pipeline=pipeline, audit="standard")
    assert record.correct, record.arm.message
    assert not [finding for finding in record.findings if finding.layer == "clock"]


def test_the_blocks_without_kernels_launch_none(bench, monkeypatch):
    from pytest_passbench.judge.verify.outputs import read_call

    values, beside = [], CpuClock.beside

    def noted(self, runner, calls, *first):
        walls = beside(self, runner, calls, *first)
        values.append(read_call(runner, 0)[0].value)
        return walls

    monkeypatch.setattr(CpuClock, "beside", noted)
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    (record, *_) = bench.records(pipeline="dynamo", audit="standard")
    assert record.correct, record.arm.message
    assert values
    assert not all(value.any() for value in values)  # the values in a process with kernels are not zeros
    assert any(value.any() for value in values)


def test_a_block_as_short_as_its_program_without_kernels_is_a_violation_under_dynamo(bench, monkeypatch):
    def padded(self):
        self._least, outside = self._ratio_without_kernels(CONTENTS[0])
        self._floors.append(outside)
        # The least share to which an attacker may lengthen its blocks.
        self._share = self._likely_share = max(self._least, self._ratio_of_kernels())
        return -0.1, ""

    bench.task(scales=(16,))
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    monkeypatch.setattr(ClockFloor, "_floor", padded)
    (record, *_) = bench.records(pipeline="dynamo", audit="standard")
    floors = [finding for finding in record.findings if finding.rule == "floor"]
    assert len(floors) == 1
    assert "and these" in floors[0].message


def failing(monkeypatch, times):
    """Have the process that times the kernels crash ``times`` times. Return a list with an entry for each process."""
    ratio, processes = ClockFloor._ratio_of_kernels, []

    def changed(self):
        processes.append(len(processes))
        if len(processes) <= times:
            raise ArmFailed(CANDIDATE, ArmFailure("crash", "run", "the runner was killed by SIGSEGV"))
        return ratio(self)

    monkeypatch.setattr(ClockFloor, "_ratio_of_kernels", changed)
    return processes


@pytest.mark.parametrize(("times", "status"), [(1, "ran"), (TRIES, "crash")])
def test_processes_that_crash_are_tried_anew_and_never_clear_a_program(bench, monkeypatch, times, status):
    bench.task(scales=(16,))
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    processes = failing(monkeypatch, times)
    (record, *_) = bench.records(pipeline="dynamo", audit="standard")
    assert record.arm.status == status, record.arm.message
    assert len(processes) >= min(times + 2, TRIES)  # beside other work, a try may not count


def test_an_honest_program_that_takes_logarithms_of_what_a_kernel_writes_is_above_it(bench):
    """Without the kernel eager takes logarithms of zeros, which takes twenty times as long as of other numbers."""
    source = GELU_ADD.replace("return (tmp_1,)", "return (torch.log(tmp_1),)")
    bench.task(source=source, ops=("gelu", "add", "log"), scales=(64,),
               stats="mean: 1.5, std: 0.2, min: 1.0, max: 2.0")  # fmt: skip
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL)})
    (record, *_) = bench.records(pipeline="direct", audit="standard")
    assert record.correct, record.arm.message
    assert not [finding for finding in record.findings if finding.layer == "clock"]


CLOCK = SimpleNamespace(maker=lambda _arm: PYTHON, renew=lambda _arm: None)
TEMPLATE = SimpleNamespace(idles=True, arm=SimpleNamespace(settings=SimpleNamespace(pipeline="dynamo")))


def measured(ratio, half_width, per_call=5e-6, greatest=None):
    """Return rounds with this estimate. By it a call of the candidate's takes ``per_call`` seconds.

    ``greatest`` is the greatest ratio of a pair (``ratio`` if it is None).
    """
    estimate = SimpleNamespace(ratio=ratio, half_width=half_width)
    return SimpleNamespace(
        pairs=[1],
        whole_ratio=lambda _arm: estimate,
        greatest_whole_ratio=lambda _arm: greatest or ratio,
        per_call=lambda arm: {EAGER: ratio * per_call}[arm],
    )


@pytest.mark.parametrize(("pipeline", "maker", "per_call", "held"), [
    ("direct", ENGINE, 5e-6, True), ("direct", ENGINE, 50e-6, False),
    ("direct", PYTHON, 50e-6, True), ("direct", PYTHON, 1e-3, False),
    ("dynamo", PYTHON, 1e-3, True), ("dynamo", PYTHON, 5e-3, False),
])  # fmt: skip
def test_calls_that_take_far_longer_than_what_they_cost_are_held_to_no_floor(
    monkeypatch, pipeline, maker, per_call, held
):
    monkeypatch.setattr(clock_floor, "PAUSE", 0.0)
    monkeypatch.setattr(ClockFloor, "_floor", lambda _self: (1.0, "too short"))
    bench = SimpleNamespace(deadline=Deadline(10.0), secret=SimpleNamespace(stream=lambda _name: None))
    clock = SimpleNamespace(maker=lambda _arm: maker, renew=lambda _arm: None)
    template = SimpleNamespace(idles=True, arm=SimpleNamespace(settings=SimpleNamespace(pipeline=pipeline)))
    floor = ClockFloor(clock, template, bench, None, measured(2.0, 0.01, per_call), 3)
    assert bool(floor.findings()) == held


@pytest.mark.parametrize(
    ("suspected", "later", "accused"), [(False, 0.01, False), (True, 0.01, True), (True, -0.05, False)]
)
def test_tries_that_leave_it_open_decide_by_their_sum_about_who_was_below_the_floor_before(
    monkeypatch, suspected, later, accused
):
    excesses = chain([0.01], repeat(later))
    monkeypatch.setattr(clock_floor, "PAUSE", 0.0)
    monkeypatch.setattr(ClockFloor, "_floor", lambda _self: (next(excesses), "too short"))
    monkeypatch.setattr(ClockFloor, "_kernels_count", lambda *_: False)
    bench = SimpleNamespace(deadline=Deadline(10.0), secret=SimpleNamespace(stream=lambda _name: None))
    floor = ClockFloor(CLOCK, TEMPLATE, bench, None, measured(2.0, 0.01), 3, suspected)
    assert bool(floor.findings()) == accused


@pytest.mark.parametrize(("work", "low", "high"), [(1, 0.0, 0.5), (400, 0.5, 1.0)])
def test_the_share_of_stops_in_a_kernel_is_that_of_its_time(bench, monkeypatch, work, low, high):
    shares, ratio = [], ClockFloor._ratio_of_kernels
    loop = f"for (int turn = 0; turn < {work}; ++turn) for"
    assert GELU_ADD_KERNEL.count("for") == 1

    class Noted(clock_floor._Stops):
        @property
        def share(self):
            shares.append(super().share)
            return shares[-1]

    def noted(self):
        with monkeypatch.context() as patch:
            patch.setattr(clock_floor, "_Stops", Noted)
            return ratio(self)

    monkeypatch.setattr(ClockFloor, "_savable_share", 1.0)
    monkeypatch.setattr(ClockFloor, "_kernels_count", lambda *_: True)
    monkeypatch.setattr(ClockFloor, "_ratio_of_kernels", noted)
    bench.task()
    bench.candidate({"p": make_cpp_pass(GELU_ADD_KERNEL.replace("for", loop))})
    bench.records(pipeline="dynamo", audit="standard")
    assert low <= sorted(shares)[len(shares) // 2] <= high


def test_the_pauses_between_tries_are_not_the_candidates_time(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock_floor.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(ClockFloor, "_floor", lambda _self: (1.0, "too short"))
    deadline = Deadline(10.0, clock=lambda: now[0])
    bench = SimpleNamespace(deadline=deadline, secret=SimpleNamespace(stream=lambda _name: None))
    floor = ClockFloor(CLOCK, TEMPLATE, bench, None, measured(2.0, 0.01), 1)
    assert len(floor.findings()) == 1
    assert now[0] > 0
    assert deadline.left() == pytest.approx(10.0)


#: How many times the block is shorter than floor and kernels together.
FAR, CLEAR, NEAR, SUSPECTED, TOO_SHORT = 0.5, 1.0, 1.1, 1.25, 3.0


@pytest.mark.parametrize(
    ("gains", "accused", "tries"),
    [
        ((FAR, FAR), False, 2),
        ((CLEAR,) * 3, False, 3),
        ((TOO_SHORT, FAR, CLEAR, CLEAR, CLEAR), False, 5),
        ((NEAR,) * TRIES, False, TRIES),
        ((SUSPECTED,) * 8, True, 8),
        ((FAR, *(TOO_SHORT,) * 5), True, 6),
    ],
)
def test_no_single_try_clears_or_accuses(monkeypatch, gains, accused, tries):
    tried, renewed = iter(gains), []
    bench = SimpleNamespace(deadline=Deadline(10.0), secret=SimpleNamespace(stream=lambda _name: None))
    monkeypatch.setattr(clock_floor, "PAUSE", 0.0)
    monkeypatch.setattr(ClockFloor, "_ratio_without_kernels", lambda _self, _contents: (0.5, 0.5))
    monkeypatch.setattr(ClockFloor, "_ratio_of_kernels", lambda _self: next(tried) - 0.5)
    clock = SimpleNamespace(maker=lambda _arm: PYTHON, renew=renewed.append)
    floor = ClockFloor(clock, TEMPLATE, bench, SimpleNamespace(), measured(1.0, 0.0), 1)
    assert bool(floor.findings()) == accused
    assert len(gains) - len(list(tried)) == tries
    assert renewed == [EAGER] * (tries - 1)  # each try after the first has a new process of eager


def test_kernels_are_added_to_a_low_floor_of_the_tries(monkeypatch):
    """A process without kernels may be far slower than others. Then its time says nothing about the program."""
    floors = iter((0.5, 0.9, 0.9, 0.5) * TRIES)
    bench = SimpleNamespace(deadline=Deadline(10.0), secret=SimpleNamespace(stream=lambda _name: None))
    monkeypatch.setattr(clock_floor, "PAUSE", 0.0)
    monkeypatch.setattr(ClockFloor, "_ratio_without_kernels", lambda _self, _contents: (next(floors),) * 2)
    monkeypatch.setattr(ClockFloor, "_ratio_of_kernels", lambda _self: 0.6)
    assert not ClockFloor(CLOCK, TEMPLATE, bench, SimpleNamespace(), measured(1.0, 0.0), 1).findings()


@pytest.mark.parametrize(("greatest", "accused"), [(2.0, False), (3.0, False), (10.0, True)])
def test_a_single_pair_far_below_the_floor_is_enough(monkeypatch, greatest, accused):
    bench = SimpleNamespace(deadline=Deadline(10.0), secret=SimpleNamespace(stream=lambda _name: None))
    monkeypatch.setattr(clock_floor, "PAUSE", 0.0)
    monkeypatch.setattr(ClockFloor, "_ratio_without_kernels", lambda _self, _contents: (0.4, 0.4))
    monkeypatch.setattr(ClockFloor, "_ratio_of_kernels", lambda _self: 0.1)
    floor = ClockFloor(CLOCK, TEMPLATE, bench, None, measured(2.0, 0.0, greatest=greatest), 1)
    assert bool(floor.findings()) == accused
