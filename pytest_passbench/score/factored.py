"""S(t) and ES(t) from their published factors: a second way to the numbers of :mod:`pytest_passbench.score.es`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from pytest_passbench.core.ladder import T_FROZEN
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score.es import geomean, power10, speed_at, unmeasured
from pytest_passbench.score.subgraph import Judged, level


@dataclass(frozen=True)
class Factors:
    """The published factors of a group: ``alpha^share * beta^(share*slow*p) * rest^(1-share)``.

    ``alpha``: geometric mean speedup of the correct subgraphs; ``beta``: that of the correct slowdowns;
    ``share`` (lambda) = correct / N; ``slow`` (eta) = slowdowns / correct. Where a set is empty: 1, 1, 0, 0.
    """

    alpha: float
    beta: float
    share: float
    slow: float

    def value(self, rest: float, p: float) -> float:
        """The factored score, with ``rest`` (b or gamma_t) standing for each subgraph that is not correct."""
        exponent = self.share * log10(self.alpha) + self.share * self.slow * p * log10(self.beta)
        return power10(exponent + (1.0 - self.share) * log10(rest))


def factors(subgraphs: Sequence[Judged], at: int, *, guard: bool) -> Factors:
    """The factors with correctness decided at ``at``, over measured subgraphs."""
    speeds = [speed_at(subgraph, at, guard) for subgraph in subgraphs if subgraph.correct_at(at)]
    slowdowns = [speed for speed in speeds if speed < 1.0]
    return Factors(
        alpha=geomean(speeds) or 1.0,
        beta=geomean(slowdowns) or 1.0,
        share=len(speeds) / len(subgraphs) if subgraphs else 0.0,
        slow=len(slowdowns) / len(speeds) if speeds else 0.0,
    )


def s_factored(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings) -> float | None:
    """S(t) from its factors; equals :func:`s_at`."""
    if unmeasured(subgraphs, settings):
        return None
    return factors(subgraphs, t, guard=False).value(settings.b, settings.p)


def es_factored(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings, *, guard: bool) -> float | None:
    """ES(t) from its factors; equals :func:`es_at`."""
    if unmeasured(subgraphs, settings):
        return None
    frozen = factors(subgraphs, min(t, T_FROZEN), guard=guard)
    return frozen.value(gamma(subgraphs, t, settings), settings.p)


def gamma(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings) -> float:
    """gamma_t: what a failure counts on average, b below t = 1.

    ``b^(sum over classes c of pi_c * [t < level(c)])`` with pi_c the share of class c among the failures at
    t = 1.
    """
    classes = Counter(subgraph.failure for subgraph in subgraphs if subgraph.failure is not None)
    if t < T_FROZEN or not classes:
        return settings.b
    pending = sum(
        count for failure, count in classes.items() if failure and t < level(failure, settings.interpretation)
    )
    return float(settings.b ** (pending / classes.total()))
