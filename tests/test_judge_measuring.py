"""What measuring tells of a subgraph, of the machine, and of a budget: outcomes, never timings."""

from __future__ import annotations

import itertools
import os
import random
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench import protocol
from pytest_passbench.judge.arms.names import TWIN
from pytest_passbench.judge.arms.watch import Watch
from pytest_passbench.judge.measure.allowance import DEFAULT, Allowance, Budget
from pytest_passbench.judge.measure.floor import MIN_SESSIONS, Noise, merged
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.judge.verify.outputs import read_call
from pytest_passbench.runner import memory
from pytest_passbench.timing.budget import MIN_PAIR_SECONDS
from pytest_passbench.timing.clock import Block
from pytest_passbench.timing.looks import LOOKS, MIN_DELTA
from pytest_passbench.timing.measurement import Arms
from pytest_passbench.timing.rounds import MAX_PAIR_SECONDS, Disturbance, orderless

PHASES = {
    "start", "read", "inputs", "build", "wait", "fork", "warm-up", "blocks", "verify", "audit", "measure", "end",
    "other",
}  # fmt: skip
TWIN_OF_EAGER = "return torch.nn.functional.gelu(x) + y"


def session_of(bench, candidate=None, **settings):
    from pytest_passbench.candidate.layout import Candidate
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.judge.session import Session

    chosen = {"pipeline": "direct", "audit": "off", "policy": "open", **settings}
    return Session(Settings(**chosen), b"a secret of the tests"), Candidate.open(bench.folder / "cand")


def judge_all(session, candidate, bench):
    from pytest_passbench.suite.taskfile import read_task

    tasks = [read_task(path) for path in sorted(bench.tasks.glob("*.yaml"))]
    return [record for task in tasks for record in session.judge(task, candidate)]


@pytest.fixture
def twin(bench, wrapper):
    """A candidate that does what eager does, and three subgraphs for it."""
    bench.task(shapes=((64, 256), (64, 256)), scales=(1, 4, 16))
    bench.candidate({"p": wrapper(TWIN_OF_EAGER)})
    return bench


def test_a_session_tells_of_the_machine_and_of_every_phase(twin):
    session, candidate = session_of(twin)
    with session:
        before = session.noise()
        begin = time.perf_counter()
        records = {record.subgraph: record for record in judge_all(session, candidate, twin)}
        elapsed = time.perf_counter() - begin
        noise = session.noise()
        environment = session.environment()
    assert before["sessions"] == 0
    assert "width" not in before
    assert noise["sessions"] == 3
    assert noise["width"] > 0
    assert noise["offset"] > 0
    assert noise["delta"] == MIN_DELTA  # of three sessions the floor is not yet taken at its word
    assert 0 <= noise["disturbed"] <= 1
    assert 0 <= noise["correlation"] <= 1
    assert environment["priority"] in ("real-time", "ordinary")
    for record in records.values():
        assert record.correct
        assert record.baselines == {}  # the twin is the machine's business, not the record's
        speed = record.arm.speed
        assert speed is not None
        assert speed.low <= speed.ratio <= speed.high
        assert len(speed.pairs) in LOOKS
        assert speed.high > 1 / 1.5  # whatever the noise: it is not found to take half as long again
        assert set(record.durations) <= PHASES
    # phases are disjoint and complete: together they are what the session took
    told = sum(sum(record.durations.values()) for record in records.values())
    assert told == pytest.approx(elapsed, rel=0.05, abs=0.3)


def test_timed_blocks_find_their_memory_there_and_each_finds_it_elsewhere(bench, wrapper, monkeypatch):
    from pytest_passbench.judge.measure.cpu_clock import CpuClock
    from pytest_passbench.timing import rounds

    monkeypatch.setattr(rounds, "PAIR_SECONDS", MAX_PAIR_SECONDS)  # enough rounds for several places
    bench.task(shapes=((256, 1024), (256, 1024)), scales=(1,))  # outputs of 1 MiB each
    bench.candidate({"p": wrapper(TWIN_OF_EAGER)})
    warm, places, stacks, moved = [], set(), [], []
    block, fresh = CpuClock.block, CpuClock.fresh

    def settled(self):
        fresh(self)
        for runner in self.runners.values():
            places.add(read_call(runner, 0)[0].address % 4096)
            stacks.append(stack_of(runner.pid))
            moved.append(set())
        self.timed = True

    def noted(self, arm, calls):
        result = block(self, arm, calls)
        if getattr(self, "timed", False):
            warm.append(self.warm[arm])
            moved[-1].add(read_call(self.runners[arm], 0)[0].address)
        return result

    monkeypatch.setattr(CpuClock, "fresh", settled)
    monkeypatch.setattr(CpuClock, "block", noted)
    session, candidate = session_of(bench)
    session.floor = False
    with session:
        (record, *_) = judge_all(session, candidate, bench)
    assert record.correct
    assert sum(warm) > 0.9 * len(warm) > 0
    pairs = len(record.arm.speed.pairs)
    assert len(places) > pairs / 2  # by chance a few may be alike
    assert stacks[::2] == stacks[1::2]  # both arms of a pair alike
    assert min(map(len, moved[1::2])) >= 4  # places of a pair's blocks


def test_the_rounds_of_a_pair_run_at_depths_of_the_stack_that_differ_both_arms_at_the_same(twin, monkeypatch):
    from pytest_passbench.judge import subject
    from pytest_passbench.judge.arms import runner
    from pytest_passbench.timing import rounds as shapes

    depths, pairs, block, measure = [], [], runner.Runner.block, subject.measure

    def noted(self, calls, empty=False, depth=0):
        depths.append(depth)
        return block(self, calls, empty, depth)

    def measured(*arguments, **options):
        arms, results = measure(*arguments, **options)
        pairs.extend(arms.pairs)
        return arms, results

    monkeypatch.setattr(runner.Runner, "block", noted)
    monkeypatch.setattr(subject, "measure", measured)
    # A pair whose rounds agree would be too short for all depths.
    monkeypatch.setattr(shapes, "PAIR_SECONDS", MAX_PAIR_SECONDS)
    session, candidate = session_of(twin, audit="off")
    session.floor = False
    with session:
        judge_all(session, candidate, twin)
    timed = depths[-2 * len(pairs[-1]) :]  # of the last pair
    rounds = timed[::2]
    assert rounds == timed[1::2]
    assert rounds[::2] == rounds[1::2]  # the two of a couple too, each order of the arms once
    once = rounds[: 2 * protocol.DEPTHS : 2]
    assert len(set(once)) == len(once) > 8


def test_an_interruption_while_runners_end_stays_one(twin, monkeypatch):
    from pytest_passbench.judge.arms.runner import Runner

    closed, close = [], Runner.close

    def interrupted(self, core=None):
        close(self, core)
        closed.append(self)
        if len(closed) == 2:  # the first was the one in float64
            raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "close", interrupted)
    session, candidate = session_of(twin)
    session.floor = False
    with session, pytest.raises(KeyboardInterrupt):
        judge_all(session, candidate, twin)
    assert len(closed) == len(set(closed)) > 2


def test_chance_says_on_which_core_each_arm_forks(twin, monkeypatch):
    from pytest_passbench.judge.measure import cpu_clock

    drawn, fork_all = [], cpu_clock.fork_all

    def noted(templates, *arguments):
        runners = fork_all(templates, *arguments)
        drawn.append(tuple(core for arm in ("eager", "candidate") for core in templates[arm].cores))
        return runners

    monkeypatch.setattr(cpu_clock, "fork_all", noted)
    session, candidate = session_of(twin, audit="off")
    session.floor = False
    with session:
        judge_all(session, candidate, twin)
        there = session._cores.forking
    apart = set(itertools.permutations(there, 2))  # not both on one core, and neither always on its own
    assert set(drawn) == (apart or {(*there, *there)})


@pytest.mark.parametrize(("threads", "expected"), [(1, True), (2, False)])
def test_only_runners_of_one_thread_rehearse(bench, wrapper, monkeypatch, threads, expected):
    """Several, which wait for each other in loops, would have to share the core of the fork."""
    from pytest_passbench.judge.arms import template

    orders, send = [], template.send
    monkeypatch.setattr(template, "send", lambda *said: orders.append(said[1]) or send(*said))
    bench.task(shapes=((4, 8), (4, 8)))
    bench.candidate({"p": wrapper(TWIN_OF_EAGER)})
    session, candidate = session_of(bench, threads=threads, budget=2.0)
    session.floor = False
    with session:
        judge_all(session, candidate, bench)
    assert any(order.get("rehearse") for order in orders) is expected


def test_depths_of_the_stack_reach_all_parts_of_a_page_and_of_a_cache_line():
    pointers = [call(0, 0) for call in memory.at_depths(lambda _depth, _first, _second: stack_pointer() % 2**31)]
    below = [pointers[0] - pointer for pointer in pointers]
    assert sorted(below) == below
    assert {distance % 4096 // 512 for distance in below} == set(range(8))
    assert len({distance % 64 for distance in below}) > 1


def stack_pointer() -> int:
    """Of this thread, as the kernel tells another one while this one waits."""
    mine, (reading, writing), found = threading.get_native_id(), os.pipe(), []

    def look():
        while not found:
            number, *rest = Path(f"/proc/self/task/{mine}/syscall").read_text().split()
            if number != "running" and int(rest[0], 16) == reading:
                found.append(int(rest[-2], 16))
        os.write(writing, b".")

    looking = threading.Thread(target=look)
    looking.start()
    os.read(reading, 1)
    looking.join()
    os.close(reading)
    os.close(writing)
    return found[0]


def stack_of(pid: int) -> tuple[int, int]:
    """How far the stack of a process reaches that waits for a block (bytes), and the length of the command line
    above it."""
    stat, watch = Path(f"/proc/{pid}/stat"), Watch(pid)
    os.kill(pid, signal.SIGCONT)  # it was stopped on its way there
    while (fields := stat.read_text().rpartition(")")[2].split())[0] != "S":
        time.sleep(0.001)
    pointer = int(Path(f"/proc/{pid}/syscall").read_text().split()[-2], 16)
    os.kill(pid, signal.SIGSTOP)
    watch.wait_stopped()
    return int(fields[25]) - pointer, len(Path(f"/proc/{pid}/cmdline").read_bytes())


def test_the_probe_ends_when_blocks_are_long_enough_however_slow_float64_is():
    from pytest_passbench.judge.subject import FLOAT64, MAX_PROBES, Subject

    seconds, blocks = {"eager": 1e-4, "candidate": 5e-5, FLOAT64: 1e-2}, []

    def block(arm, calls):
        blocks.append((arm, calls))
        return Block(calls * seconds[arm], calls, Disturbance(calls * seconds[arm]))

    clock = SimpleNamespace(fork=lambda: None, leave_out=lambda _arm: None, block=block, warm=seconds)
    bench = SimpleNamespace(layout=SimpleNamespace(slots=64))
    subject = SimpleNamespace(templates=seconds, bench=bench)
    times = Subject._probe(subject, clock, SimpleNamespace())
    assert times == pytest.approx({"eager": 1e-4, "candidate": 5e-5})
    assert blocks[-1][1] * seconds["eager"] == pytest.approx(5e-4)
    assert len(blocks) < MAX_PROBES


def test_a_budget_is_kept_by_shorter_pairs_and_every_subgraph_still_gets_its_interval(twin):
    session, candidate = session_of(twin, budget=0.01)
    with session:
        session.expected = 3
        records = judge_all(session, candidate, twin)
    assert [record.subgraph for record in records] == ["float32-x1", "float32-x4", "float32-x16"]
    assert all(len(record.arm.speed.pairs) == LOOKS[0] for record in records)
    rounds = [len(pair) for record in records for pair in record.arm.speed.pairs]
    assert max(rounds) <= 8  # of 32


def test_what_noise_left_open_is_measured_again_and_goes_on_where_it_was(twin, monkeypatch):
    from pytest_passbench.judge.subject import Subject

    run = Subject._run
    def noisy_once(self):
        run(self)
        self.noisy = self.earlier is None and self.record.subgraph == "float32-x4"
    monkeypatch.setattr(Subject, "_run", noisy_once)
    session, candidate = session_of(twin)
    with session:
        records = judge_all(session, candidate, twin)
    assert [record.subgraph[9:] for record in records] == ["1", "4", "16", "4"]
    first, again = records[1], records[3]
    assert len(again.arm.speed.pairs) > len(first.arm.speed.pairs)
    assert again.correct
    assert again.arm.correct_from == first.arm.correct_from
    assert sum(again.durations.values()) > sum(first.durations.values())


def test_calls_are_verified_too_once_a_pair_goes_on(twin, monkeypatch):
    from pytest_passbench.judge.measure import allowance
    from pytest_passbench.judge.verify.checker import Checker
    from pytest_passbench.timing import estimate

    monkeypatch.setattr(allowance, "DEFAULT", Allowance())
    monkeypatch.setattr(estimate, "PRECISE_ERROR", 1e-9)  # every pair goes on as long as it may
    monkeypatch.setattr(estimate, "PRECISE_SHARE", 0.0)
    late, rounds, after_round, check = [], [], Checker.after_round, Checker.check

    def noted(self, runners, batch, calls, before):
        rounds.append(before >= self._late)
        after_round(self, runners, batch, calls, before)

    def checked(self, *asked):
        late.append(rounds[-1])
        check(self, *asked)

    monkeypatch.setattr(Checker, "after_round", noted)
    monkeypatch.setattr(Checker, "check", checked)
    session, candidate = session_of(twin)
    session.floor = False
    with session:
        judge_all(session, candidate, twin)
    assert any(rounds)
    assert any(late)


def test_an_empty_block_that_was_disturbed_does_not_make_all_arms_equal(twin, monkeypatch):
    from pytest_passbench.judge.measure.cpu_clock import CpuClock

    monkeypatch.setattr(CpuClock, "_empty_blocks", lambda *_: [1.0] * 3)  # seconds: longer than any block
    session, candidate = session_of(twin)
    with session:
        record = judge_all(session, candidate, twin)[0]
    assert record.arm.speed.eager_us > 1  # half of what it takes, not nothing


@given(st.lists(st.tuples(st.floats(0.5, 2.0), st.floats(0.5, 2.0)), min_size=2, max_size=12))
def test_exchanging_the_arms_gives_the_inverse(times):
    block = lambda seconds: Block(seconds, 1, Disturbance(seconds))  # noqa: E731
    order = [("eager", "candidate"), ("candidate", "eager")]
    pair, other = [], []
    for index, (a, b) in enumerate(times):
        taken, exchanged = {"eager": a, "candidate": b}, {"eager": b, "candidate": a}
        pair.append({arm: block(taken[arm]) for arm in order[index % 2]})
        other.append({arm: block(exchanged[arm]) for arm in order[1 - index % 2]})
    one = Arms(("eager", "candidate"), [pair]).log_ratios("candidate")[0]
    two = Arms(("eager", "candidate"), [other]).log_ratios("candidate")[0]
    assert one == pytest.approx([-value for value in two])


def test_running_first_or_second_leaves_no_trace():
    rng = random.Random(1)
    rounds = [(0.08 if i % 2 else -0.08, bool(i % 2)) for i in range(32)]
    pairs = [[(0.05 + order + rng.gauss(0, 0.001), first) for order, first in rounds] for _ in range(6)]
    for rounds in orderless(pairs):
        assert max(rounds) - min(rounds) < 0.02
        assert sum(rounds) / len(rounds) == pytest.approx(0.05, abs=0.002)
    assert orderless([[(0.1, True), (0.2, True)]]) == [[0.1, 0.2]]


def measured(values, arms=("eager", "candidate", TWIN)):
    """Pairs of one round in which the twin takes ``1 + value`` times eager's time."""
    block = lambda seconds: Block(seconds, 1, Disturbance(seconds))  # noqa: E731
    return Arms(arms, [[{arm: block(1 + value if arm == TWIN else 1.0) for arm in arms}] for value in values])


def test_the_floor_is_measured_on_the_first_subgraphs_and_on_other_sizes():
    noise, asked = Noise(), []
    for size in [100] * 10 + [100_000] + [100] * 30:
        asked.append(noise.wants(size))
        noise.add(measured([0.0] * 6, ("eager", "candidate", TWIN) if asked[-1] else ("eager", "candidate")), size)
    assert asked[:MIN_SESSIONS] == [True] * MIN_SESSIONS
    assert not any(asked[MIN_SESSIONS:10])
    assert asked[10]
    assert sum(asked[11:]) == 1
    assert noise.to_json()["sessions"] == MIN_SESSIONS + 2


def test_delta_is_never_below_the_floor():
    noise = Noise()
    for index in range(8):
        noise.add(measured([0.05 if index % 2 else -0.05] * 6), 100)
    said = noise.to_json()
    assert said["width"] > 0.1
    assert said["delta"] == said["width"]


def test_the_noise_of_a_run_is_that_of_its_noisiest_worker():
    quiet = {"width": 0.01, "offset": 0.01, "sessions": 4, "delta": 0.02}
    loud = {"width": 0.05, "offset": 0.03, "sessions": 3, "delta": 0.05}
    assert merged([quiet, {}, loud]) == {**loud, "sessions": 7}
    assert merged([{}, {}]) == {}


def test_a_budget_is_shared_among_those_left():
    now = SimpleNamespace(time=0.0)
    budget = Budget(20.0, 10, clock=lambda: now.time)
    budget.begin(10)
    assert budget.allowance(2).pair == MAX_PAIR_SECONDS  # two seconds each are plenty
    now.time = 19.0
    for _ in range(5):
        budget.done({"blocks": 0.2, "build": 0.1, "fork": 3.5}, pairs=6)
    tight = budget.allowance(2)
    assert tight.pair == MIN_PAIR_SECONDS
    assert tight.seconds < 0.2
    assert not budget.spare(1.0)
    now.time = 100.0
    assert budget.allowance(2).seconds == 0.0  # overdrawn: the least that gives an interval
    assert Budget(None).allowance(2) == DEFAULT
    assert Budget(None).spare(1e9)


def test_phases_add_up():
    spent: dict[str, float] = {}
    phases = Stopwatch(spent)
    begin = time.perf_counter()
    with phases("outer"):
        time.sleep(0.01)
        with phases("inner"):
            time.sleep(0.02)
    total = time.perf_counter() - begin
    assert sum(spent.values()) == pytest.approx(total, abs=0.002)
    assert spent["inner"] >= 0.02
    assert spent["outer"] < total - 0.019


def test_a_stopped_process_is_seen_as_such():
    import os
    import signal
    import subprocess

    from pytest_passbench.judge.arms.processes import Gone

    process = subprocess.Popen(["sleep", "60"])
    watch = Watch(process.pid)
    try:
        with pytest.raises(Gone):
            watch.wait_stopped(limit=0.01)
        os.kill(process.pid, signal.SIGSTOP)
        watch.wait_stopped()
        assert watch.waited() >= 0
    finally:
        process.kill()
        process.wait()
    with pytest.raises(Gone):
        watch.waited()
    watch.close()
