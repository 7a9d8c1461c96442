"""What a judge returns about subgraphs and the machine, how it keeps a budget, and what it measures again."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.results import keep_earlier
from pytest_passbench.judge.session import Session
from pytest_passbench.judge.trial import Trial
from pytest_passbench.suite import find
from pytest_passbench.timing.looks import FIRST_LOOK, MIN_DELTA
from shared.workspace import AS_EAGER

PHASES = {
    "start", "read", "inputs", "build", "wait", "fork", "warm-up", "blocks", "verify", "audit", "measure", "end",
    "other", "held out",
}  # fmt: skip


@dataclass(frozen=True)
class Told:
    """The results of a judge for three subgraphs, and the seconds that they took."""

    before: dict[str, Any]
    after: dict[str, Any]
    environment: dict[str, Any]
    records: list[Any]
    elapsed: float


@pytest.fixture(scope="module")
def told(shared_bench, wrapper) -> Told:
    shared_bench.task(shapes=((64, 256), (64, 256)), scales=(1, 4, 16))
    shared_bench.candidate({"p": wrapper(AS_EAGER)})
    with Session(Settings(pipeline="direct", audit="off", policy="open"), b"a secret of the tests") as session:
        before, begin = session.noise(), time.perf_counter()
        records = shared_bench.judged_by(session)
        elapsed = time.perf_counter() - begin
        return Told(before, session.noise(), session.environment(), records, elapsed)


def test_noise_of_the_machine_is_known_once_subgraphs_were_judged(told):
    assert told.before["sessions"] == 0
    assert "width" not in told.before
    assert told.after["sessions"] == 3
    assert told.after["width"] > 0
    assert told.after["offset"] > 0
    assert told.after["delta"] == MIN_DELTA  # three sessions are too few for a floor
    assert 0 <= told.after["disturbed"] <= 1
    assert 0 <= told.after["correlation"] <= 1
    assert told.environment["priority"] in ("real-time", "ordinary")


def test_a_record_tells_of_the_candidate_and_not_of_the_machines_noise(told):
    for record in told.records:
        assert record.correct
        assert record.baselines == {}  # the twin is not a baseline
        speed = record.arm.speed
        assert speed is not None
        assert speed.low <= speed.ratio <= speed.high
        assert len(speed.pairs) >= FIRST_LOOK
        assert speed.high > 1 / 1.5  # despite noise it must not look 1.5 times as slow


def test_phases_are_known_and_disjoint(told):
    assert all(set(record.durations) <= PHASES for record in told.records)
    last = {record.subgraph: record for record in told.records}  # a last record includes the first measurement's time
    assert 0 < sum(sum(record.durations.values()) for record in last.values()) <= told.elapsed


@pytest.mark.slow
def test_a_budget_is_kept_by_shorter_pairs_and_every_subgraph_still_gets_its_interval(twin):
    records = twin.records(policy="open", budget=0.01)
    assert [record.subgraph for record in records] == ["float32-x1", "float32-x4", "float32-x16"]
    assert all(len(record.arm.speed.pairs) == FIRST_LOOK for record in records)
    rounds = [len(pair) for record in records for pair in record.arm.speed.pairs]
    assert max(rounds) <= 8  # of 32


@pytest.mark.slow
def test_what_noise_left_open_is_measured_again_and_goes_on_where_it_was(twin, monkeypatch):
    judge = Trial.judge

    def unsettled_once(self):
        judge(self)
        self.unsettled = self.earlier is None and self.record.subgraph == "float32-x4"

    monkeypatch.setattr(Trial, "judge", unsettled_once)
    with Session(Settings(pipeline="direct", audit="off", policy="open"), b"a secret of the tests") as session:
        records = twin.judged_by(session)
    assert [record.subgraph[9:] for record in records] == ["1", "4", "16", "4"]
    first, again = records[1], records[3]
    assert len(again.arm.speed.pairs) > len(first.arm.speed.pairs)
    assert again.correct
    assert again.arm.correct_from == first.arm.correct_from
    assert sum(again.durations.values()) > sum(first.durations.values())


@pytest.mark.slow
def test_the_candidate_is_timed_against_eager_whichever_sandbox_started_first(twin):
    """Arms are distinguished by name: eager's sandbox may start last, since it ended or was not needed before."""
    candidate, ref = Candidate.open(twin.folder / "cand"), find.single(next(twin.tasks.iterdir()))
    with Session(Settings(pipeline="direct", audit="off", policy="open"), b"a secret of the tests") as session:
        assert session.touches(ref, candidate)
        for record in session.judge(ref.load(), candidate):
            assert (record.correct, record.baselines) == (True, {})
            assert record.arm.speed is not None


def test_what_the_first_measurement_left_out_stays_left_out():
    first, later = (Record("t", "s0", "c", left_out=left_out) for left_out in (["s1", "s2"], []))
    keep_earlier(later, first)
    assert later.left_out == ["s1", "s2"]
