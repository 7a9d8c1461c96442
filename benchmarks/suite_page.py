"""The tables and pictures of docs/suite.md: what the suite's tasks come from, and how they are spread.

    python benchmarks/suite_page.py            print the tables and the counts, and write docs/img/suite-*.png

The versions of the libraries are those that are installed here.
"""

from __future__ import annotations

import importlib.metadata
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pictures import histogram

from pytest_passbench.core.task import Task
from pytest_passbench.forge.sources import SOURCES
from pytest_passbench.suite import summary
from pytest_passbench.suite.find import discover, installed_tasks, select

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Print the tables and the counts, and write the pictures."""
    tasks = [ref.load() for ref in select(discover(installed_tasks()), "full")]
    rows = summary.load_longtail(ROOT / summary.LONGTAIL_FILE)
    pictures(tasks, rows)
    print(sources_table(tasks), modalities_table(tasks), sep="\n\n")
    figures = {**counts(tasks), **summary.counts(tasks), "long tail": summary.longtail_counts(rows)}
    for name, value in figures.items():
        print(f"{name}: {value}")


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
    """Return a Markdown table: library, version, licence, and numbers of architectures, tasks and subgraphs."""
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


def pictures(tasks: Sequence[Task], rows: Sequence[summary.SpeedupRow]) -> None:
    """Write histograms of the suite, and of TorchInductor's speed-ups if there are any."""
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
            histogram(values, log, label, ROOT / "docs" / "img" / f"suite-{name}.png")


if __name__ == "__main__":
    main()
