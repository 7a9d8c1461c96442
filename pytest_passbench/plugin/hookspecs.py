"""The hooks that pytest-passbench offers to conftest files and other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_passbench.core.record import Record
    from pytest_passbench.core.run import Run
    from pytest_passbench.core.settings import Settings


@pytest.hookspec
def pytest_passbench_record(config: pytest.Config, record: Record) -> None:
    """Called for every judged subgraph, in the process that reports.

    Serial runs call it as soon as the subgraph is judged; under xdist the controller calls it when its task
    has ended.
    """


@pytest.hookspec
def pytest_passbench_run(config: pytest.Config, run: Run) -> None:
    """Called once at the end, before the run is written: in the process that reports, interrupted or not."""


@pytest.hookspec(firstresult=True)
def pytest_passbench_make_session(config: pytest.Config, settings: Settings, seed: bytes) -> Any:
    """Return what judges: an object with the interface of :class:`pytest_passbench.judge.session.Session`.

    Called at most once per process (a serial run's, the controller's, an xdist worker's), when it is first
    needed. The first implementation that returns an object wins; without one the judge itself is used.
    """
