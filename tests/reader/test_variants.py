"""A sample of generated wrappers that compute with torch in hiding: none gets an answer past the recording.

``benchmarks/variants.py`` does the same over 1,000.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from shared import wrapper_variants as variants


@pytest.mark.parametrize("hidden", variants.HIDDEN)
def test_a_hidden_computation_is_refused_or_not_done(hidden: str, tmp_path: Path) -> None:
    for seed in range(2):
        one = variants.variant(1000 + seed, hidden)
        answer = variants.recorded(one.source, tmp_path / str(seed))
        assert not variants.through(answer, one.reference), f"{one.name}\n{one.source}"


@pytest.mark.parametrize("hidden", variants.HONEST[::4])
def test_an_honest_launch_at_such_a_place_is_recorded(hidden: str, tmp_path: Path) -> None:
    one = variants.honest(7, hidden)
    assert variants.launches_right(variants.recorded(one.source, tmp_path)), one.source


def test_variants_are_repeatable_and_differ() -> None:
    assert variants.variant(3) == variants.variant(3)
    assert len({variants.variant(seed).source for seed in range(40)}) > 35
