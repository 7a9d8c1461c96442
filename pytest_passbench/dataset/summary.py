"""Counts of a data set, the curve of unique graphs against CPU time, and the card that states them."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.dataset import KINDS, SPLITS
from pytest_passbench.dataset.build import cases, failures
from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.report.charts import mark_legend
from pytest_passbench.report.drawing import GRID, PALETTE, SOFT, Drawing, Label, Line, Mark, Shape

FILE = "summary.json"
POINTS = 40
"""About how many points of the curve are kept."""
CURVE_FILE = "curve.svg"
PIXELS, INCHES = 640.0, 6.4
"""The picture's width, in pixels of the drawing and in inches."""
PLOT_PIXELS, TOP = 260.0, 62.0
MOST_TICKS = 6
STYLES = (
    ("unique graphs by their text", PALETTE[0], "circle"),
    ("unique graphs by the strict form", PALETTE[1], "square"),
)
"""What each line counts, its colour, and the mark at its end."""


@dataclass(frozen=True)
class CurvePoint:
    """The counts of architectures, texts and strict forms after so many CPU seconds."""

    seconds: float
    architectures: int
    graphs: int
    forms: int


@dataclass(frozen=True)
class Summary:
    """The counts of a data set.

    ``graphs`` are unique by their text, ``forms`` by the strict hash, ``whole`` are strict forms of whole graphs.
    ``instances`` counts dtypes and sizes. ``operators`` counts the graphs that have each, the most frequent first.
    ``causes`` counts the architectures that failed by the kind of error.
    """

    graphs: int
    forms: int
    whole: int
    instances: int
    architectures: int
    families: int
    operators: dict[str, int]
    splits: dict[str, int]
    kinds: dict[str, int]
    libraries: dict[str, dict[str, int | str]]
    causes: dict[str, int]
    cpu_hours: float
    curve: list[CurvePoint]


def summarise(rows: Sequence[GraphRow], captures: Path) -> Summary:
    """Return the counts of these rows, and of the build in the folder ``captures``."""
    points = curve(captures)
    kinds = Counter(row.kind for row in rows)
    splits = Counter(row.split for row in rows)
    return Summary(
        graphs=len(rows),
        forms=len({row.form for row in rows}),
        whole=len({row.form for row in rows if row.kind == "whole"}),
        instances=sum(1 + len(row.instances) for row in rows),
        architectures=points[-1].architectures if points else 0,
        families=len({family for row in rows for family in row.families}),
        operators=_operators(rows),
        splits={name: splits[name] for name in SPLITS},
        kinds={name: kinds[name] for name in KINDS},
        libraries=_libraries(rows, captures),
        causes=dict(failures(captures).most_common()),
        cpu_hours=round(points[-1].seconds / 3600, 2) if points else 0.0,
        curve=points,
    )


def _operators(rows: Iterable[GraphRow]) -> dict[str, int]:
    counts = Counter(name for row in rows for name in set(row.operators))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _libraries(rows: Iterable[GraphRow], captures: Path) -> dict[str, dict[str, int | str]]:
    """Return for each library its version and licence, its architectures, and the graphs that it gave first."""
    architectures = Counter(path.name.partition("__")[0] for path in captures.glob("*.json"))
    graphs: Counter[str] = Counter()
    about: dict[str, tuple[str, str]] = {}
    for row in rows:
        graphs[row.library] += 1
        about[row.library] = (row.version, row.license)
    return {
        name: {"version": about[name][0], "license": about[name][1], "architectures": architectures[name],
               "graphs": count}
        for name, count in graphs.most_common()
    }  # fmt: skip


def curve(captures: Path) -> list[CurvePoint]:
    """Return the course of a build, in the order in which the architectures were captured."""
    ids, forms, seconds, points = set[str](), set[str](), 0.0, list[CurvePoint]()
    for number, (_, case) in enumerate(cases(captures), 1):
        ids.update(row.id for row in case.rows)
        forms.update(row.form for row in case.rows)
        seconds += case.seconds
        points.append(CurvePoint(round(seconds, 1), number, len(ids), len(forms)))
    step = max(1, len(points) // POINTS)
    return [*points[step - 1 : -1 : step], *points[-1:]]


def save(summary: Summary, out: Path) -> None:
    """Write the counts beside the shards."""
    write_text(out / FILE, json.dumps(asdict(summary), indent=1) + "\n")


def read(out: Path) -> Summary:
    """Return the counts of a data set. Raises UserError if it has none."""
    try:
        data = json.loads((out / FILE).read_text(encoding="utf-8"))
        return Summary(**{**data, "curve": [CurvePoint(**point) for point in data["curve"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError("has no summary", where=out / FILE,
                        remedy="build the data set: passbench dataset build --out=DIR") from error  # fmt: skip


def lines(summary: Summary) -> list[str]:
    """Return the counts as lines for a terminal."""
    head = [
        f"{summary.graphs:,} graphs by their text, {summary.forms:,} by the strict form, "
        f"{summary.whole:,} of these whole",
        f"{summary.instances:,} instances (dtype and size), {len(summary.operators):,} operators",
        f"{summary.architectures:,} architectures of {summary.families:,} families in "
        f"{len(summary.libraries)} libraries, {summary.cpu_hours:g} CPU hours",
    ]
    tables = itertools.chain(
        (f"  {name:<12} {count:>8,}" for name, count in (summary.splits | summary.kinds).items()),
        (f"  {name:<16} {about['architectures']:>6,} architectures {about['graphs']:>8,} graphs  {about['license']}"
         for name, about in summary.libraries.items()),
        (f"  failed: {cause:<50} {count:>6,}" for cause, count in summary.causes.items()),
    )  # fmt: skip
    return [*head, *tables]


CARD = """\
---
license: other
license_name: licences-of-the-captured-libraries
pretty_name: PassBench graphs
tags: [compilers, graph-passes, torch-fx]
size_categories: ["{size}"]
configs:
- config_name: default
  data_files:
{files}
- config_name: architectures
  data_files: architectures.parquet
---

# PassBench graphs

{graphs} computational graphs of models that are built from configurations alone: no weights, no downloads. Made by
`passbench dataset build` of pytest-passbench.

{counts}

![Unique graphs against CPU hours](curve.svg)

The most frequent of {operator_count} operators, by the number of graphs that have each:

{operators}

## Columns

| column | content |
| --- | --- |
| `id` | hash of the canonical text |
| `form` | hash of the normal form without dtypes and shapes: the strict count of unique graphs |
| `kind` | whole, fusible, anchored, typical or single |
| `source` | the graph as a Python function of torch calls |
| `operators` | names of the operators, in order |
| `class` | the class that decides how fast a graph can be: convolution, product, scan, pool, index, reduction, \
elementwise or layout |
| `headroom` | bytes that the operators read and write one by one, over those of the graph's inputs and outputs: \
what fusing could save of memory traffic; it says nothing of the time of convolutions and products |
| `dtype`, `variant`, `inputs` | of the recorded instance; `inputs` is JSON: name, dtype, shape, mean, std, min, max |
| `instances` | JSON: other dtypes and sizes with the same text |
| `sizes` | how each dimension of each input depends on the model's batch `b` and size `n`, as `n/4` or `b`; null if \
it was captured at one size only |
| `marks` | rules that the graph breaks as recorded, such as `null_answers` |
| `architecture`, `library`, `version`, `license`, `family`, `configuration` | where the graph was first seen |
| `families` | the families of all architectures that have it |
| `split` | train, validation (other architecture families), or test (what the suite's tasks have) |

The configuration `architectures` has a row for each architecture that was tried: the ids of all its graphs, its CPU
seconds, how many graphs each rule refused, or why it failed.

## Licences

Each row names its library and that library's licence. The graphs are traces of models that these libraries define.

{licenses}

## How to cite

Cite pytest-passbench with its version, and the libraries that your rows come from.
"""
OPERATORS = ("| operator | graphs | share |", "| --- | --- | --- |")
LISTED_OPERATORS = 20
LICENSES = ("| library | version | licence | architectures | graphs |", "| --- | --- | --- | --- | --- |")


def card(summary: Summary) -> str:
    """Return the data set's card."""
    exponent = len(str(max(summary.graphs, 1))) - 1
    bounds = ("n<1K", "n<1K", "n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M")
    files = [f"  - split: {name}\n    path: data/{name}-*.parquet" for name, count in summary.splits.items() if count]
    licenses = [
        f"| {name} | {about['version']} | {about['license']} | {about['architectures']:,} | {about['graphs']:,} |"
        for name, about in summary.libraries.items()
    ]
    operators = [
        f"| `{name}` | {count:,} | {count / max(summary.graphs, 1):.1%} |"
        for name, count in itertools.islice(summary.operators.items(), LISTED_OPERATORS)
    ]
    return CARD.format(
        size=bounds[min(exponent, len(bounds) - 1)],
        files="\n".join(files),
        graphs=f"{summary.graphs:,}",
        counts="```\n" + "\n".join(lines(summary)) + "\n```",
        operator_count=len(summary.operators),
        operators="\n".join([*OPERATORS, *operators]),
        licenses="\n".join([*LICENSES, *licenses]),
    )


def chart(points: Sequence[CurvePoint]) -> Drawing:
    """Return the chart of the graphs by their text and by the strict form, against CPU hours."""
    hours = max((point.seconds for point in points), default=0.0) / 3600 or 1.0
    most = max((point.graphs for point in points), default=0) or 1
    bottom = TOP + PLOT_PIXELS
    lines: list[Shape] = []
    for (_name, colour, shape), counted in zip(STYLES, ("graphs", "forms"), strict=True):
        places = [(0.0, bottom)]
        places += [
            (point.seconds / 3600 / hours, bottom - PLOT_PIXELS * getattr(point, counted) / most) for point in points
        ]
        lines += [Line(tuple(places), colour, 2.0), Mark(*places[-1], shape, colour, 4.4)]
    shapes = (*mark_legend(STYLES), *_axes(hours, most, bottom), *lines)
    return Drawing(shapes, bottom + 44.0, "plain", "Unique graphs of the data set by CPU hours")


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
