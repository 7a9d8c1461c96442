"""Looks and verdicts: when to stop measuring, with an interval that stays honest although we looked.

Measuring until an interval looks good makes it too narrow: stopped at the first of the looks at 6, 8, 12, 16
pairs whose plain 95 % interval suits, it covers less than it promises. So every look is paid for. The
intervals are *repeated confidence intervals* (Jennison and Turnbull 1989, JRSS B 51:305): at every look of
the plan the same nominal error (Pocock 1977, Biometrika 64:191), small enough that the chance that *any* of
the plan's intervals misses the truth is 5 %. Whatever rule stops the measuring, the last interval is
one of them, so it covers at least 95 % of the time.

Pocock's constants hold for a known variance. With 6 pairs the variance is anything but known, and the
t statistics of successive looks depend less on each other than normal ones, so the nominal error was found
for the joint law of the t statistics themselves: 4 million simulated series of 32 normal pair values,
two-sided p-values of one-sample t tests at 6, 8, 12, 16, 32; the 5 % quantile of their minimum is 0.0143
(a known variance: 0.0155). Where the first pairs were cut short and count for less, successive looks depend on
each other less still: with the first 6 to 16 pairs of twice to four times the others' variance, and weights to
match, it is 0.0131 to 0.0139. The least is taken. ``tests/timing/test_looks.py`` repeats it on a smaller scale.

SAME is a claim to one side at a time: that the ratio lies above the lower end of the band, and below its upper
end. Two one-sided tests of 5 % each make it (Schuirmann 1987, J. Pharmacokin. Biopharm. 15:657), which is what a
90 % interval inside the band says; its nominal error, from the same simulation with one-sided p-values, is 0.0273.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_passbench.timing import student
from pytest_passbench.timing.estimate import Estimate, estimate
from pytest_passbench.timing.series import worth

Verdict = Literal["FASTER", "SLOWER", "SAME", "UNRESOLVED"]
Reason = Literal["clear", "narrow", "pairs", "time", "more"]

#: The looks whose error is paid for. The last is for what is measured again at the end of a run.
LOOKS = (6, 8, 12, 16, 32)
#: The two-sided nominal error of each look: all of them together err 5 % at most.
NOMINAL = 0.0131
#: The same of the interval that must lie inside the band for SAME: together they err 5 % at most to either side.
EQUIVALENCE = 0.0273
#: No claim is ever made about differences smaller than this, on any machine.
LEAST_DELTA = 0.02


@dataclass(frozen=True)
class Decision:
    """What a look decided. ``reason`` says why measuring stops (or "more": it goes on):

    "clear" the verdict is certain, "narrow" the interval is as narrow as asked, "pairs" and "time" the budget
    is spent. UNRESOLVED for "narrow" means that the ratio lies *at* delta: measuring again would not help.
    """

    stop: bool
    verdict: Verdict
    reason: Reason

    @property
    def worth_repeating(self) -> bool:
        """True where the budget's end, not the answer, stopped it: the verdict is open, or the ratio still vague."""
        return self.reason in ("pairs", "time")


@dataclass(frozen=True)
class Stopping:
    """When to stop. ``delta`` and the half widths are relative (0.02 is 2 %), ``seconds`` is what one
    subgraph may take. ``clear_half_width``: a verdict may be certain while the ratio is still vague (2.0, or
    2.6?); scores use the ratio, so its interval must be this narrow before a clear verdict stops measuring, or this
    share (``clear_share``) of the ratio's own distance from 1, in logs.
    ``correlation``: what this machine's pairs have in common with their neighbours
    (:func:`pytest_passbench.timing.series.pooled_lag1` of the A/A sessions); it widens every interval.
    """

    delta: float = LEAST_DELTA
    target_half_width: float = 0.01
    clear_half_width: float = 0.05
    clear_share: float = 0.15
    max_pairs: int = 16
    seconds: float | None = None
    correlation: float = 0.0

    def __post_init__(self) -> None:
        if self.delta < LEAST_DELTA:
            raise ValueError(f"delta {self.delta} is below {LEAST_DELTA}")
        if self.max_pairs not in LOOKS:
            raise ValueError(f"max_pairs {self.max_pairs} is not one of the looks {LOOKS}")

    @classmethod
    def for_floor(cls, floor: float, *, max_pairs: int = 16, seconds: float | None = None) -> Stopping:
        """The default rule on a machine with this A/A floor (relative): delta is never below it."""
        return cls(delta=max(LEAST_DELTA, floor), max_pairs=max_pairs, seconds=seconds)

    def next_look(self, pairs: int) -> int | None:
        """The next number of pairs at which to look, or None after the last."""
        return next((look for look in LOOKS if pairs < look <= self.max_pairs), None)

    def look(
        self, pairs: Sequence[Sequence[float]], *, spent: float = 0.0, resolution: float = 0.0
    ) -> tuple[Estimate, Decision]:
        """The interval and the decision after these pairs (lists of log-ratios; ``spent`` seconds in all).

        A number of pairs between two looks stands for the later one: a run cut short looks there instead.
        """
        effective = worth(len(pairs), self.correlation)
        result = estimate(pairs, NOMINAL, effective=effective, resolution=resolution)
        return result, self.decide(result, spent)

    def decide(self, result: Estimate, spent: float = 0.0) -> Decision:
        """Whether to stop after ``spent`` seconds. Time is out when the next look would overrun it."""
        verdict = judge(result, self.delta)
        if result.half_width <= math.log1p(self.target_half_width):
            return Decision(True, verdict, "clear" if verdict != "UNRESOLVED" else "narrow")
        if verdict != "UNRESOLVED" and result.half_width <= self._clear(result):
            return Decision(True, verdict, "clear")
        following = self.next_look(result.pairs)
        if following is None:
            return Decision(True, verdict, "pairs")
        if self.seconds is not None and spent * following / result.pairs > self.seconds:
            return Decision(True, verdict, "time")
        return Decision(False, verdict, "more")

    def _clear(self, result: Estimate) -> float:
        return max(math.log1p(self.clear_half_width), self.clear_share * abs(result.log_ratio))


def judge(result: Estimate, delta: float) -> Verdict:
    """FASTER or SLOWER: the interval is wholly beyond +-delta; SAME: that of :data:`EQUIVALENCE` is wholly inside;
    else UNRESOLVED.

    The band is symmetric in logs, 1/(1 + delta) to 1 + delta, so that swapping the arms swaps the verdict.
    """
    band, distance = math.log1p(delta), abs(result.log_ratio)
    if distance - result.half_width > band:
        return "FASTER" if result.log_ratio > 0 else "SLOWER"
    return "SAME" if distance + _narrower(result) <= band else "UNRESOLVED"


def _narrower(result: Estimate) -> float:
    """The half width at :data:`EQUIVALENCE`; what a coarse clock adds to the interval stays."""
    if not math.isfinite(result.half_width):
        return math.inf
    spare = student.two_sided(NOMINAL, result.df) - student.two_sided(EQUIVALENCE, result.df)
    return result.half_width - spare * result.stderr
