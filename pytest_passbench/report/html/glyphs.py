"""The small intervals in the rows of the page's table of tasks, on one logarithmic scale."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

from pytest_passbench.report import charts
from pytest_passbench.score.interval import Interval

GLYPH_PIXELS, MARGIN_PIXELS = 150, 6
KINDS = {charts.FASTER: "faster", charts.SLOWER: "slower", charts.LEVEL: "same"}
"""The class in the style sheet of each outcome of an interval."""


@dataclass(frozen=True)
class Glyph:
    """The small interval in a row of the table, in pixels from its left edge."""

    low: float
    high: float
    ratio: float
    kind: str


@dataclass(frozen=True)
class Scale:
    """The logarithmic scale of the small intervals: the ratios at its ends."""

    low: float
    high: float

    @property
    def one(self) -> float:
        """The place of 1 in pixels."""
        return self.pixel(1.0)

    def pixel(self, ratio: float) -> float:
        """Return the place of a ratio in pixels; one beyond an end is put there."""
        inside = min(max(ratio, self.low), self.high)
        share = log(inside / self.low) / log(self.high / self.low)
        return round(MARGIN_PIXELS + (GLYPH_PIXELS - 2 * MARGIN_PIXELS) * share, 1)

    def glyph(self, interval: Interval) -> Glyph:
        """Return a small interval."""
        kind = KINDS[charts.outcome(interval)]
        return Glyph(self.pixel(interval.low), self.pixel(interval.high), self.pixel(interval.ratio), kind)
