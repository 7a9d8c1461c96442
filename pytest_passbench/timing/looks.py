"""Looks and verdicts: when to stop measuring, with intervals that account for every look.

Measuring until an interval looks good makes the interval too narrow. Suppose it stops at the first look (6, 8, 12 or
16 pairs) whose plain 95 % interval is narrow enough. That interval covers less than it promises. So the intervals are
*repeated confidence intervals* (Jennison and Turnbull 1989, JRSS B 51:305). Every look has the same nominal error
(Pocock 1977, Biometrika 64:191). It is so small that the chance that *any* of the intervals misses the truth is 5 %.
Whatever rule stops the measuring, the last interval is one of them, so it covers at least 95 % of the time.

Pocock's constants hold for a known variance. With 6 pairs the variance is uncertain, and the t statistics of
successive looks depend less on each other than normal ones. So the nominal error was found for the joint law of
the t statistics themselves. 4 million series of 32 normal pair values were simulated, with two-sided one-sample
t tests at 6, 8, 12, 16 and 32 values. The 5 % quantile of the smallest p-value of a series is 0.0143 (with a
known variance: 0.0155). If the first pairs were cut short and weigh less, successive looks depend on each other
even less. With first 6 to 16 pairs of two to four times the others' variance, and weights to match, the
quantile is 0.0131 to 0.0139. The smallest is used. With a sixth look at 48 values it is 0.0112 (one-sided: 0.0241).
``tests/timing/test_looks.py`` repeats the simulation on a smaller scale.

SAME is two one-sided claims: the ratio lies above the lower end of the band, and below its upper end. Two
one-sided tests of 5 % each decide it (Schuirmann 1987, J. Pharmacokin. Biopharm. 15:657). This is the same as a
90 % interval inside the band. Its nominal error, from the same simulation with one-sided p-values, is 0.0273.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_passbench.timing.estimate import Estimate, estimate, two_sided
from pytest_passbench.timing.series import independent

Verdict = Literal["FASTER", "SLOWER", "SAME", "UNRESOLVED"]
Reason = Literal["clear", "narrow", "pairs", "time", "more"]

#: Smaller differences (relative) are never claimed, on any machine.
MIN_DELTA = 0.02
#: A verdict may be clear while the ratio is still vague (2.0 or 2.6). Scores use the ratio, so a clear verdict stops
#: measuring only at this half width (relative), or at this share of the ratio's distance from 1, in logs.
CLEAR_HALF_WIDTH, CLEAR_SHARE = 0.05, 0.15


@dataclass(frozen=True)
class Looks:
    """The numbers of pairs at which to look, and the errors of each look.

    ``nominal`` is the two-sided error of an interval; that of all looks together is at most 5 %. ``equivalence`` is
    the error of the interval that must lie inside the band for SAME; together at most 5 % to either side. An open
    answer is not measured further if its half width (relative) is below ``half_width``.
    """

    pairs: tuple[int, ...]
    nominal: float
    equivalence: float
    half_width: float


#: The last look is for subgraphs that are measured again, the one before it for a run with a budget.
TO_EAGER = Looks((6, 8, 12, 16, 32), nominal=0.0131, equivalence=0.0273, half_width=0.01)
#: Two versions of a candidate often differ by little more than delta, which takes more pairs to tell.
TO_REFERENCE = Looks((6, 8, 12, 16, 32, 48), nominal=0.0112, equivalence=0.0241, half_width=0.005)
FIRST_LOOK = TO_EAGER.pairs[0]
#: Fewer pairs, of a measurement that was cut short, have no interval and no verdict: two may be equal by chance.
ENOUGH_PAIRS = 4
#: A single look, at a ratio that no score and no gate uses. So the errors are those of plain intervals.
ONE_LOOK = Looks((ENOUGH_PAIRS,), nominal=0.05, equivalence=0.1, half_width=0.01)


@dataclass(frozen=True)
class Decision:
    """The outcome of a look: the verdict so far, and the ``reason`` to stop measuring or to go on.

    "clear": the verdict is certain. "narrow": the interval is as narrow as asked. "pairs" and "time": the
    budget is spent. "more": measuring goes on. UNRESOLVED for "narrow" means that the ratio lies *at* delta, so
    measuring again would not help.
    """

    verdict: Verdict
    reason: Reason

    @property
    def stop(self) -> bool:
        """True if measuring ends."""
        return self.reason != "more"

    @property
    def worth_repeating(self) -> bool:
        """True if the budget stopped it, not the answer: the verdict is open, or the ratio still vague."""
        return self.reason in ("pairs", "time")


@dataclass(frozen=True)
class Stopping:
    """The rule for when to stop. ``delta`` is relative (0.02 is 2 %).

    ``seconds`` is the time limit of one subgraph. ``correlation`` is that of successive pairs on this machine
    (:func:`pytest_passbench.timing.series.pooled_lag1` of the A/A sessions); it widens every interval. Raises
    ValueError if ``delta`` is below :data:`MIN_DELTA`, or if there is no look at ``max_pairs``, which a judge takes
    from its allowance.
    """

    delta: float = MIN_DELTA
    looks: Looks = TO_EAGER
    max_pairs: int = 16
    seconds: float | None = None
    correlation: float = 0.0

    def __post_init__(self) -> None:
        if self.delta < MIN_DELTA:
            raise ValueError(f"delta {self.delta} is below {MIN_DELTA}")
        if self.max_pairs not in self.looks.pairs:
            raise ValueError(f"max_pairs {self.max_pairs} is not one of the looks {self.looks.pairs}")

    def next_look(self, pairs: int) -> int | None:
        """Return the next number of pairs at which to look, or None after the last."""
        return next((look for look in self.looks.pairs if pairs < look <= self.max_pairs), None)

    def look(
        self, pairs: Sequence[Sequence[float]], *, spent: float = 0.0, resolution: float = 0.0
    ) -> tuple[Estimate, Decision]:
        """Return the interval and the decision after these pairs (lists of log-ratios), which took ``spent``
        seconds.

        A number of pairs between two looks stands for the later one, at which a run looks if it was cut short.
        Fewer than :data:`ENOUGH_PAIRS` give an infinite interval, and no verdict.
        """
        effective = independent(len(pairs), self.correlation)
        result = estimate(pairs, self.looks.nominal, effective=effective, resolution=resolution)
        if len(pairs) < ENOUGH_PAIRS:
            result = replace(result, half_width=math.inf, stderr=math.inf, df=0.0)
        return result, self.decide(result, spent)

    def decide(self, result: Estimate, spent: float = 0.0) -> Decision:
        """Return the decision after ``spent`` seconds: "time" if the next look would exceed the limit."""
        verdict = judge(result, self.delta, self.looks)
        if result.half_width <= math.log1p(self.looks.half_width):
            return Decision(verdict, "clear" if verdict != "UNRESOLVED" else "narrow")
        clear = max(math.log1p(CLEAR_HALF_WIDTH), CLEAR_SHARE * abs(result.log_ratio))
        if verdict != "UNRESOLVED" and result.half_width <= clear:
            return Decision(verdict, "clear")
        following = self.next_look(result.pairs)
        if following is None:
            return Decision(verdict, "pairs")
        if self.seconds is not None and spent * following / result.pairs > self.seconds:
            return Decision(verdict, "time")
        return Decision(verdict, "more")


def judge(result: Estimate, delta: float, looks: Looks = TO_EAGER) -> Verdict:
    """Return the verdict of an interval on the band of +-``delta``.

    FASTER or SLOWER: the interval lies wholly outside the band. SAME: the interval of error ``looks.equivalence``
    lies wholly inside. UNRESOLVED: neither. The band is symmetric in logs, 1/(1 + delta) to 1 + delta, so
    exchanging the arms exchanges FASTER and SLOWER.
    """
    band, distance = math.log1p(delta), abs(result.log_ratio)
    if distance - result.half_width > band:
        return "FASTER" if result.log_ratio > 0 else "SLOWER"
    return "SAME" if distance + _narrower(result, looks) <= band else "UNRESOLVED"


def _narrower(result: Estimate, looks: Looks) -> float:
    """Return the half width at the error for SAME. The part that a coarse clock adds to the interval stays."""
    if not math.isfinite(result.half_width):
        return math.inf
    spare = two_sided(looks.nominal, result.df) - two_sided(looks.equivalence, result.df)
    return result.half_width - spare * result.stderr
