"""The notebook docs/reward.ipynb, executed cell by cell."""

from __future__ import annotations

import json

import pytest

from support.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]
NOTEBOOK = json.loads((ROOT / "docs/reward.ipynb").read_text())
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def test_the_notebook_shows_what_it_says(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    printed = []
    for cell in CELLS:
        exec(cell, names)
        printed.append(capsys.readouterr().out)
    _, _, broken, wrong, both, _ = printed
    assert "no member named 'soft_plus'" in broken or "'soft_plus' is not a member" in broken
    assert "fuse.py:" in broken
    assert "worst element" in wrong
    assert "Pass fuse matched 5 subgraphs: add, softplus." in both
    assert "Reward(0, low=0, high=0" in both
    assert names["good"].score("correct") == 1.0


def test_outputs_are_not_in_the_repository():
    assert all(not cell.get("outputs") for cell in NOTEBOOK["cells"])
