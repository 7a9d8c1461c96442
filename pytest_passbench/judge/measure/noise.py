"""This machine's noise, from eager against eager in a second sandbox, on some of a run's subgraphs.

Their true ratio is 1, so any difference is the machine's noise. It gives two figures. The A/A floor is how far the
ratios of identical programs scatter; no smaller difference counts as one. The correlation is how much a pair
resembles the one before; it makes intervals too narrow if it is ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from pytest_passbench.judge.arms.names import TWIN
from pytest_passbench.timing.estimate import Estimate, from_values, pair_value
from pytest_passbench.timing.looks import MIN_DELTA
from pytest_passbench.timing.measurement import Arms
from pytest_passbench.timing.series import NoiseFloor, aa_floor, pooled_lag1, unexplained

MIN_SESSIONS = 4  # before the floor is used, since Student's t of fewer is vague
SIZE_RATIO = 8.0  # a subgraph that is so many times smaller or larger than all measured ones is measured too
MAX_SESSIONS = 256  # that count, the latest: a judge may work for days, and a machine changes
INTERVAL = 24  # later, one subgraph in so many is measured, since a machine changes within an hour


@dataclass
class Noise:
    """The eager-against-eager sessions of one judge so far."""

    sessions: list[list[float]] = field(default_factory=list)  # the values of each session's pairs (log ratios)
    shares: list[float] = field(default_factory=list)  # for each measured subgraph, the share of disturbed rounds
    _sizes: list[int] = field(default_factory=list)
    _since: int = 0

    def wants(self, elements: int) -> bool:
        """Return True if eager should also run as a twin on a subgraph with so many input elements."""
        if len(self._sizes) < MIN_SESSIONS or self._since >= INTERVAL:
            return True
        return all(abs(math.log(max(elements, 1) / size)) > math.log(SIZE_RATIO) for size in self._sizes)

    def add(self, measured: Arms, elements: int) -> None:
        """Add the measurement of a subgraph with so many input elements, with a twin or without."""
        self.shares.append(measured.disturbed_share)
        self._since += 1
        if TWIN in measured.arms:
            self.sessions.append([pair_value(rounds) for rounds in measured.log_ratios(TWIN)])
            self._sizes.append(max(elements, 1))
            self._since = 0
        for values in (self.sessions, self.shares, self._sizes):
            del values[:-MAX_SESSIONS]

    @property
    def floor(self) -> NoiseFloor | None:
        """The A/A floor; None before the first session."""
        ratios = [estimate.log_ratio for estimate in self._estimates()]
        return aa_floor(ratios) if ratios else None

    def _estimates(self) -> list[Estimate]:
        return [from_values(values) for values in self.sessions]

    @property
    def delta(self) -> float:
        """The smallest relative difference that counts as a difference on this machine, as far as that is known."""
        floor = self.floor
        return MIN_DELTA if floor is None or len(self.sessions) < MIN_SESSIONS else max(MIN_DELTA, floor.width)

    @property
    def head_to_head_delta(self) -> float:
        """The smallest relative difference that counts between a candidate and its reference.

        They are measured for longer than the A/A sessions, and their interval covers its own error. So only the
        scatter counts that the errors of those sessions do not explain.
        """
        if len(self.sessions) < MIN_SESSIONS:
            return MIN_DELTA
        estimates = self._estimates()
        return max(
            MIN_DELTA,
            unexplained([estimate.log_ratio for estimate in estimates], [estimate.stderr for estimate in estimates]),
        )

    @property
    def correlation(self) -> float:
        """The correlation of a pair's value with that of the pair before it."""
        return pooled_lag1(self.sessions)

    def to_json(self) -> dict[str, Any]:
        """Return the noise as data for the results file. Without sessions it has no ``width`` and ``offset``."""
        floor = self.floor
        widths = {} if floor is None else {"width": floor.width, "offset": floor.offset}
        return {
            **widths,
            "sessions": len(self.sessions),
            "delta": self.delta,
            "correlation": self.correlation,
            "disturbed": fmean(self.shares) if self.shares else 0.0,
        }


def merged(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the noise of several workers of one run: that of the noisiest worker, and the number of all sessions.

    Widths are not averaged, since a quiet worker must not make the intervals of a noisy one narrower.
    """
    nonempty = [part for part in parts if part]
    if not nonempty:
        return {}
    worst = max(nonempty, key=lambda part: float(part.get("width", 0.0)))
    return {**worst, "sessions": sum(int(part["sessions"]) for part in nonempty)}
