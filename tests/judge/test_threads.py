"""A run leaves the process that called it as it was."""

from __future__ import annotations

import pytest
import torch

from pytest_passbench import evaluate
from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms import sandbox


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.parametrize("trusted", [False, True])
def test_evaluate_gives_the_callers_threads_back(bench, gelu_add_pass, three_threads, trusted):
    bench.candidate({"p": gelu_add_pass})
    during = []
    run = evaluate(
        bench.folder / "cand",
        bench.task(),
        pipeline="direct",
        trusted=trusted,
        on_record=lambda record: during.append(torch.get_num_threads()),
    )
    assert [record.correct for record in run.records] == [True]
    assert trusted or set(during) == {1}
    assert torch.get_num_threads() == 3


def test_a_run_that_cannot_begin_changes_no_threads(bench, gelu_add_pass, three_threads, monkeypatch):
    monkeypatch.setattr(sandbox, "walls", lambda: sandbox.Walls(False, "none here"))
    bench.candidate({"p": gelu_add_pass})
    with pytest.raises(UserError, match="sandbox"):
        evaluate(bench.folder / "cand", bench.task(), sandbox="required")
    assert torch.get_num_threads() == 3
