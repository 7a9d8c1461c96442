"""Entries of a record: an arm's speed, and the reports on a candidate's passes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from sys import intern
from types import MappingProxyType
from typing import Any

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import PassReport, Speed
from pytest_passbench.timing.measurement import Arms, MeasuredRatio

NONE: Mapping[str, Sequence[str]] = MappingProxyType({})
NO_REASONS: Mapping[str, str] = MappingProxyType({})


def speed_of(measured: Arms, name: str, result: MeasuredRatio) -> Speed:
    """Return a ratio as stored in the record; ``name`` is an arm for its speed-up over eager."""
    estimate, (first, second) = result.estimate, measured.sides(name)
    return Speed(
        ratio=estimate.ratio,
        low=estimate.low,
        high=estimate.high,
        verdict=result.decision.verdict,
        eager_us=measured.per_call(first) * 1e6,
        other_us=measured.per_call(second) * 1e6,
        pairs=measured.log_ratios(name),
    )


def pass_reports(
    items: Iterable[Mapping[str, Any]],
    untuned: Collection[str] = (),
    plans: Mapping[str, Sequence[str]] = NONE,
    uncounted: Mapping[str, str] = NO_REASONS,
) -> list[PassReport]:
    """Return a candidate's reports on its passes, capped and escaped. No verdict depends on them.

    ``untuned`` are the names of the passes whose kernels could have been tuned and were not. ``plans`` has the launch
    plans by the names of their passes, in words. ``uncounted`` has, by the pass's name, the reason why no match of
    a pass counts although it matched.
    A run keeps all reports, and subgraphs of a task have most in common: equal misses are one object, and each text
    of a match is kept once.
    """
    reports = [(item, _report(item, untuned, plans)) for item in list(items)[:200]]
    return [_uncounted(report, uncounted.get(str(item.get("name")))) for item, report in reports]


def _uncounted(report: PassReport, reason: str | None) -> PassReport:
    """Return the report of a pass as one that has missed, if there is a ``reason`` why its matches do not count."""
    return report if reason is None else replace(report, matches=0, operators=_EMPTY, miss=reason, nearness=1.0)


def _report(item: Mapping[str, Any], untuned: Collection[str], plans: Mapping[str, Sequence[str]]) -> PassReport:
    name, matches = printable(str(item.get("name", "")))[:200], int(item.get("matches", 0))
    miss, nearness = printable(str(item.get("miss", "")), LINES)[:1000], float(item.get("nearness", 0.0))
    operators, computed = item.get("operators", []), item.get("computed", [])
    plan = plans.get(str(item.get("name")), ())
    if not (matches or operators or computed or plan or item.get("name") in untuned):
        return _missed(name, miss, nearness)
    return PassReport(
        name=intern(name),
        matches=matches,
        operators=[intern(printable(str(op))[:60]) for op in operators][:500],
        miss=intern(miss),
        computed=[intern(printable(str(op))[:60]) for op in computed][:50],
        nearness=nearness,
        untuned=item.get("name") in untuned,
        plan=[intern(text) for text in plan],
    )


_EMPTY: list[str] = []  # one for all misses, of which a run keeps tens of thousands


@lru_cache(maxsize=1000)
def _missed(name: str, miss: str, nearness: float) -> PassReport:
    return PassReport(name, miss=miss, nearness=nearness, operators=_EMPTY, computed=_EMPTY, plan=_EMPTY)
