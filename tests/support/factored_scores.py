"""S(t) and ES(t) from their published factors, to be compared with :mod:`pytest_passbench.score.es`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from pytest_passbench.core.ladder import T_FROZEN
from pytest_passbench.core.settings import ScoreSettings
from pytest_passbench.score.es import geomean, power10, speed_at, unmeasured
from pytest_passbench.score.subgraph import TOLERATED_FROM, Judged


@dataclass(frozen=True)
class Factors:
    """The published factors of a group: ``alpha^share * beta^(share*slow*p) * rest^(1-share)``.

    ``alpha`` is the geometric mean speedup of the correct subgraphs, and ``beta`` that of the correct
    slowdowns. ``share`` (lambda) is correct / N, and ``slow`` (eta) is slowdowns / correct. For empty sets they
    are 1, 1, 0, 0.
    """

    alpha: float
    beta: float
    share: float
    slow: float

    def value(self, rest: float, p: float) -> float:
        """Return the factored score. ``rest`` (b or gamma_t) stands for each subgraph that is not correct."""
        exponent = self.share * log10(self.alpha) + self.share * self.slow * p * log10(self.beta)
        return power10(exponent + (1.0 - self.share) * log10(rest))


def factors(subgraphs: Sequence[Judged], at: int, *, guard: bool) -> Factors:
    """Return the factors with correctness decided at ``at``, over measured subgraphs."""
    speeds = [speed_at(subgraph, at, guard) for subgraph in subgraphs if subgraph.correct_at(at)]
    slowdowns = [speed for speed in speeds if speed < 1.0]
    return Factors(
        alpha=geomean(speeds) or 1.0,
        beta=geomean(slowdowns) or 1.0,
        share=len(speeds) / len(subgraphs) if subgraphs else 0.0,
        slow=len(slowdowns) / len(speeds) if speeds else 0.0,
    )


def s_factored(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings) -> float | None:
    """Return S(t) from its factors; equals :func:`pytest_passbench.score.es.s_at`."""
    if unmeasured(subgraphs, settings):
        return None
    return factors(subgraphs, t, guard=False).value(settings.b, settings.p)


def es_factored(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings, *, guard: bool) -> float | None:
    """Return ES(t) from its factors; equals :func:`pytest_passbench.score.es.es_at`."""
    if unmeasured(subgraphs, settings):
        return None
    frozen = factors(subgraphs, min(t, T_FROZEN), guard=guard)
    return frozen.value(gamma(subgraphs, t, settings), settings.p)


def gamma(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings) -> float:
    """Return gamma_t, the mean worth of a failure: b below t = 1.

    From t = 1 on it is ``b^(sum over classes c of pi_c * [t < level(c)])``. pi_c is the share of class c among
    the failures at t = 1.
    """
    classes = Counter(subgraph.failure for subgraph in subgraphs if subgraph.failure is not None)
    if t < T_FROZEN or not classes:
        return settings.b
    starts = TOLERATED_FROM[settings.interpretation]
    pending = sum(count for failure, count in classes.items() if failure and t < starts[failure])
    return float(settings.b ** (pending / classes.total()))
