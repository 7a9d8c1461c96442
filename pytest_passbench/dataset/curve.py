"""The picture of a build's course: the unique graphs that a data set had after so much CPU time."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from pytest_passbench.dataset.summary import CurvePoint
from pytest_passbench.report.drawing import GRID, INK, PALETTE, SOFT, Drawing, Inset, Label, Line, Mark, Shape

FILE = "curve.svg"
PIXELS, INCHES = 640.0, 6.4
"""The picture's width, in pixels of the drawing and in inches."""
PLOT_PIXELS, LEGEND_PIXELS, TOP = 260.0, 18.0, 62.0
MOST_TICKS = 6
STYLES = (("by their text", PALETTE[0], "circle"), ("by the strict form", PALETTE[1], "square"))
"""What each line counts, its colour, and the mark at its end."""


def chart(points: Sequence[CurvePoint]) -> Drawing:
    """Return the chart of the graphs by their text and by the strict form, against CPU hours."""
    hours = max((point.seconds for point in points), default=0.0) / 3600 or 1.0
    most = max((point.graphs for point in points), default=0) or 1
    bottom = TOP + PLOT_PIXELS
    lines: list[Shape] = []
    for (_name, colour, shape), counts in zip(STYLES, ([p.graphs for p in points], [p.forms for p in points]),
                                              strict=True):  # fmt: skip
        places = [(0.0, bottom)]
        places += [
            (point.seconds / 3600 / hours, bottom - PLOT_PIXELS * count / most)
            for point, count in zip(points, counts, strict=True)
        ]
        lines += [Line(tuple(places), colour, 2.0), Mark(*places[-1], shape, colour, 4.4)]
    shapes = (*_legend(), *_axes(hours, most, bottom), *lines)
    return Drawing(shapes, bottom + 44.0, "plain", "Unique graphs of the data set by CPU hours")


def _legend() -> Iterator[Inset]:
    for index, (name, colour, shape) in enumerate(STYLES):
        entry = (Mark(6, 9, shape, colour, 4.4), Label(18, 13, f"unique graphs {name}", INK, "start"))
        yield Inset(0.0, LEGEND_PIXELS * index, entry)


def _axes(hours: float, most: float, bottom: float) -> Iterator[Shape]:
    for tick in ticks(most):
        y = bottom - PLOT_PIXELS * tick / most
        yield Line(((0.0, y), (1.0, y)), GRID)
        yield Label(0.0, y + 4.0, f"{tick:,g}", SOFT, "end", -6.0)
    for tick in ticks(hours):
        x = tick / hours
        yield Line(((x, bottom), (x, bottom + 5.0)), GRID)
        yield Label(x, bottom + 18.0, f"{tick:g}")
    yield Label(0.5, bottom + 38.0, "CPU hours")


def ticks(most: float) -> list[float]:
    """Return at most :data:`MOST_TICKS` + 1 round numbers from 0 to ``most``, which is positive."""
    decade = 10.0 ** math.floor(math.log10(most / MOST_TICKS))
    step = next(decade * factor for factor in (1, 2, 5, 10) if most / (decade * factor) <= MOST_TICKS)
    return [float(f"{step * n:.12g}") for n in itertools.takewhile(lambda n: step * n <= most, itertools.count())]
