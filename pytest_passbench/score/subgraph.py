"""A judged subgraph as the scores see it, and the worth of its failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_passbench.core.criterion import Criterion
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.ladder import BITWISE, NEVER, T_FROZEN, first_correct
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.core.settings import Interpretation

NOT_JUDGED = "not_judged"
"""The class of a subgraph that the run was to judge and has no record of."""

ACCURACY = "accuracy"
"""The class of a subgraph that ran but is not correct at t = 1."""

TOLERATED_FROM: dict[Interpretation, dict[str, int]] = {
    "default": {
        ACCURACY: 1,
        "nan_inf": 3, "shape_mismatch": 3, "type_mismatch": 3,
        "runtime_fail": 3, "timeout": 3, "crash": 3, "compile_fail": 3,
        "eager_fail": NEVER, "pass_miss": NEVER, "integrity": NEVER, NOT_JUDGED: NEVER,
    },
    "mismatch_extended": {
        ACCURACY: 1,
        "nan_inf": 2, "shape_mismatch": 2, "type_mismatch": 2,
        "runtime_fail": 3, "timeout": 3, "crash": 3, "compile_fail": 4,
        "eager_fail": NEVER, "pass_miss": NEVER, "integrity": NEVER, NOT_JUDGED: NEVER,
    },
}  # fmt: skip
"""The smallest t from which a failure counts 1, by interpretation and failure class; below it, it counts b."""

_STATUSES = (RAN, *(name for name in TOLERATED_FROM["default"] if name not in (ACCURACY, NOT_JUDGED)))

TOP: dict[Interpretation, int] = {"default": 4, "mismatch_extended": 5}
"""The last t of each interpretation."""


SPEEDUPS = (1e-12, 1e12)
"""Bounds of a speedup, as in the schema of results files; any other number in a file is an error in the file."""


@dataclass(frozen=True)
class Judged:
    """The facts about one subgraph that its score needs.

    ``first_correct`` is the smallest t at which every output passes: NEVER if there is none, or if it did not run to
    its end. ``speedup`` is eager time / candidate time, or None if nothing ran or the speed was not measured.
    ``null_from`` is the smallest t at which a null answer passes, or NEVER. ``interval`` has the ends of the
    speed-up's 95 % interval, and ``name`` is the subgraph's. ``headroom`` is its task's (0: not known), with the
    task's ``operators``. No score needs these four.
    """

    status: str
    first_correct: int = NEVER
    speedup: float | None = None
    null_from: int = NEVER
    interval: tuple[float, float] | None = field(default=None, compare=False)
    name: str = field(default="", compare=False)
    headroom: float = field(default=0.0, compare=False)
    operators: tuple[str, ...] = field(default=(), compare=False)

    def correct_at(self, t: int) -> bool:
        """Return True if every output is within the tolerances of ``t``."""
        return self.first_correct <= t

    def unmeasured_at(self, t: int) -> bool:
        """Return True if it is correct at ``t`` without a measured speed, so that its score is unknown."""
        return self.correct_at(t) and self.speedup is None

    @property
    def failure(self) -> str | None:
        """Its failure class at t = 1, or None if it is correct there."""
        if self.status != RAN:
            return self.status
        return None if self.correct_at(T_FROZEN) else ACCURACY


def from_record(record: Record, arm: str = "candidate", criterion: Criterion = "ladder") -> Judged:
    """Return a record's candidate, or its baseline named ``arm``, as judged under a criterion.

    Raises KeyError if the record has no such baseline.
    """
    judged, (first, null_from) = record.result(arm), record.levels(criterion, arm)
    speed = judged.speed
    return Judged(
        status=judged.status,
        first_correct=first if judged.correct_from else NEVER,
        speedup=speed.ratio if speed is not None else None,
        null_from=null_from,
        interval=(speed.low, speed.high) if speed is not None else None,
        name=record.subgraph,
        headroom=record.headroom,
        operators=tuple(record.operators),
    )


def from_json(data: Any, where: str) -> Judged:
    """Return a subgraph of a conformance case. Raises UserError; ``where`` names file and index in its message."""
    if not isinstance(data, Mapping):
        raise UserError("not an object", where=where, remedy="give status, dtypes, correct_from, speedup")
    status = data.get("status")
    status = RAN if status == "correct" else status  # as the cases of the score's definition name it
    if not isinstance(status, str) or status not in _STATUSES:
        raise UserError(
            f"unknown status {abbreviated(status)}", where=where, remedy=f"one of: {', '.join(_STATUSES)}"
        )
    dtypes = data.get("dtypes", [])
    if not isinstance(dtypes, list) or not all(isinstance(name, str) for name in dtypes):
        raise UserError("dtypes: not a list of names", where=where, remedy="one per output, as float32")
    correct_from = _whole_numbers(data.get("correct_from", []), "correct_from", where)
    if status == RAN and (not correct_from or len(correct_from) != len(dtypes or correct_from)):
        raise UserError("correct_from: not one per output", where=where, remedy="as many as dtypes has")
    return Judged(
        status=status,
        first_correct=first_correct(correct_from) if status == RAN else NEVER,
        speedup=_speedup(data.get("speedup"), where),
        null_from=_whole_numbers([data.get("null_from", NEVER)], "null_from", where)[0],
    )


def _whole_numbers(values: Any, name: str, where: str) -> tuple[int, ...]:
    levels = range(BITWISE, NEVER + 1)
    if not isinstance(values, list) or any(type(value) is not int or value not in levels for value in values):
        raise UserError(f"{name}: not levels of t", where=where,
                        remedy=f"{BITWISE} .. {NEVER - 1}, or {NEVER} for never")  # fmt: skip
    return tuple(values)


def _speedup(value: Any, where: str) -> float | None:
    if value is None:
        return None
    least, most = SPEEDUPS
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
        raise UserError(f"speedup {abbreviated(value)}: not a possible one", where=where, remedy="null: not measured")
    return float(value)
