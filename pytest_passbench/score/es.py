"""S(t), ES(t) and AS, computed subgraph by subgraph.

Sources: the published PassBench definition; the null guard is this project's (docs/scores.md). Sums are sums of
log10, so that hundreds of failures at b = 0.001 do not underflow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log10
from pathlib import Path
from typing import Any

from pytest_passbench.core.checks import MAX_EXPONENT, is_exponent, is_failure_value
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.ladder import T_FROZEN, T_MIN, guarded
from pytest_passbench.core.settings import Interpretation, ScoreSettings
from pytest_passbench.score.subgraph import TOLERATED_FROM, TOP, Judged

Curve = dict[int, float | None]
"""A value per t; None if a speed that it needs was not measured."""

WEIGHTS: dict[int, float] = {
    -10: 0.001, -9: 0.001, -8: 0.001, -7: 0.001, -6: 0.001,
    -5: 1.0, -4: 1.0, -3: 1.0, -2: 0.8, -1: 0.64, 0: 0.512,
    1: 0.4096, 2: 0.32768, 3: 0.262144, 4: 0.001, 5: 0.0,
}  # fmt: skip
"""The weight of each t in AS, before the weights are normalised over the t of the interpretation."""


@dataclass(frozen=True)
class Scores:
    """The scores of one group of subgraphs; ``*_published`` are without the null guard."""

    s: Curve
    es: Curve
    as_: float | None
    es_published: Curve
    as_published: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the scores under their names in a results file, t as text; null if not available."""
        return {
            "s": _texts(self.s),
            "es": _texts(self.es),
            "as": self.as_,
            "es_published": _texts(self.es_published),
            "as_published": self.as_published,
        }


def _texts(curve: Curve) -> dict[str, float | None]:
    return {str(t): value for t, value in curve.items()}


def ladder(interpretation: Interpretation) -> range:
    """Return the t of an interpretation: -10 to 4 or 5."""
    return range(T_MIN, TOP[interpretation] + 1)


def check(settings: ScoreSettings, where: Path | None = None) -> None:
    """Raise UserError if b, p or the interpretation are not valid; ``where`` is the file they are from."""
    for name, value in (("b", settings.b), ("p", settings.p)):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(
                f"{name} = {abbreviated(value)} is not a number", where=where, remedy="0 < b <= 1, 0 <= p"
            )
    if not is_failure_value(settings.b):
        raise UserError(f"b = {settings.b} is out of range", where=where, remedy="0 < b <= 1")
    if not is_exponent(settings.p):
        raise UserError(f"p = {settings.p} is out of range", where=where, remedy=f"0 <= p <= {MAX_EXPONENT:g}")
    if settings.interpretation not in tuple(TOLERATED_FROM):
        what = f"unknown interpretation {abbreviated(settings.interpretation)}"
        raise UserError(what, where=where, remedy=f"one of: {', '.join(TOLERATED_FROM)}")


def evaluate(subgraphs: Sequence[Judged], settings: ScoreSettings) -> Scores:
    """Return all scores of one task's subgraphs (or of any group of them). Raises UserError on bad settings.

    A group without subgraphs counts b everywhere, as a missing task does.
    """
    check(settings)
    return _evaluated(tuple(subgraphs), settings)


@lru_cache(maxsize=4096)  # a run is shown in several tables, and may have many tasks that were not judged
def _evaluated(subgraphs: tuple[Judged, ...], settings: ScoreSettings) -> Scores:
    steps = ladder(settings.interpretation)
    es, published = ({t: es_at(subgraphs, t, settings, guard=guard) for t in steps} for guard in (True, False))
    s = {t: s_at(subgraphs, t, settings) for t in steps}
    return Scores(s, es, aggregate(es), published, aggregate(published))


def s_at(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings) -> float | None:
    """Return S(t): the geometric mean of the subgraphs' worth, failures counting b, without the null guard.

    It is None if a subgraph that is correct at some t has no measured speed.
    """
    if unmeasured(subgraphs, settings):
        return None
    earned = (
        _earned(subgraph, t, settings, guard=False) if subgraph.correct_at(t) else settings.b
        for subgraph in subgraphs
    )
    return geomean(earned) or settings.b


def es_at(subgraphs: Sequence[Judged], t: int, settings: ScoreSettings, *, guard: bool) -> float | None:
    """Return ES(t), subgraph by subgraph. At t >= 1 correctness is that at t = 1, and tolerated failures count 1.

    It is None if a subgraph that is correct at some t has no measured speed.
    """
    if unmeasured(subgraphs, settings):
        return None
    return geomean(worth(subgraph, t, settings, guard) for subgraph in subgraphs) or settings.b


def unmeasured(subgraphs: Iterable[Judged], settings: ScoreSettings) -> int:
    """Return the number of subgraphs that are correct at some t but have no measured speed. One of them voids
    every t.
    """
    top = TOP[settings.interpretation]
    return sum(subgraph.unmeasured_at(top) for subgraph in subgraphs)


def aggregate(es: Curve) -> float | None:
    """Return AS, the weighted geometric mean of ES(t) over its t, or None if any ES(t) is None."""
    values = {t: value for t, value in es.items() if value is not None}
    if len(values) < len(es):
        return None
    total = sum(WEIGHTS[t] for t in values)
    return power10(sum(WEIGHTS[t] * log10(value) for t, value in values.items()) / total)


def worth(subgraph: Judged, t: int, settings: ScoreSettings, guard: bool) -> float:
    """Return what a subgraph with a measured speed, or a failure, counts in ES(t)."""
    if subgraph.correct_at(min(t, T_FROZEN)):
        return _earned(subgraph, t, settings, guard=guard)
    failure = subgraph.failure
    tolerated = t >= T_FROZEN and failure is not None and t >= TOLERATED_FROM[settings.interpretation][failure]
    return 1.0 if tolerated else settings.b


def _earned(subgraph: Judged, t: int, settings: ScoreSettings, *, guard: bool) -> float:
    speedup = speed_at(subgraph, t, guard)
    return speedup if speedup >= 1.0 else speedup ** (settings.p + 1.0)


def speed_at(subgraph: Judged, t: int, guard: bool) -> float:
    """Return the speedup that counts at ``t``, of a subgraph with a measured one: at most 1 where the guard holds."""
    assert subgraph.speedup is not None, "callers leave out what was not measured"
    is_capped = guard and guarded(subgraph.first_correct, subgraph.null_from, t)
    return min(subgraph.speedup, 1.0) if is_capped else subgraph.speedup


def geomean(values: Iterable[float]) -> float | None:
    """Return the geometric mean of positive values, or None without values."""
    logs = [log10(value) for value in values]
    return power10(sum(logs) / len(logs)) if logs else None


def power10(exponent: float) -> float:
    """Return 10 to the power of ``exponent``."""
    return float(10.0**exponent)
