"""A run's timings in pytest-benchmark's own storage: ``--benchmark-json``, ``--benchmark-save``, ``compare``.

pytest-benchmark's fixture switches itself off under xdist, but its saving does not. So the rows are built here, on
the controller, from the records that travelled on the reports. PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_passbench.core.record import ArmResult, Record, Speed
from pytest_passbench.plugin.nodeid import split


def saves(config: pytest.Config) -> bool:
    """Return True if pytest-benchmark was asked to save or compare; otherwise its table would only repeat ours."""
    session = getattr(config, "_benchmarksession", None)
    options = ("json", "save", "autosave", "compare")
    return session is not None and any(getattr(session, name, None) for name in options)


def add(config: pytest.Config, nodeid: str, record: Record) -> None:
    """Add the rows of one subgraph: eager, the candidate and every baseline that was measured.

    Several candidates share the rows of eager and of the baselines: the first candidate's measurement gives them.
    """
    from pytest_benchmark.stats import Metadata

    session: Any = config._benchmarksession  # type: ignore[attr-defined]
    names = {row.fullname for row in session.benchmarks}
    for arm, times, info in _rows(record):
        stub = _stub(nodeid if arm == record.candidate else split(nodeid)[0], record, arm, info)
        if stub.fullname in names:
            continue
        row = Metadata(stub, 1, dict(session.options))
        for seconds in times:
            row.update(seconds)
        session.benchmarks.append(row)


def _rows(record: Record) -> list[tuple[str, list[float], dict[str, Any]]]:
    arms = {record.candidate: record.arm, **record.baselines}
    rows = [(name, other_times(arm.speed), _info(arm)) for name, arm in arms.items() if arm.speed is not None]
    eager = next((arm.speed.eager_us for arm in arms.values() if arm.speed is not None), None)
    return rows if eager is None else [("eager", [eager * 1e-6], {}), *rows]


def other_times(speed: Speed) -> list[float]:
    """Return seconds per call of the other program, a value per round.

    A record keeps each round as log(eager time / other time); a round's time here is eager's over the whole
    measurement, divided by the round's ratio: what drifts for both programs alike is taken out.
    """
    rounds = [value for pair in speed.pairs for value in pair]
    return [speed.eager_us * 1e-6 / math.exp(value) for value in rounds] or [speed.other_us * 1e-6]


def _info(arm: ArmResult) -> dict[str, Any]:
    speed = arm.speed
    assert speed is not None
    interval = {"speedup": speed.ratio, "low": speed.low, "high": speed.high, "verdict": speed.verdict}
    return {**interval, "status": arm.status, "correct_from": list(arm.correct_from)}


def _stub(nodeid: str, record: Record, arm: str, info: dict[str, Any]) -> SimpleNamespace:
    name = f"{record.task}/{record.subgraph}"
    return SimpleNamespace(
        name=f"{name} {arm}",
        fullname=f"{nodeid}::{record.subgraph}::{arm}",
        group=name,
        param=arm,
        params={"task": record.task, "subgraph": record.subgraph, "arm": arm, "dtype": record.dtype},
        extra_info=info,
        cprofile_stats=None,
        has_error=False,
    )
