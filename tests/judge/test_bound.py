"""A candidate that keeps the judge waiting runs out of its time in any phase, and the next subgraph is judged."""

from __future__ import annotations

import pytest

from pytest_passbench.judge.bench import SAFETY, Deadline, Pace
from shared import stalling_candidates
from shared.workspace import AS_EAGER

LIMIT = 3.0
USUAL = ["requests", "kernel"]


def check(bench, kinds):
    stalling_candidates.write(bench, kinds)
    records = bench.judge(timeout=LIMIT, policy="open", audit="standard")
    for (key, record), kind in zip(list(records.items())[::2], kinds, strict=True):
        assert kind in key
        assert (kind, record.arm.status) == (kind, "timeout"), record.arm.message
        assert record.arm.phase in stalling_candidates.KINDS[kind].phases
        assert f"{LIMIT:g} s" in record.arm.message
        assert record.arm.speed is None
    honest = list(records.values())[1::2]
    assert [record.correct for record in honest] == [True] * len(kinds), [record.arm for record in honest]


@pytest.mark.slow
def test_whatever_a_candidate_does_it_runs_out_of_its_time_and_the_next_is_judged(bench):
    check(bench, USUAL)


@pytest.mark.slow
def test_other_ways_to_keep_the_judge_waiting_end_in_the_same_way(bench):
    check(bench, [kind for kind in stalling_candidates.KINDS if kind not in USUAL])


@pytest.mark.slow
def test_a_candidate_has_its_time_for_each_subgraph_anew(bench, wrapper):
    bench.task(scales=(1, 2))
    bench.candidate({"p": wrapper(f"import time; time.sleep({LIMIT / 4})\n{AS_EAGER}")})
    records = bench.judge(timeout=LIMIT, policy="open", audit="standard")
    assert [record.correct for record in records.values()] == [True] * 2  # together they take longer


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wrapper", "kernel"])
def test_after_its_first_timeout_a_pass_is_out_for_the_task_alone(bench, kind):
    bench.task("one", scales=(1, 2, 3))
    bench.task("two", scales=(1,))
    bench.candidate({"p": stalling_candidates.KINDS[kind].code})
    records = bench.judge(timeout=LIMIT, policy="open", audit="off")
    first, *others, next_task = records.values()
    assert [record.arm.status for record in records.values()] == ["timeout"] * 4
    assert f"{LIMIT:g} s" in first.arm.message
    for record in others:
        assert record.arm.phase == "out"
        assert record.arm.message.startswith(f"not tried: p took too long on {first.subgraph}, and a pass is out")
    assert f"{LIMIT:g} s" in next_task.arm.message


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_time_that_is_the_candidates_counts():
    clock = Clock()
    deadline = Deadline(10.0, clock)
    clock.now += 3
    assert deadline.left() == 7
    with deadline.paused():
        clock.now += 5
        assert deadline.left() == 7
        with deadline.paused():
            clock.now += 5
        clock.now += 5
        assert deadline.left() == 7
    with deadline.paused(False):
        clock.now += 1
    assert deadline.left() == 6
    clock.now += 7
    assert deadline.left() == 0


def test_a_step_is_begun_only_if_it_and_the_reserve_fit_into_the_time():
    clock = Clock()
    pace = Pace(Deadline(10.0, clock), reserve=2.0)
    assert pace()  # no step has been timed
    clock.now += 2
    assert pace()  # 8 s are left
    clock.now += 2
    assert pace()
    clock.now += 0.9  # 5.1 s are left: 3 for the step, 2 for the reserve
    assert pace()
    clock.now += 0.2
    assert not pace()
    assert SAFETY * 2 + 2 > 4.9
