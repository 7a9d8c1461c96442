"""The profile of a compiler: the share of subgraphs on which it is slower than eager, by time, dtype and class.

Its page has a picture: speed-ups over eager's time, with the mean of each group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import Any

from markupsafe import Markup

from pytest_passbench.core.escape import line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import GeneratedCode, Record, Speed
from pytest_passbench.core.run import Run
from pytest_passbench.report import pages, run_text
from pytest_passbench.report.charts import LEGEND_PIXELS, OUTCOMES, LogScale, log_scale, outcome, outcome_legend
from pytest_passbench.report.drawing import GRID, INK, SOFT, Drawing, Inset, Label, Line, Linked, Mark, Shape, in_page
from pytest_passbench.report.tables import NONE, Table, offset, tolerance
from pytest_passbench.score.interval import Interval, combined
from pytest_passbench.score.possible import class_of

BOUNDS_MS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
"""The bounds between the groups of eager's time, in milliseconds per call."""
VERDICTS = ("SLOWER", "SAME", "FASTER", "UNRESOLVED")
CODE = ("kernels", "call path")
ENVIRONMENT, SETTINGS = ("cpu", "cores", "torch", "python"), ("pipeline", "threads")
"""The parts of the run's environment and settings that the page shows."""
PLOT_PIXELS = 300.0
MARK_PIXELS, MEAN_PIXELS = 3.2, 3.0


@dataclass(frozen=True)
class ProfiledSubgraph:
    """A subgraph on which a compiler was measured. ``kind`` is its class, ``right``: by the ladder, and by fp64.

    ``generated`` is None in files that say nothing of the compiler's code.
    """

    task: str
    subgraph: str
    dtype: str
    kind: str
    speed: Speed
    right: tuple[bool, bool]
    generated: GeneratedCode | None = None

    @property
    def eager_ms(self) -> float:
        """Eager's time per call in milliseconds."""
        return self.speed.eager_us / 1e3

    @property
    def kernels(self) -> int | None:
        """The launches of generated kernels in a call; None if they were not counted."""
        return None if self.generated is None else self.generated.kernels

    @property
    def call_path(self) -> float | None:
        """The share of a call's time outside of kernels, at most 1; None if the call path was not measured."""
        if self.generated is None or self.generated.call_us is None:
            return None
        return min(1.0, self.generated.call_us / self.speed.other_us)

    def to_json(self) -> dict[str, Any]:
        """Return the subgraph as JSON-ready builtins."""
        speed, (agrees, accurate) = self.speed, self.right
        return {
            "task": self.task,
            "subgraph": self.subgraph,
            "dtype": self.dtype,
            "class": self.kind,
            "eager_us": speed.eager_us,
            "us": speed.other_us,
            "speed_up": [speed.ratio, speed.low, speed.high],
            "verdict": speed.verdict,
            "agrees": agrees,
            "accurate": accurate,
            "kernels": self.kernels,
            "call_path": self.call_path,
        }


@dataclass(frozen=True)
class CompilerProfile:
    """The profile of a compiler, with agreement at ``tolerance``.

    ``failed`` is the number of subgraphs without a speed. All ratios may share the error ``shared`` (log).
    """

    compiler: str
    subgraphs: tuple[ProfiledSubgraph, ...]
    failed: int
    tolerance: int
    shared: float

    @property
    def has_code(self) -> bool:
        """True if a record says what the compiler has generated."""
        return any(item.generated is not None for item in self.subgraphs)

    def groups(self) -> Iterator[tuple[str, list[tuple[str, list[ProfiledSubgraph]]]]]:
        """Yield each way to divide the subgraphs, with its groups that have any."""
        yield "eager's time", [(_range(low, high), members) for low, high, members in self.by_time()]
        yield "dtype", self._by(lambda item: item.dtype)
        yield "class of operators", self._by(lambda item: item.kind)

    def by_time(self) -> Iterator[tuple[float, float, list[ProfiledSubgraph]]]:
        """Yield the bounds of each group of eager's time in milliseconds, and its subgraphs if it has any."""
        for low, high in zip((0.0, *BOUNDS_MS), (*BOUNDS_MS, inf), strict=True):
            members = [item for item in self.subgraphs if low <= item.eager_ms < high]
            if members:
                yield low, high, members

    def _by(self, key: Callable[[ProfiledSubgraph], str]) -> list[tuple[str, list[ProfiledSubgraph]]]:
        return sorted(grouped(self.subgraphs, key).items(), key=lambda group: -len(group[1]))

    def to_json(self) -> dict[str, Any]:
        """Return the profile as JSON-ready builtins: the shares of each group, and every subgraph."""
        groups = {
            division: {name: _shares(members, self.shared) for name, members in parts}
            for division, parts in self.groups()
        }
        return {
            "compiler": self.compiler,
            "all": _shares(self.subgraphs, self.shared),
            "failed": self.failed,
            "groups": groups,
            "subgraphs": [item.to_json() for item in self.subgraphs],
        }


def profile(run: Run, compiler: str) -> CompilerProfile:
    """Return the profile of a run's baseline. Its result on a subgraph counts once, even with several candidates."""
    records = run.beside(compiler)
    measured = [record for record in records if record.result(compiler).speed is not None]
    subgraphs = tuple(_profiled(record, compiler) for record in measured)
    return CompilerProfile(compiler, subgraphs, len(records) - len(measured), tolerance(run), offset(run))


def _profiled(record: Record, compiler: str) -> ProfiledSubgraph:
    result = record.result(compiler)
    assert result.speed is not None
    right = record.is_correct(compiler, "ladder"), record.is_correct(compiler, "fp64")
    kind = class_of(record.operators)
    return ProfiledSubgraph(record.task, record.subgraph, record.dtype, kind, result.speed, right, result.generated)


def _range(low: float, high: float) -> str:
    if not low:
        return f"below {high:g} ms"
    return f"{low:g} ms and more" if high == inf else f"{low:g} to {high:g} ms"


def _shares(members: Sequence[ProfiledSubgraph], shared: float) -> dict[str, Any]:
    mean, count = combined([item.speed for item in members], shared), max(1, len(members))
    verdicts = [item.speed.verdict for item in members]
    return {
        "subgraphs": len(members),
        **{verdict.lower(): verdicts.count(verdict) / count for verdict in VERDICTS},
        "speed_up": None if mean is None else [mean.ratio, mean.low, mean.high],
        "agrees": sum(item.right[0] for item in members) / count,
        "accurate": sum(item.right[1] for item in members) / count,
        "kernels": _median(item.kernels for item in members),
        "call_path": _median(item.call_path for item in members),
    }


def _median(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return median(present) if present else None


def tables(view: CompilerProfile) -> Iterator[Table]:
    """Yield a table of all subgraphs, and one per way to divide them. All shares are in percent."""
    right = (f"t = {view.tolerance}", "fp64")
    headers = ("", "subgraphs", "slower", "tied", "faster", "open", "speed-up", *right, *CODE)
    whole = f"{view.compiler} against eager (shares in %)", [(view.compiler, list(view.subgraphs))]
    for heading, parts in (whole, *((f"By {division}", parts) for division, parts in view.groups())):
        rows = tuple((name, *_cells(_shares(members, view.shared))) for name, members in parts)
        table = Table(heading, headers, rows, brief=("speed-up",))
        yield table if view.has_code else table.without(*CODE)


def sentences(view: CompilerProfile) -> Iterator[str]:
    """Yield the sentences that explain the tables."""
    yield (
        "Slower, tied, faster: the verdict on the speed-up over eager, whether the answer is right or not. Open: its "
        f"interval allows none. t = {view.tolerance}, fp64: the answer is right by that criterion."
    )
    if timed := sum(item.call_path is not None for item in view.subgraphs):
        yield (
            "Kernels: the launches of generated kernels in a call. Call path: the share of the compiled program's "
            "time that passes if they do nothing (guards, wrapper, allocations), in the "
            f"{counted(timed, 'subgraph')} whose wrapper calls no operator of torch's. Both are medians."
        )
    if view.failed:
        yield f"{counted(view.failed, 'subgraph')} gave no speed and are in no row."


def _cells(shares: dict[str, Any]) -> tuple[str, ...]:
    return (
        str(shares["subgraphs"]),
        *(f"{100 * shares[name]:.0f}" for name in ("slower", "same", "faster", "unresolved")),
        NONE if shares["speed_up"] is None else str(Interval(*shares["speed_up"])),
        *(f"{100 * shares[name]:.0f}" for name in ("agrees", "accurate")),
        NONE if shares["kernels"] is None else f"{shares['kernels']:g}",
        NONE if shares["call_path"] is None else f"{100 * shares['call_path']:.0f}",
    )


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
