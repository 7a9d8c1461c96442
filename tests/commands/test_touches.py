"""The tasks that a candidate's passes match."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import main

SILU = "def forward(in_0, in_1):\n    return (torch.nn.functional.silu(in_0) + in_1,)\n"


@pytest.fixture
def several(bench, gelu_add_pass):
    bench.task("a-matches")
    bench.task("b-misses", source=SILU, ops=("silu", "add"))
    bench.task("c-faulty")
    bench.candidate({"p": gelu_add_pass})
    bench.candidate({"p": "def pattern(x):"}, task="c-faulty")
    return bench


def test_tasks_that_match_or_whose_passes_are_faulty_are_listed(several, capsys):
    assert main(["touches", str(several.folder / "cand"), str(several.tasks)]) == 0
    assert capsys.readouterr().out.splitlines() == ["a-matches", "c-faulty", "2 of 3 tasks"]


def test_a_candidate_that_matches_nothing(bench, gelu_add_pass, capsys):
    bench.task("misses", source=SILU, ops=("silu", "add"))
    root = bench.candidate({"p": gelu_add_pass})
    assert main(["touches", str(root), str(bench.tasks)]) == 1
    assert capsys.readouterr().out == "0 of 1 tasks\n"
