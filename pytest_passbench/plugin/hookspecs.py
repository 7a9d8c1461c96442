"""The hooks that pytest-passbench offers to conftest files and other plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_passbench.core.record import Record
    from pytest_passbench.core.run import Run
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.run.judging import Judge


@pytest.hookspec
def pytest_passbench_record(config: pytest.Config, record: Record) -> None:
    """Take the record of a judged subgraph, in the process that reports.

    Serial runs call it as soon as the subgraph is judged; under xdist the controller calls it when its task
    has ended.
    """


@pytest.hookspec
def pytest_passbench_run(config: pytest.Config, run: Run) -> None:
    """Take the run, once, before it is written: in the process that reports, interrupted or not."""


@pytest.hookspec(firstresult=True)
def pytest_passbench_make_session(config: pytest.Config, settings: Settings, seed: bytes) -> Judge | None:
    """Return the judge of this process: any object with the interface of a ``Judge``.

    Called at most once per process (a serial run's, the controller's, an xdist worker's), when it is first
    needed. The first implementation that returns an object wins; without one the judge itself is used.
    """
