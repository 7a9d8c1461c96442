"""What this machine's noise is: eager against eager, in a second sandbox, on some of a run's subgraphs.

Their true ratio is 1, so what they show is the machine's: how wide identical programs scatter (below which no
difference is called one), and how much a measurement resembles the one before (which makes intervals too narrow).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pytest_passbench.judge.arms.names import TWIN
from pytest_passbench.timing.aggregate import Floor, aa_floor
from pytest_passbench.timing.estimate import from_values, pair_value
from pytest_passbench.timing.looks import MIN_DELTA
from pytest_passbench.timing.measurement import Arms
from pytest_passbench.timing.series import pooled_lag1

FIRST = 4  # sessions before the floor is taken at its word: Student's t of fewer is vague
SPREAD = 8.0  # a subgraph this many times smaller or larger than all others is of another size
EVERY = 24  # later on one subgraph in so many, for a machine changes in an hour


@dataclass
class Noise:
    """The eager-against-eager sessions of one judge so far."""

    sessions: list[list[float]] = field(default_factory=list)  # per session its pairs' values (logs)
    shares: list[float] = field(default_factory=list)  # per measured subgraph, of rounds that others disturbed
    _sizes: list[int] = field(default_factory=list)
    _since: int = 0

    def wants(self, elements: int) -> bool:
        """Whether a subgraph of this size (input elements) should have a twin beside it."""
        return len(self._sizes) < FIRST or self._since >= EVERY or self._new_size(elements)

    def _new_size(self, elements: int) -> bool:
        return all(abs(math.log(max(elements, 1) / size)) > math.log(SPREAD) for size in self._sizes)

    def add(self, measured: Arms, elements: int) -> None:
        """Take in what was measured on a subgraph, with a twin or without."""
        self.shares.append(measured.disturbed_share)
        self._since += 1
        if TWIN in measured.arms:
            self.sessions.append([pair_value(rounds) for rounds in measured.log_ratios(TWIN)])
            self._sizes.append(max(elements, 1))
            self._since = 0

    @property
    def floor(self) -> Floor | None:
        """The A/A floor, where there was a session."""
        ratios = [from_values(values).log_ratio for values in self.sessions]
        return aa_floor(ratios) if ratios else None

    @property
    def delta(self) -> float:
        """The smallest difference (relative) that is called one here, as far as is known."""
        floor = self.floor
        return MIN_DELTA if floor is None or len(self.sessions) < FIRST else max(MIN_DELTA, floor.width)

    @property
    def correlation(self) -> float:
        """What a pair has in common with the one before it."""
        return pooled_lag1(self.sessions)

    def to_json(self) -> dict[str, Any]:
        """For the results file. ``sessions`` is 0 where nothing was measured; then there is no width either."""
        floor = self.floor
        known = {} if floor is None else {"width": floor.width, "offset": floor.offset}
        return {
            **known,
            "sessions": len(self.sessions),
            "delta": self.delta,
            "correlation": self.correlation,
            "disturbed": fmean(self.shares) if self.shares else 0.0,
        }


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The noise of several workers of one run: the noisiest, and the sessions of all.

    Widths are not averaged: no interval may become narrower for another worker's quiet.
    """
    known = [part for part in parts if part]
    if not known:
        return {}
    worst = max(known, key=lambda part: float(part.get("width", 0.0)))
    return {**worst, "sessions": sum(int(part["sessions"]) for part in known)}
