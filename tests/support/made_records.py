"""Builders of records, speeds and runs that no judge made, for tests of the code that reads them."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from pytest_passbench.core.record import ArmResult, Record, Speed
from pytest_passbench.core.run import Run


def speed_of(ratio: float = 2.0, width: float = 0.02, verdict: str = "", **values: Any) -> Speed:
    """Return a speed of 10 us, for eager's 10 us times ``ratio``. 1 + ``width`` is its interval's half width.

    If no ``verdict`` is given, it follows from the interval. ``values`` are other fields of the speed.
    """
    low, high = ratio / (1 + width), ratio * (1 + width)
    verdict = verdict or ("FASTER" if low > 1 else "SLOWER" if high < 1 else "SAME")
    fields = {"eager_us": 10.0 * ratio, "other_us": 10.0, "pairs": [[math.log(ratio)] * 2] * 3, **values}
    return Speed(ratio, low, high, verdict, **fields)


def right(ratio: float | None = 2.0, level: int = -11, width: float = 0.02, **values: Any) -> ArmResult:
    """Return an arm that is correct from ``level`` of the ladder on. ``ratio`` is None if it was not measured."""
    return ArmResult(correct_from=[level], speed=speed_of(ratio, width) if ratio else None, **values)


def record_of(
    task: str, subgraph: str, arm: ArmResult | None = None, candidate: str = "mine", **values: Any
) -> Record:
    """Return the record of a subgraph in float32, right and twice as fast if no ``arm`` is given."""
    return Record(task, subgraph, candidate, **{"dtypes": ["float32"], "arm": arm or right(), **values})


def run_of(*records: Record, **values: Any) -> Run:
    """Return a run of these records, of all tasks and candidates that they name. ``values`` are its other fields."""
    names = list(dict.fromkeys(record.candidate for record in records))
    counts = {name: Counter(record.task for record in records if record.candidate == name) for name in names}
    fields = {
        "settings": {"tolerance": -5},
        "tasks": list(dict.fromkeys(record.task for record in records)),
        "candidates": [{"name": name, "path": f"candidates/{name}", "content_hash": "ab" * 32} for name in names],
        "selected": {name: dict(count) for name, count in counts.items()},
    }
    return Run(**{**fields, "records": list(records), **values})
