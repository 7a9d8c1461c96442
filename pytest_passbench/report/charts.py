"""Charts as Vega-Lite specifications: ES(t), speed-ups with their intervals, and the rounds of a subgraph.

The specifications are plain data, for a page that has Vega. Colours are CSS variables with a fall-back, so that a
page has them light, dark or in print. No chart tells things apart by colour alone: programs and outcomes have shapes,
criteria have dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any

from pytest_passbench.core.escape import middle
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.run import Run
from pytest_passbench.report import tables
from pytest_passbench.report.tables import Interval
from pytest_passbench.score import es

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


def es_curves(run: Run) -> Spec:
    """Return the chart of ES(t) of eager, the candidates and the baselines, under both criteria."""
    steps = list(es.ladder(run.score_settings.interpretation))
    values: list[Spec] = [{"t": t, "es": 1.0, "program": EAGER, "criterion": AGREES} for t in steps]
    curves = [(AGREES, row) for row in tables.rows(run)]
    if run.has_accuracy:
        curves += [(ACCURATE, row) for row in tables.rows(run, "fp64")]
    taken = {EAGER, *run.baselines}
    for index, (criterion, row) in enumerate(curves):
        mine = index % (len(run.names) + len(run.baselines)) < len(run.names)
        name = f"{row.name} (candidate)" if mine and row.name in taken else row.name
        values += [
            {"t": t, "es": _short(value), "program": name, "criterion": criterion}
            for t, value in row.scores.es.items()
            if value is not None
        ]
    domain, ticks = log_axis(value["es"] for value in values)
    x: Spec = {
        "field": "t",
        "type": "quantitative",
        "scale": {"domain": [steps[0] - 0.3, steps[-1] + 0.3], "nice": False},
        "axis": {"values": steps, "format": "d", "grid": False, "title": "tolerance t (a smaller t is stricter)"},
    }
    y: Spec = {
        "field": "es",
        "type": "quantitative",
        "scale": {"type": "log", "domain": domain, "nice": False},
        "axis": {"values": ticks, "format": "~g", "title": "ES(t), eager = 1 (log scale)"},
    }
    programs = list(dict.fromkeys(value["program"] for value in values))
    colour = _by("program", programs, [SOFT, *_around(COLOURS, len(programs) - 1)], {"title": None})
    shape = _by("program", programs, ["stroke", *_around(SHAPES, len(programs) - 1)], {"title": None})
    criteria = list(dict.fromkeys(value["criterion"] for value in values))
    legend = {"title": None, "symbolType": "stroke", "symbolSize": 400} if len(criteria) > 1 else None
    dash = _by("criterion", criteria, [[1, 0], [5, 4]], legend)
    tooltip = [
        {"field": "program", "title": "program"},
        {"field": "criterion", "title": "correct is what"},
        {"field": "t", "type": "quantitative", "title": "t"},
        {"field": "es", "type": "quantitative", "title": "ES(t)", "format": ".3f"},
    ]
    default: Spec = {"x": {**x, "field": None, "datum": T_STRICT}}
    del default["x"]["field"]
    once: Spec = {"values": [{}]}
    hint = {"type": "text", "align": "left", "baseline": "bottom", "dx": 5, "color": SOFT, "fontSize": 11}
    return {
        **_base(height=ES_PIXELS, what="ES of t for every program, by both criteria"),
        "data": {"values": values},
        "layer": [
            {"data": once, "mark": {"type": "rule", "color": SOFT, "strokeDash": [2, 3]}, "encoding": default},
            {"data": once, "mark": {**hint, "text": "torch.testing's default"},
             "encoding": {**default, "y": {"value": ES_PIXELS - 4}}},
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"x": x, "y": y, "color": colour,
                                                                      "strokeDash": dash}},
            {"mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
             "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}},
        ],
    }  # fmt: skip


def forest(rows: Sequence[Row], overall: Sequence[Row], labelled: bool | None = None) -> Spec:
    """Return the chart of speed-ups with their 95 % intervals, the fastest first, and ``overall`` above them.

    Rows have their names beside them if ``labelled``: by default, up to 40 of them. Intervals without an end are cut
    at the edge.
    """
    named = len(rows) <= MAX_LABELLED if labelled is None else labelled
    ordered = sorted(rows, key=lambda row: -row.interval.ratio)
    domain, ticks = log_axis(ends(row.interval for row in [*rows, *overall]))
    values = [
        {**_row(row, domain), "of": kind, "at": at}
        for at, (kind, row) in enumerate([*(("all", one) for one in overall), *(("task", one) for one in ordered)])
    ]
    step = ROW_PIXELS if named else NARROW_ROW_PIXELS
    axis: Spec = {"title": None, "domain": False, "ticks": False, "grid": False, "labelLimit": 230, "labelColor": INK,
                  "labelExpr": "slice(datum.label, indexof(datum.label, '|') + 1)"}  # fmt: skip
    if not named:
        axis["labelExpr"] = "''"
    y: Spec = {"field": "id", "type": "nominal", "sort": {"field": "at"}, "axis": axis}
    x: Spec = {
        "type": "quantitative",
        "scale": {"type": "log", "domain": domain, "nice": False},
        "axis": {"values": ticks, "format": "~g", "orient": "top",
                 "title": "speed-up over eager (log scale)"},
    }  # fmt: skip
    kinds = [name for name in OUTCOMES if any(value["outcome"] == name for value in values)]
    legend: Spec = {"title": None}
    colour = _by("outcome", kinds, [OUTCOMES[name][0] for name in kinds], legend)
    shape = _by("outcome", kinds, [OUTCOMES[name][1] for name in kinds], legend)
    tooltip = [{"field": "name", "title": "task"}, {"field": "said", "title": "speed-up [95 % interval]"},
               {"field": "outcome", "title": "outcome"}]  # fmt: skip
    return {
        **_base(height=step * len(values), what="speed-ups with their 95 % intervals on a logarithmic axis"),
        "data": {"values": values},
        "layer": [
            {"data": {"values": [{}]}, "mark": {"type": "rule", "color": INK, "strokeWidth": 1},
             "encoding": {"x": {**x, "datum": 1.0}}},
            {
                "mark": {"type": "rule", "strokeWidth": 2 if named else 1.4},
                "encoding": {"y": y, "x": {**x, "field": "low"}, "x2": {"field": "high"}, "color": colour,
                             "tooltip": tooltip},
            },
            {
                "transform": [{"filter": "datum.of == 'task'"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 70 if named else 22},
                "encoding": {"y": y, "x": {**x, "field": "ratio"}, "color": colour, "shape": shape,
                             "tooltip": tooltip},
            },
            {
                "transform": [{"filter": "datum.of == 'all'"}],
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 130, "shape": "diamond"},
                "encoding": {"y": y, "x": {**x, "field": "ratio"}, "color": colour, "tooltip": tooltip},
            },
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
    pair: Spec = {"field": "odd", "type": "nominal", "legend": None}
    return {
        **_base(height=190, what="the speed-up of each round, the estimate, and its interval"),
        "datasets": {"rounds": [], "estimate": []},
        "layer": [
            {
                "data": {"name": "estimate"},
                "mark": {"type": "rect", "color": COLOURS[0], "opacity": 0.16},
                "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "color": INK},
                "encoding": {"y": {**y, "datum": 1.0}},
            },
            {
                "data": {"name": "estimate"},
                "mark": {"type": "rule", "color": COLOURS[0], "strokeWidth": 2, "strokeDash": [6, 3]},
                "encoding": {"y": {**y, "field": "ratio"}},
            },
            {
                "data": {"name": "rounds"},
                "mark": {"type": "point", "size": 26, "strokeWidth": 1.2, "opacity": 0.85},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "ratio"},
                    "shape": {**pair, "scale": {"domain": [0, 1], "range": ["circle", "triangle-up"]}},
                    "color": {**pair, "scale": {"domain": [0, 1], "range": [COLOURS[0], COLOURS[1]]}},
                    "tooltip": [
                        {"field": "round", "type": "quantitative", "title": "round"},
                        {"field": "pair", "type": "quantitative", "title": "pair of processes"},
                        {"field": "ratio", "type": "quantitative", "title": "speed-up", "format": ".3f"},
                    ],
                },
            },
        ],
    }


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


def _row(row: Row, domain: Sequence[float]) -> Spec:
    found = row.interval
    return {
        "id": f"{row.key}|{middle(row.name, MAX_LABEL_CHARACTERS)}",
        "name": row.name,
        "key": row.key,
        "ratio": _short(found.ratio),
        "low": _short(max(found.low, domain[0])),
        "high": _short(min(found.high, domain[1])),
        "said": str(found),
        "outcome": outcome(found),
    }


def _by(field: str, domain: Sequence[str], values: Sequence[Any], legend: Spec | None) -> Spec:
    """Return an encoding that gives every name of a field a value of its own."""
    scale = {"domain": list(domain), "range": list(values[: len(domain)])}
    return {"field": field, "type": "nominal", "scale": scale, "legend": legend}


def _around(values: Sequence[str], count: int) -> list[str]:
    """Return so many values, from the first one again if there are fewer."""
    return [values[index % len(values)] for index in range(count)]


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
