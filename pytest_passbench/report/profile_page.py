"""The page of a compiler's profile, and its picture: speed-ups over eager's time, with the mean of each group."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from pytest_passbench.core.escape import line
from pytest_passbench.core.run import Run
from pytest_passbench.report import pages, run_text
from pytest_passbench.report.charts import LEGEND_PIXELS, OUTCOMES, LogScale, log_scale, outcome, outcome_legend
from pytest_passbench.report.drawing import GRID, INK, SOFT, Drawing, Inset, Label, Line, Linked, Mark, Shape, in_page
from pytest_passbench.report.profile import CompilerProfile, ProfiledSubgraph, sentences, tables
from pytest_passbench.score.interval import Interval, combined

ENVIRONMENT, SETTINGS = ("cpu", "cores", "torch", "python"), ("pipeline", "threads")
"""What the page says of the run's machine and settings."""

PLOT_PIXELS = 300.0
MARK_PIXELS, MEAN_PIXELS = 3.2, 3.0


def scatter(view: CompilerProfile) -> Drawing:
    """Return the chart of all subgraphs, both axes logarithmic. A step line has the mean of each group by time."""
    across = log_scale(item.eager_ms for item in view.subgraphs)
    upright = log_scale(item.speed.ratio for item in view.subgraphs)
    legend = outcome_legend(Interval.of(item.speed) for item in view.subgraphs)
    mean = (Line(((0, 9), (12, 9)), INK, MEAN_PIXELS), Label(18, 13, "mean of a group by eager's time", INK, "start"))
    legend.append(Inset(0.0, LEGEND_PIXELS * len(legend), mean))
    top = LEGEND_PIXELS * len(legend) + 32.0
    bottom = top + PLOT_PIXELS

    def place(milliseconds: float, ratio: float) -> tuple[float, float]:
        return across.share(milliseconds), bottom - PLOT_PIXELS * upright.share(ratio)

    marks = [_mark(item, *place(item.eager_ms, item.speed.ratio)) for item in view.subgraphs]
    means = [
        Line((place(low, mean), place(high, mean)), INK, MEAN_PIXELS) for low, high, mean in _means(view, across)
    ]
    label = f"Speed-ups of {line(view.compiler, 60)} over eager, by eager's time"
    shapes = (*legend, *_axes(across, upright, top, bottom, view.compiler), *marks, *means)
    return Drawing(shapes, bottom + 44.0, "plain", label)


def _mark(item: ProfiledSubgraph, x: float, y: float) -> Linked:
    interval = Interval.of(item.speed)
    _, colour, mark = OUTCOMES[outcome(interval)]
    title = f"{line(item.task, 200)}\n{line(item.subgraph, 200)}\n{interval} at {item.eager_ms:.3g} ms"
    return Linked((Mark(x, y, mark, colour, MARK_PIXELS),), title)


def _means(view: CompilerProfile, across: LogScale) -> Iterator[tuple[float, float, float]]:
    """Yield the ends of each group by eager's time that has subgraphs, and their mean speed-up."""
    for low, high, members in view.by_time():
        mean = combined([item.speed for item in members])
        if mean is not None:
            yield max(low, across.low), min(high, across.high), mean.ratio


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


def page(view: CompilerProfile, run: Run) -> str:
    """Return the page, complete in itself."""
    conditions = {name: run.environment[name] for name in ENVIRONMENT if name in run.environment}
    conditions |= {name: run.settings[name] for name in SETTINGS if name in run.settings}
    return pages.render(
        "profile.html",
        f"{view.compiler} beside eager",
        extent=run_text.extent(run),
        conditions=run_text.listing(conditions),
        chart=Markup(in_page(scatter(view))),
        tables=list(tables(view)),
        notes=list(sentences(view)),
    )
