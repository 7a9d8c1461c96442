"""How an arm's measured processes come and go."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from pytest_passbench.judge.arms.forks import draw_cores
from pytest_passbench.judge.machine.cores import Cores
from shared.workspace import AS_EAGER


@pytest.mark.slow
def test_chance_says_on_which_core_each_arm_forks(twin, monkeypatch):
    from pytest_passbench.judge.measure import cpu_clock

    drawn, fork_all = [], cpu_clock.fork_all

    def noted(templates, *arguments):
        runners = fork_all(templates, *arguments)
        if len(templates) == 2:
            drawn.append(tuple(core for arm in ("eager", "candidate") for core in templates[arm].cores))
        return runners

    monkeypatch.setattr(cpu_clock, "fork_all", noted)
    twin.judge(policy="open")
    there = Cores.choose(1).forking
    apart = set(itertools.permutations(there, 2))  # never both on one core, and each on every core
    assert set(drawn) == (apart or {(*there, *there)})


def test_three_arms_on_two_cores_are_alike():
    """No arm is always alone on its core, and none always runs after the same other arm there."""
    draws = [draw_cores(["eager", "candidate", "reference"], [4, 5]) for _ in range(300)]
    first = Counter(next(iter(cores)) for cores in draws)
    alone = Counter(arm for cores in draws for arm, core in cores.items() if list(cores.values()).count(core) == 1)
    assert len(first) == len(alone) == 3
    assert min(*first.values(), *alone.values()) > 50


@pytest.mark.slow
@pytest.mark.parametrize(("threads", "expected"), [(1, True), pytest.param(2, False, marks=pytest.mark.slow)])
def test_only_runners_of_one_thread_rehearse(bench, wrapper, monkeypatch, threads, expected):
    """Several threads wait for each other in loops, and would have to share the core of the fork."""
    from pytest_passbench.judge.arms import template

    orders, send = [], template.send
    monkeypatch.setattr(template, "send", lambda *said: orders.append(said[1]) or send(*said))
    bench.task(shapes=((4, 8), (4, 8)))
    bench.candidate({"p": wrapper(AS_EAGER)})
    bench.judge(policy="open", threads=threads)
    assert any(order.get("rehearse") for order in orders) is expected


def test_an_interruption_while_runners_end_stays_one(twin, monkeypatch):
    from pytest_passbench.judge.arms.runner import Runner

    closed, close = [], Runner.close

    def interrupted(self, core=None):
        close(self, core)
        closed.append(self)
        if len(closed) == 2:  # the first was the one in float64
            raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        twin.judge(policy="open")
    assert len(closed) == len(set(closed)) > 2
