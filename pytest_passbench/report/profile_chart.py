"""The picture of a compiler's profile: each subgraph's speed-up over eager's time, and the mean of each group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_passbench.core.escape import line
from pytest_passbench.report.charts import LEGEND_PIXELS, OUTCOMES, LogScale, log_scale, outcome
from pytest_passbench.report.drawing import GRID, INK, SOFT, Drawing, Inset, Label, Line, Linked, Mark, Shape
from pytest_passbench.report.profile import CompilerProfile, ProfiledSubgraph
from pytest_passbench.score.interval import Interval, combined

PLOT_PIXELS = 300.0
MARK_PIXELS, MEAN_PIXELS = 3.2, 3.0


def scatter(view: CompilerProfile) -> Drawing:
    """Return the chart of all subgraphs, both axes logarithmic. A step line has the mean of each group by time."""
    across = log_scale(item.eager_ms for item in view.subgraphs)
    upright = log_scale(item.speed.ratio for item in view.subgraphs)
    kinds = [name for name in OUTCOMES if any(_outcome(item) == name for item in view.subgraphs)]
    top = LEGEND_PIXELS * (len(kinds) + 1) + 32.0
    bottom = top + PLOT_PIXELS

    def place(milliseconds: float, ratio: float) -> tuple[float, float]:
        return across.share(milliseconds), bottom - PLOT_PIXELS * upright.share(ratio)

    marks = [_mark(item, *place(item.eager_ms, item.speed.ratio)) for item in view.subgraphs]
    means = [
        Line((place(low, mean), place(high, mean)), INK, MEAN_PIXELS) for low, high, mean in _means(view, across)
    ]
    label = f"Speed-ups of {line(view.compiler, 60)} over eager, by eager's time"
    shapes = (*_legend(kinds), *_axes(across, upright, top, bottom, view.compiler), *marks, *means)
    return Drawing(shapes, bottom + 44.0, "plain", label)


def _outcome(item: ProfiledSubgraph) -> str:
    return outcome(Interval.of(item.speed))


def _mark(item: ProfiledSubgraph, x: float, y: float) -> Linked:
    _, colour, mark = OUTCOMES[_outcome(item)]
    title = f"{line(item.task, 200)}\n{line(item.subgraph, 200)}\n{Interval.of(item.speed)} at {item.eager_ms:.3g} ms"
    return Linked((Mark(x, y, mark, colour, MARK_PIXELS),), title)


def _means(view: CompilerProfile, across: LogScale) -> Iterator[tuple[float, float, float]]:
    """Yield the ends of each group by eager's time that has subgraphs, and their mean speed-up."""
    for low, high, members in view.by_time():
        mean = combined([item.speed for item in members])
        if mean is not None:
            yield max(low, across.low), min(high, across.high), mean.ratio


def _legend(kinds: Sequence[str]) -> Iterator[Inset]:
    for index, name in enumerate(kinds):
        _, colour, mark = OUTCOMES[name]
        yield Inset(0.0, LEGEND_PIXELS * index, (Mark(6, 9, mark, colour, 4.4), Label(18, 13, name, INK, "start")))
    mean = (Line(((0, 9), (12, 9)), INK, MEAN_PIXELS), Label(18, 13, "mean of a group by eager's time", INK, "start"))
    yield Inset(0.0, LEGEND_PIXELS * len(kinds), mean)


def _axes(across: LogScale, upright: LogScale, top: float, bottom: float, compiler: str) -> Iterator[Shape]:
    for tick in upright.ticks:
        y = bottom - (bottom - top) * upright.share(tick)
        yield Line(((0.0, y), (1.0, y)), SOFT if tick == 1.0 else GRID)
        yield Label(0.0, y + 4.0, f"{tick:g}", SOFT, "end", -8.0)
    for tick in across.ticks:
        x = across.share(tick)
        yield Line(((x, top), (x, bottom + 5.0)), GRID)
        yield Label(x, bottom + 18.0, f"{tick:g}")
    yield Label(0.0, top - 10.0, f"speed-up of {line(compiler, 40)} over eager (log scale)", SOFT, "start", -38.0)
    yield Label(0.5, bottom + 38.0, "eager's time per call in milliseconds (log scale)")
