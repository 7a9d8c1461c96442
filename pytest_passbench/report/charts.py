"""The charts of page, board and files: curves of ES(t), intervals one below the other, and the small ones in tables.

No chart tells things apart by colour alone: programs and outcomes have marks of their own, criteria have dashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from math import floor, isfinite, log10

from pytest_passbench.core.escape import line, middle
from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.report.drawing import (
    BAD,
    GOOD,
    GRID,
    INK,
    PALETTE,
    SOFT,
    Colour,
    Drawing,
    Inset,
    Label,
    Line,
    Linked,
    Mark,
    Shape,
)  # fmt: skip
from pytest_passbench.score.interval import Interval

EAGER = "eager"
MARKS = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross")
FASTER, SLOWER, LEVEL = "faster than eager", "slower than eager", "neither: the interval has 1"
OUTCOMES: dict[str, tuple[str, Colour, str]] = {
    FASTER: ("faster", GOOD, "triangle-right"),
    SLOWER: ("slower", BAD, "triangle-left"),
    LEVEL: ("same", SOFT, "circle"),
}
"""The class in the style sheet, the colour and the mark of each outcome of an interval."""

MAX_LABELLED = 40  # rows of intervals that have their names beside them
MAX_LABEL_CHARACTERS = 26
ROW_PIXELS, NARROW_ROW_PIXELS, LEGEND_PIXELS = 19.0, 5.0, 18.0
ES_PIXELS = 300.0
DASHES = (5.0, 4.0)
MAX_TICKS = 7

_STEPS = (
    (1.0,), (1.0, 3.0), (1.0, 2.0, 5.0), (1.0, 1.5, 2.0, 3.0, 5.0, 7.0),
    (1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0),
    tuple(n / 20 for n in range(20, 200)), tuple(n / 100 for n in range(100, 1000)),
)  # fmt: skip
"""Mantissas of the ticks of a logarithmic axis, from few to many."""


@dataclass(frozen=True)
class Curve:
    """ES(t) of a program by t. Curves of one ``name`` share colour and mark; ``criterion`` says what is correct."""

    name: str
    values: Mapping[int, float]
    criterion: str = ""
    dashed: bool = False


@dataclass(frozen=True)
class IntervalRow:
    """A row of a chart of intervals: a ratio to eager. ``target`` is the id of the element that a click goes to.

    ``whole`` marks a row that stands for all others together.
    """

    name: str
    interval: Interval
    target: str = ""
    whole: bool = False


@dataclass(frozen=True)
class LogScale:
    """A logarithmic scale from ``low`` to ``high``, with the values that are labelled."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Return the place of a value: 0 at the low end or below it, 1 at the high end or above it."""
        inside = min(max(value, self.low), self.high)
        return log10(inside / self.low) / log10(self.high / self.low)


def log_scale(values: Iterable[float]) -> LogScale:
    """Return a scale that has all values and 1, with 3 to 7 ticks if possible.

    Values that have no logarithm are left out.
    """
    positive = [value for value in values if isfinite(value) and value > 0]
    low, high = min([*positive, 1.0]), max([*positive, 1.0])
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
    return LogScale(_short(low), _short(high), tuple(ticks[:: -(-len(ticks) // MAX_TICKS)] if ticks else [1.0]))


def outcome(interval: Interval) -> str:
    """Return on which side of 1 an interval lies: a key of :data:`OUTCOMES`."""
    return FASTER if interval.low > 1.0 else SLOWER if interval.high < 1.0 else LEVEL


def outcome_legend(intervals: Iterable[Interval]) -> list[Shape]:
    """Return the legend of the outcomes that intervals have, one entry below the other."""
    present = set(map(outcome, intervals))
    return mark_legend((name, colour, mark) for name, (_, colour, mark) in OUTCOMES.items() if name in present)


def mark_legend(entries: Iterable[tuple[str, Colour, str]]) -> list[Shape]:
    """Return names with the colour and the mark of each, one entry below the other."""
    return [
        Inset(0.0, LEGEND_PIXELS * index, (Mark(6, 9, mark, colour, 4.4), Label(18, 13, name, INK, "start")))
        for index, (name, colour, mark) in enumerate(entries)
    ]


def es_curves(curves: Sequence[Curve], steps: Sequence[int], height: float = ES_PIXELS) -> Drawing:
    """Return the chart of curves over the t in ``steps``, the legend above them. ``height`` is that of the plot."""
    scale = log_scale(value for curve in curves for value in curve.values.values())
    names = list(dict.fromkeys(curve.name for curve in curves))
    criteria = {curve.criterion: DASHES if curve.dashed else () for curve in curves}
    styles = {name: _style(index) for index, name in enumerate(name for name in names if name != EAGER)}
    styles[EAGER] = (SOFT, "")
    legend = [_entry(name, *styles[name]) for name in names]
    legend += [_entry(name, SOFT, "", dash) for name, dash in criteria.items()] if len(criteria) > 1 else []
    top = LEGEND_PIXELS * len(legend) + 32.0
    low, high = steps[0] - 0.3, steps[-1] + 0.3

    def place(t: float, value: float) -> tuple[float, float]:
        return (t - low) / (high - low), top + height * (1.0 - scale.share(value))

    frame = _curve_axes(scale, top, top + height, {t: place(t, 1.0)[0] for t in steps})
    lines = [
        Line(tuple(starmap(place, curve.values.items())), styles[curve.name][0], 2.0, DASHES if curve.dashed else ())
        for curve in curves
    ]
    marks = [
        Linked((Mark(*place(t, value), mark, colour, 3.8),), _point_title(curve, t, value))
        for curve in curves
        for colour, mark in [styles[curve.name]]
        for t, value in curve.values.items()
        if mark
    ]
    entries = [Inset(0.0, LEGEND_PIXELS * index, shapes) for index, shapes in enumerate(legend)]
    label = "Curves of ES(t): " + ", ".join(line(name, 60) for name in names)
    return Drawing((*entries, *frame, *lines, *marks), top + height + 44.0, "plain", label)


def _style(index: int) -> tuple[Colour, str]:
    """Return colour and mark of a program. Each time that the marks begin anew they are shifted by one."""
    return PALETTE[index % len(PALETTE)], MARKS[(index + index // len(MARKS)) % len(MARKS)]


def _entry(name: str, colour: Colour, mark: str, dash: tuple[float, ...] = ()) -> tuple[Shape, ...]:
    signs = (Line(((0, 9), (22, 9)), colour, 2.0, dash), *((Mark(11, 9, mark, colour, 3.8),) if mark else ()))
    return (*signs, Label(30, 13, line(name, 60), INK, "start"))


def _curve_axes(scale: LogScale, top: float, bottom: float, steps: Mapping[int, float]) -> Iterator[Shape]:
    for tick in scale.ticks:
        y = bottom - (bottom - top) * scale.share(tick)
        yield Line(((0.0, y), (1.0, y)), GRID, 1.0)
        yield Label(0.0, y + 4.0, f"{tick:g}", SOFT, "end", -8.0)
    for t, x in steps.items():
        yield Inset(x, bottom, (Line(((0, 0), (0, 5)), GRID), Label(0, 18, str(t))))
    yield Line(((0.0, bottom), (1.0, bottom)), GRID)
    yield Label(0.0, top - 10.0, "ES(t), eager = 1 (log scale)", SOFT, "start", -38.0)
    yield Label(0.5, bottom + 38.0, "tolerance t (a smaller t is stricter)")
    if T_STRICT in steps:
        yield Line(((steps[T_STRICT], top), (steps[T_STRICT], bottom)), SOFT, 1.0, (2.0, 3.0))
        yield Label(steps[T_STRICT], bottom - 5.0, "torch.testing's default", SOFT, "start", 5.0, 11.0)


def _point_title(curve: Curve, t: int, value: float) -> str:
    correct = f"\ncorrect is what {curve.criterion}" if curve.criterion else ""
    return f"{line(curve.name, 200)}{correct}\nt = {t}: ES(t) = {value:.3f}"


def forest(rows: Sequence[IntervalRow], title: str) -> Drawing:
    """Return the chart of ratios with their 95 % intervals, the greatest first below the rows of ``whole``.

    ``title`` is that of the axis. Rows have their names beside them if there are at most 40. Intervals without an
    end are cut at the edge.
    """
    ordered = sorted(rows, key=lambda row: (not row.whole, 0.0 if row.whole else -row.interval.ratio))
    named = len(ordered) <= MAX_LABELLED
    step = ROW_PIXELS if named else NARROW_ROW_PIXELS
    intervals = [row.interval for row in ordered]
    # The scale shows no end that differs from the ratio by more than a factor of 3.
    lows, highs = [max(i.low, i.ratio / 3) for i in intervals], [min(i.high, i.ratio * 3) for i in intervals]
    scale, legend = log_scale([*lows, *highs]), outcome_legend(intervals)
    top = LEGEND_PIXELS * len(legend) + 48.0
    bottom = top + step * len(ordered)
    body = [_row(row, top + step * (index + 0.5), scale, named) for index, row in enumerate(ordered)]
    label = f"Intervals of {line(', '.join(row.name for row in ordered[:4]), 120)}, on a logarithmic axis"
    shapes = (*legend, *_ratio_axis(scale, top, bottom, title), *body)
    return Drawing(shapes, bottom + 6.0, "named" if named else "plain", label)


def _ratio_axis(scale: LogScale, top: float, bottom: float, title: str) -> Iterator[Shape]:
    yield Label(0.5, top - 28.0, f"{title} (log scale)")
    for tick in scale.ticks:
        x = scale.share(tick)
        yield Line(((x, top - 4.0), (x, bottom)), GRID)
        yield Label(x, top - 9.0, f"{tick:g}")
    eager_share = scale.share(1.0)
    yield Line(((eager_share, top - 4.0), (eager_share, bottom)), INK)


def _row(row: IntervalRow, y: float, scale: LogScale, named: bool) -> Linked:
    _, colour, mark = OUTCOMES[outcome(row.interval)]
    shape, radius = ("diamond", 5.2) if row.whole else (mark, 4.4 if named else 2.4)
    ends = (scale.share(row.interval.low), y), (scale.share(row.interval.high), y)
    shapes: list[Shape] = [Line(ends, colour, 2.0 if named else 1.4)]
    shapes.append(Mark(scale.share(row.interval.ratio), y, shape, colour, radius))
    if named:
        shapes.append(Label(0.0, y + 4.0, middle(row.name, MAX_LABEL_CHARACTERS), INK, "end", -10.0))
    title = f"{line(row.name, 200)}\n{row.interval} (95 % interval)\n{outcome(row.interval)}"
    return Linked(tuple(shapes), title, row.target)


def _short(value: float) -> float:
    return float(f"{value:.4g}")
