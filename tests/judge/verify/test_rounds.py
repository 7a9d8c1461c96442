"""The rounds that the judge verifies: some in each pair, and earlier ones tell nothing about later ones."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from pytest_passbench.judge.verify.checker import LATE_SHARE, DrawnRounds

PAIRS = 4000


def drawn_rounds(first: int, all_of_them: int) -> list[list[int]]:
    """Return the rounds that are drawn of each pair: the same in every call."""
    rounds = DrawnRounds(random.Random(5), first)
    return [[place for place in range(all_of_them) if rounds.comes_after(place)] for _ in range(PAIRS)]


@pytest.mark.parametrize("first", [1, 4, 16, 24])
def test_each_pair_has_one_at_least(first):
    drawn = drawn_rounds(first, first)
    assert all(drawn)
    usual = (1 + 1 / first) ** first - 1
    assert sum(map(len, drawn)) / PAIRS == pytest.approx(usual, rel=0.05)
    starts = Counter(places[0] for places in drawn)
    assert all(starts[place] * first == pytest.approx(PAIRS, rel=0.3) for place in range(first))


@pytest.mark.parametrize("ahead", [1, 4, 12])
def test_after_one_the_next_is_as_likely_as_the_first_was(ahead):
    """A kernel that skips calls after a drawn round meets the next drawn round as often as at a pair's start."""
    drawn = drawn_rounds(16, 16)
    at_start = [places[0] < ahead for places in drawn]
    after = [any(place - places[0] <= ahead for place in places[1:]) for places in drawn if places[0] + ahead < 16]
    assert sum(at_start) / len(at_start) == pytest.approx(ahead / 16, rel=0.15)
    assert sum(after) / len(after) == pytest.approx(ahead / 16, rel=0.15)


def test_no_round_is_safe_whatever_was_drawn_before():
    by_gap: Counter[tuple[int, bool]] = Counter()
    for places in drawn_rounds(16, 16):
        for place in range(places[0] + 1, 16):
            latest = max(earlier for earlier in places if earlier < place)
            by_gap[place - latest, place in places] += 1
    for gap in {gap for gap, _ in by_gap}:
        rounds = by_gap[gap, True] + by_gap[gap, False]
        assert rounds < 1000 or by_gap[gap, True] / rounds > 0.8 / 16, gap


def test_later_rounds_are_drawn_each_by_itself():
    late = [place for places in drawn_rounds(16, 48) for place in places if place >= 16]
    assert len(late) / PAIRS == pytest.approx(2 * LATE_SHARE, rel=0.1)
    assert set(late) == set(range(16, 48))
