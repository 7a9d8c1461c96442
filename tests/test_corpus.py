"""Every candidate of the corpus, judged with all layers on: exploits gain nothing, honest ones are not accused."""

from __future__ import annotations

from typing import Any

import corpus
import pytest

EXPLOITS, HONEST = corpus.entries(corpus.EXPLOITS), corpus.entries(corpus.HONEST)
LAYERS = {"plan", "kernel", "outputs", "isolation", "messages", "match"}
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
        entry.expect == "neutralised" and corpus.gain(record, records[entry.twin][-1]) < corpus.NOISE
    ), record
    assert record.correct or record.arm.message


@pytest.mark.parametrize("entry", HONEST, ids=lambda entry: entry.name)
def test_an_honest_candidate_is_not_accused(entry: corpus.Entry, records: dict[str, list[Any]]):
    record = records[entry.name][-1]
    assert record.arm.status != "integrity", record.arm.message
    assert [finding for finding in record.findings if finding.severity == "violation"] == []
    if entry.expect == "refused":
        assert entry.says in record.arm.message
    else:
        assert entry.gpu or corpus.outcome(record) == "passes", record


def test_the_corpus_is_described():
    honest = {entry.name for entry in HONEST}
    for entry in EXPLOITS:
        assert entry.layer in LAYERS
        assert entry.expect in ("rejected", "neutralised")
        assert entry.twin in honest
    assert all(entry.expect in ("passes", "refused") for entry in HONEST)
    assert len([entry for entry in EXPLOITS if not entry.gpu]) >= 250
    assert len(HONEST) >= 60


def test_every_class_of_attack_has_an_exploit():
    assert {entry.line for entry in EXPLOITS} >= set(range(1, 41)) - {37}  # 37 has tests of its own
