"""Charts as Vega-Lite specifications: ES(t), speed-ups with their intervals, and the rounds of a subgraph.

The specifications are plain data, for a page that has Vega. Colours are CSS variables with a fall-back, so that a
page has them light, dark or in print. No chart tells things apart by colour alone: programs and outcomes have shapes,
criteria have dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any

from pytest_passbench.core.escape import middle
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.run import Run
from pytest_passbench.report import tables
from pytest_passbench.score import es
from pytest_passbench.score.interval import Interval

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"  # a name: nothing is fetched from there
EAGER = "eager"
AGREES, ACCURATE = "agrees with eager at t", "as accurate as eager (fp64)"

INK, SOFT, LINE = "var(--ink, #1b1f24)", "var(--soft, #57606a)", "var(--line, #d0d7de)"
COLOURS = (
    "var(--one, #0969da)", "var(--two, #bc4c00)", "var(--three, #1a7f64)", "var(--four, #8250df)",
    "var(--five, #9a6700)", "var(--six, #bf3989)",
)  # fmt: skip
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")

FASTER, SLOWER, LEVEL = "faster than eager", "slower than eager", "neither: the interval has 1"
OUTCOMES = {
    FASTER: ("var(--good, #1a7f37)", "triangle-right"),
    SLOWER: ("var(--bad, #bc4c00)", "triangle-left"),
    LEVEL: ("var(--soft, #57606a)", "circle"),
}
"""The colour and the shape of each outcome of a task."""

MAX_LABELLED = 40  # rows of a forest plot that have their names beside them
MAX_LABEL_CHARACTERS = 26
ROW_PIXELS, NARROW_ROW_PIXELS = 19, 5
ES_PIXELS = 300
ONCE: Spec = {"values": [{}]}  # data of marks that are drawn once
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif'

MAX_TICKS = 10

_STEPS = (
    (1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0),
    tuple(n / 20 for n in range(20, 200)), tuple(n / 100 for n in range(100, 1000)),
)  # fmt: skip
"""Mantissas of the ticks of a logarithmic axis, from few to many."""

CONFIG: Spec = {
    "font": FONT,
    "background": "transparent",
    "view": {"stroke": None},
    "axis": {
        "labelColor": SOFT, "titleColor": SOFT, "gridColor": LINE, "domainColor": LINE, "tickColor": LINE,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8, "gridOpacity": 0.6,
    },
    "legend": {
        "labelColor": INK, "titleColor": SOFT, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "orient": "top", "direction": "vertical", "rowPadding": 3, "symbolStrokeWidth": 2, "labelLimit": 300,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A row of a forest plot: a task, and its speed-up. ``key`` is the place to go to when the row is clicked."""

    name: str
    interval: Interval
    key: str = ""


def es_values(run: Run) -> list[Spec]:
    """Return ES(t) of eager, the candidates and the baselines, under both criteria: a row for each t.

    A row has ``t``, ``es``, ``program`` and ``criterion``. Speeds that were not measured give no row.
    """
    taken = {EAGER, *run.baselines}
    names = [f"{name} (candidate)" if name in taken else name for name in run.names] + run.baselines
    curves = [(name, AGREES, row) for name, row in zip(names, tables.rows(run), strict=True)]
    if run.has_accuracy:
        curves += [(name, ACCURATE, row) for name, row in zip(names, tables.rows(run, "fp64"), strict=True)]
    found = [
        (t, value, name, criterion)
        for name, criterion, row in curves
        for t, value in row.scores.es.items()
        if value is not None
    ]
    eager = [(t, 1.0, EAGER, AGREES) for t in es.ladder(run.score_settings.interpretation)]
    return [
        {"t": t, "es": _short(value), "program": name, "criterion": criterion}
        for t, value, name, criterion in [*eager, *found]
    ]


def es_curves(run: Run) -> Spec:
    """Return the chart of ES(t) of eager, the candidates and the baselines, under both criteria."""
    values = es_values(run)
    steps = list(es.ladder(run.score_settings.interpretation))
    programs = list(dict.fromkeys(value["program"] for value in values))
    criteria = list(dict.fromkeys(value["criterion"] for value in values))
    domain, ticks = log_axis(value["es"] for value in values)
    x = _axis("t", "tolerance t (a smaller t is stricter)", [steps[0] - 0.3, steps[-1] + 0.3], steps, log=False)
    y = _axis("es", "ES(t), eager = 1 (log scale)", domain, ticks)
    x["axis"] |= {"format": "d", "grid": False}
    colour = _by("program", programs, [SOFT, *_around(COLOURS, len(programs))], {"title": None})
    shape = _by("program", programs, ["stroke", *_around(SHAPES, len(programs), shift=1)], {"title": None})
    legend = {"title": None, "symbolType": "stroke", "symbolSize": 400} if len(criteria) > 1 else None
    dash = _by("criterion", criteria, [[1, 0], [5, 4]], legend)
    default = {"x": {**{name: x[name] for name in ("type", "scale", "axis")}, "datum": T_STRICT}}
    hint = {"type": "text", "align": "left", "baseline": "bottom", "dx": 5, "color": SOFT, "fontSize": 11}
    tooltip = _tooltip({"program": "program", "criterion": "correct is what", "t": "t", "es": "ES(t)"})
    return {
        **_base(height=ES_PIXELS, what="ES of t for every program, by both criteria"),
        "data": {"values": values},
        "layer": [
            {"data": ONCE, "mark": {"type": "rule", "color": SOFT, "strokeDash": [2, 3]}, "encoding": default},
            {"data": ONCE, "mark": {**hint, "text": "torch.testing's default"},
             "encoding": {**default, "y": {"value": ES_PIXELS - 4}}},
            {"mark": {"type": "line", "strokeWidth": 2},
             "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash}},
            {"mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}},
        ],
    }  # fmt: skip


def forest(rows: Sequence[Row], overall: Sequence[Row]) -> Spec:
    """Return the chart of speed-ups with their 95 % intervals, the fastest first, and ``overall`` above them.

    Rows have their names beside them if there are at most 40. Intervals without an end are cut at the edge.
    """
    named = len(rows) <= MAX_LABELLED
    ordered = [*overall, *sorted(rows, key=lambda row: -row.interval.ratio)]
    domain, ticks = log_axis(ends(row.interval for row in ordered))
    values = [{**_row(row, at, domain), "all": at < len(overall)} for at, row in enumerate(ordered)]
    kinds = [name for name in OUTCOMES if any(value["outcome"] == name for value in values)]
    colour = _by("outcome", kinds, [OUTCOMES[name][0] for name in kinds], {"title": None})
    shape = _by("outcome", kinds, [OUTCOMES[name][1] for name in kinds], {"title": None})
    label = "slice(datum.label, indexof(datum.label, '|') + 1)" if named else "''"
    y = {"field": "id", "type": "nominal", "sort": {"field": "at"},
         "axis": {"title": None, "domain": False, "ticks": False, "grid": False, "labelLimit": 230, "labelColor": INK,
                  "labelExpr": label}}  # fmt: skip
    x = _axis("ratio", "speed-up (log scale)", domain, ticks)
    x["axis"]["orient"] = "top"
    tooltip = _tooltip({"name": "task", "said": "speed-up [95 % interval]", "outcome": "outcome"})
    both = {"y": y, "x": x, "color": colour, "tooltip": tooltip}
    point = {"type": "point", "filled": True, "opacity": 1}
    one = {"x": {**{name: x[name] for name in ("type", "scale", "axis")}, "datum": 1.0}}
    step = ROW_PIXELS if named else NARROW_ROW_PIXELS
    return {
        **_base(height=step * len(values), what="speed-ups with their 95 % intervals on a logarithmic axis"),
        "data": {"values": values},
        "layer": [
            {"data": ONCE, "mark": {"type": "rule", "color": INK, "strokeWidth": 1}, "encoding": one},
            {"mark": {"type": "rule", "strokeWidth": 2 if named else 1.4},
             "encoding": {**both, "x": {**x, "field": "low"}, "x2": {"field": "high"}}},
            {"transform": [{"filter": "!datum.all"}], "mark": {**point, "size": 70 if named else 22},
             "encoding": {**both, "shape": shape}},
            {"transform": [{"filter": "datum.all"}], "mark": {**point, "size": 130, "shape": "diamond"},
             "encoding": both},
        ],
    }  # fmt: skip


def rounds() -> Spec:
    """Return the chart of a subgraph's rounds. The page fills the data sets ``rounds`` and ``estimate``.

    A round has ``round`` (its number), ``ratio``, ``pair`` and ``odd`` (0 or 1, of its pair). The estimate has
    ``ratio``, ``low`` and ``high``.
    """
    y: Spec = {
        "type": "quantitative",
        "scale": {"type": "log", "nice": False, "padding": 8},
        "axis": {"format": "~g", "tickCount": 5, "title": "speed-up (log scale)"},
    }
    x: Spec = {
        "field": "round",
        "type": "quantitative",
        "scale": {"nice": False, "padding": 8},
        "axis": {"title": "round, in the order of measuring", "format": "d", "grid": False, "tickMinStep": 1},
    }
    ratio = {**y, "field": "ratio"}
    colour, shape = _by("odd", (0, 1), COLOURS, None), _by("odd", (0, 1), ("circle", "triangle-up"), None)
    tooltip = _tooltip({"round": "round", "pair": "pair of processes", "ratio": "speed-up"})
    estimate = {"name": "estimate"}
    return {
        **_base(height=190, what="the speed-up of each round, the estimate, and its interval"),
        "datasets": {"rounds": [], "estimate": []},
        "layer": [
            {"data": estimate, "mark": {"type": "rect", "color": COLOURS[0], "opacity": 0.16},
             "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}}},
            {"data": ONCE, "mark": {"type": "rule", "color": INK}, "encoding": {"y": {**y, "datum": 1.0}}},
            {"data": estimate, "mark": {"type": "rule", "color": COLOURS[0], "strokeWidth": 2, "strokeDash": [6, 3]},
             "encoding": {"y": ratio}},
            {"data": {"name": "rounds"}, "mark": {"type": "point", "size": 26, "strokeWidth": 1.2, "opacity": 0.85},
             "encoding": {"x": x, "y": ratio, "shape": shape, "color": colour, "tooltip": tooltip}},
        ],
    }  # fmt: skip


def log_axis(values: Iterable[float]) -> tuple[list[float], list[float]]:
    """Return the ends and the ticks (3 to 10, if possible) of a logarithmic axis that has all values and 1.

    Values that have no logarithm are left out.
    """
    known = [value for value in values if isfinite(value) and value > 0]
    low, high = min([*known, 1.0]), max([*known, 1.0])
    spare = max((log10(high) - log10(low)) * 0.04, 0.01)
    low, high = 10 ** (log10(low) - spare), 10 ** (log10(high) + spare)
    decades = range(floor(log10(low)) - 1, floor(log10(high)) + 2)
    ticks: list[float] = []
    for mantissas in _STEPS:
        inside = [_short(m * 10.0**n) for n in decades for m in mantissas if low <= m * 10.0**n <= high]
        if len(inside) > MAX_TICKS and len(ticks) >= 3:
            break
        ticks = inside
        if len(inside) >= 4:
            break
    return [_short(low), _short(high)], ticks[:: -(-len(ticks) // MAX_TICKS)] if ticks else [1.0]


def outcome(interval: Interval) -> str:
    """Return on which side of 1 an interval lies: a key of :data:`OUTCOMES`."""
    return FASTER if interval.low > 1.0 else SLOWER if interval.high < 1.0 else LEVEL


def ends(intervals: Iterable[Interval]) -> Iterator[float]:
    """Yield the ends of intervals as far as an axis has to show them: none further than 3 times the ratio."""
    for interval in intervals:
        yield max(interval.low, interval.ratio / 3)
        yield min(interval.high, interval.ratio * 3)


def _row(row: Row, at: int, domain: Sequence[float]) -> Spec:
    found = row.interval
    return {
        "id": f"{row.key or at}|{middle(row.name, MAX_LABEL_CHARACTERS)}",  # unique, and behind the bar the label
        "at": at,
        "name": row.name,
        "ratio": _short(found.ratio),
        "low": _short(max(found.low, domain[0])),
        "high": _short(min(found.high, domain[1])),
        "said": str(found),
        "outcome": outcome(found),
    }


def _axis(field: str, title: str, domain: Sequence[float], ticks: Sequence[float], log: bool = True) -> Spec:
    """Return an encoding by place, with an axis from one end of ``domain`` to the other."""
    scale = {"type": "log" if log else "linear", "domain": list(domain), "nice": False}
    axis = {"values": list(ticks), "format": "~g", "title": title}
    return {"field": field, "type": "quantitative", "scale": scale, "axis": axis}


def _by(field: str, domain: Sequence[Any], values: Sequence[Any], legend: Spec | None) -> Spec:
    """Return an encoding that gives every name of a field a value of its own."""
    scale = {"domain": list(domain), "range": list(values[: len(domain)])}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _tooltip(titles: Mapping[str, str]) -> list[Spec]:
    """Return the fields to show of a mark, by their titles; numbers with three decimals, if they have any."""
    numbers = {"es": ".3f", "ratio": ".3f", "t": "d", "round": "d", "pair": "d"}
    return [
        {
            "field": field,
            "title": title,
            **({"type": "quantitative", "format": numbers[field]} if field in numbers else {}),
        }
        for field, title in titles.items()
    ]


def _around(values: Sequence[str], count: int, shift: int = 0) -> list[str]:
    """Return so many values. Each time that they begin anew they are shifted, so that pairs of lists stay unlike."""
    size = len(values)
    return [values[(index + shift * (index // size)) % size] for index in range(count)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def _base(height: Any, what: str) -> Spec:
    return {
        "$schema": SCHEMA,
        "description": what,
        "width": "container",
        "height": height,
        "autosize": {"contains": "padding"},
        "config": CONFIG,
    }
