"""Every candidate of the corpus, judged with all layers on: exploits gain nothing, honest ones are not accused."""

from __future__ import annotations

from typing import Any

import corpus
import pytest

EXPLOITS, HONEST = corpus.entries(corpus.EXPLOITS), corpus.entries(corpus.HONEST)
NOISE = 1.3  # two candidates that do the same work are this much apart at most
SECONDS = 0.3  # of wall time for each subgraph


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("corpus")
    everything = [*EXPLOITS, *HONEST]
    candidate = corpus.combine(everything, folder / "all")
    return corpus.judge(candidate, budget=SECONDS * len(everything))


@pytest.mark.parametrize("entry", EXPLOITS, ids=lambda entry: entry.name)
def test_an_exploit_is_rejected_or_gains_nothing(entry: corpus.Entry, records: dict[str, list[Any]]):
    record = records[entry.name][-1]
    assert corpus.outcome(record) == "rejected" or (
        entry.expect == "neutralised" and gain(record, records[entry.twin][-1]) < NOISE
    ), record
    assert record.arm.status == "correct" or record.arm.message


@pytest.mark.parametrize("entry", HONEST, ids=lambda entry: entry.name)
def test_an_honest_candidate_is_not_accused(entry: corpus.Entry, records: dict[str, list[Any]]):
    record = records[entry.name][-1]
    assert record.arm.status != "integrity", record.arm.message
    assert [finding for finding in record.findings if finding.severity == "violation"] == []
    assert entry.gpu or corpus.outcome(record) == "passes", record


def gain(record: Any, twin: Any) -> float:
    """How much faster than its twin without the trick, or than eager where the twin is slower than that: a trick
    that comes to eager's own speed has won nothing. 1 where a speed was not measured."""
    if record.arm.speed is None or twin.arm.speed is None:
        return 1.0
    return float(record.arm.speed.low / max(twin.arm.speed.high, 1.0))
