"""A description of a suite: counts for the documentation's tables, histograms as pictures, and the long tail.

The long tail is TorchInductor's speed-up over eager on one subgraph of each task, with its interval.
``benchmarks/longtail.py`` measures it by the judge, and writes ``docs/suite-longtail.json``.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.task import Subgraph, Task

LONGTAIL_FILE = Path("docs") / "suite-longtail.json"
"""The file's place beside the folder of the tasks."""
FASTER, SLOWER, OPEN = "faster", "slower", "open"

INK, BAR = "#333333", "#4878a8"


def counts(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return the suite's numbers. ``tasks`` are those without the training split."""
    subgraphs = [len(t.subgraphs) for t in tasks]
    ops = [len(t.header.ops) for t in tasks]
    three = sum({s.dtype for s in t.subgraphs} >= {"float32", "bfloat16", "float16"} for t in tasks)
    return {
        "tasks": len(tasks),
        "subgraphs": sum(subgraphs),
        "architectures": len({source for t in tasks for source in t.header.sources}),
        "libraries": len({source.partition("/")[0] for t in tasks for source in t.header.sources}),
        "modalities": len({t.header.modality for t in tasks}),
        "tasks in all three dtypes": three,
        "operators": len({op for t in tasks for op in t.header.ops}),
        "operators per task": _spread(ops),
        "subgraphs per task": _spread(subgraphs),
    }


def _spread(values: Sequence[int]) -> str:
    middle = statistics.median(values)
    return f"median {middle:g}, mean {statistics.mean(values):.1f}, {min(values)} to {max(values)}"


def sources_table(tasks: Sequence[Task]) -> str:
    """Return a Markdown table: library, version, licence, architectures, and the tasks and subgraphs that come
    from it.
    """
    from pytest_passbench.forge.sources import SOURCES

    lines = ["| library | version | licence | architectures | tasks | subgraphs |", "|---|---|---|---|---|---|"]
    for source in SOURCES:
        prefix = f"{source.name}/"
        names = {name for t in tasks for name in t.header.sources if name.startswith(prefix)}
        touched = sum(any(name.startswith(prefix) for name in t.header.sources) for t in tasks)
        graphs = sum(s.source.startswith(prefix) for t in tasks for s in t.subgraphs)
        row = (source.name, _version(source.name), source.license, len(names), touched, graphs)
        lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def modalities_table(tasks: Sequence[Task]) -> str:
    """Return a Markdown table of tasks and subgraphs per modality."""
    lines = ["| modality | tasks | subgraphs |", "|---|---|---|"]
    counts = Counter(t.header.modality for t in tasks)
    for name, count in counts.most_common():
        graphs = sum(len(t.subgraphs) for t in tasks if t.header.modality == name)
        lines.append(f"| {name} | {count} | {graphs} |")
    return "\n".join(lines)


def pictures(tasks: Sequence[Task], rows: Sequence[SpeedupRow], folder: Path) -> list[Path]:
    """Write histograms of the suite, and of TorchInductor's speed-ups if there are any, and return their paths.

    Raises UserError if matplotlib is not installed.
    """
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise UserError("matplotlib is not installed", remedy="pip install matplotlib") from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    subgraphs = [s for t in tasks for s in t.subgraphs]
    times = [float(s.meta["eager_us"]) for s in subgraphs if "eager_us" in s.meta]
    for name, values, log, label in (
        ("ops", [len(t.header.ops) for t in tasks], False, "operators per task"),
        ("subgraphs", [len(t.subgraphs) for t in tasks], False, "subgraphs per task"),
        ("elements", [s.elements for s in subgraphs], True, "input elements per subgraph"),
        ("eager", times, True, "eager time per call (microseconds, one thread)"),
        ("longtail", [row.speedup for row in rows], True, "TorchInductor's speed-up over eager (1 = as fast)"),
    ):
        if values:
            paths.append(_histogram(pyplot, values, log, label, folder / f"suite-{name}.png"))
    return paths


def _histogram(pyplot: Any, values: Sequence[float], log: bool, label: str, path: Path) -> Path:
    figure, axes = pyplot.subplots(figsize=(5.2, 2.4), dpi=110)
    axes.hist(values, bins=_bins(values, log), color=BAR, edgecolor="white", linewidth=0.5)
    if log:
        axes.set_xscale("log")
    if "speed-up" in label:
        axes.axvline(1.0, color=INK, linewidth=1, linestyle="--")
    axes.set_xlabel(label, color=INK)
    axes.set_ylabel("count", color=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
    return path


def _bins(values: Sequence[float], log: bool) -> list[float]:
    low, high = min(values), max(values)
    if not log:
        step = max(1, round((high - low) / 32))
        return [low - 0.5 + step * i for i in range(int((high - low) / step) + 2)]
    ratio = (high / low) ** (1 / 30) if high > low else 2.0
    return [low * ratio**i for i in range(31)]


@dataclass(frozen=True)
class SpeedupRow:
    """A subgraph's speed-up by TorchInductor's defaults, and the interval that the judge gives it.

    ``load``: the machine's load average when it was measured.
    """

    task: str
    subgraph: str
    dtype: str
    eager_us: float
    speedup: float
    low: float
    high: float
    load: float

    @property
    def kind(self) -> str:
        """The class of the row: faster or slower than eager, or open if the interval has 1 in it."""
        return FASTER if self.low > 1 else SLOWER if self.high < 1 else OPEN


def representatives(tasks: Sequence[Task]) -> list[tuple[Task, Subgraph]]:
    """Return a subgraph of each task: of median size, in a dtype that changes from one task to the next."""
    rows = []
    for number, task in enumerate(sorted(tasks, key=lambda task: task.id)):
        dtypes = sorted({subgraph.dtype for subgraph in task.subgraphs})
        dtype = dtypes[number % len(dtypes)]
        of_dtype = [subgraph for subgraph in task.subgraphs if subgraph.dtype == dtype]
        rows.append((task, sorted(of_dtype, key=lambda s: (s.elements, s.id))[len(of_dtype) // 2]))
    return rows


def longtail_counts(rows: Sequence[SpeedupRow]) -> dict[str, Any]:
    """Return the number of rows, and how many of them are in each class."""
    kinds = [row.kind for row in rows]
    return {"graphs": len(rows), **{kind: kinds.count(kind) for kind in (FASTER, SLOWER, OPEN)}}


def save_longtail(rows: Sequence[SpeedupRow], path: Path, **about: Any) -> None:
    """Write the rows as JSON, with their counts and what else is known ``about`` them."""
    columns = [field.name for field in dataclasses.fields(SpeedupRow)]
    lines = ",\n".join(json.dumps(list(dataclasses.astuple(row))) for row in rows)
    head = json.dumps({**about, **longtail_counts(rows), "columns": columns})[1:-1]
    path.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


def load_longtail(path: Path) -> list[SpeedupRow]:
    """Return the rows of a file that :func:`save` wrote; none if there is no file.

    Raises UserError for a file of another form.
    """
    if kind_of(path) != "file":
        return []
    try:
        return [SpeedupRow(*row) for row in json.loads(path.read_text(encoding="utf-8"))["rows"]]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"no rows of the long tail: {error}", where=path,
                        remedy="benchmarks/longtail.py --write makes it anew") from error  # fmt: skip
