"""What tests of environments share: a judge by words, and a guard before the network."""

from __future__ import annotations

import gc

import pytest

from support.no_network import refuse_network
from support.told_backend import ToldBackend


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Refuse connections to other machines, and look-ups of their names."""
    refuse_network(monkeypatch)


@pytest.fixture(autouse=True, scope="module")
def garbage():
    """Collect the streams that Inspect leaves open while the module's filters hold, so that no other test warns."""
    yield
    gc.collect()


@pytest.fixture
def backend(monkeypatch):
    """Replace the process's judge by one that judges by words in a candidate's text, and return that one."""
    import pytest_passbench
    from pytest_passbench.agents import SharedJudge, environment, shared_judge

    backend, judges = ToldBackend(), []

    def process_judge():
        if not judges or judges[-1].closed:
            judges.append(SharedJudge(pytest_passbench.Evaluator(backend=backend)))
        return judges[-1]

    for module in (environment, shared_judge):
        monkeypatch.setattr(module, "process_judge", process_judge)
    return backend
