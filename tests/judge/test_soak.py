"""Measured processes that misbehave, one after the other: the rest is judged, and nothing is left behind.

The same with 300 subgraphs: ``benchmarks/misbehaving.py``.
"""

from __future__ import annotations

import pytest

from shared import misbehaving_run


@pytest.mark.slow
def test_a_run_survives_what_its_runners_do_and_leaves_nothing_behind(tmp_path):
    outcome = misbehaving_run.run(25, tmp_path, budget=5.0)
    assert outcome.wrong == []
    assert outcome.left == []
    assert sum(outcome.statuses.values()) == 25
    assert outcome.statuses["well: correct"] == 20
    assert outcome.grown < misbehaving_run.MOST_GROWN
