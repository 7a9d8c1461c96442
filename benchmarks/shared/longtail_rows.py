"""The rows of the long tail: the subgraphs that are measured, and the file of the measurements."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.suite.summary import SpeedupRow, longtail_counts


def representatives(tasks: Sequence[Task]) -> list[tuple[Task, Subgraph]]:
    """Return a subgraph of each task: of median size, in a dtype that changes from one task to the next."""
    rows = []
    for number, task in enumerate(sorted(tasks, key=lambda task: task.id)):
        dtypes = sorted({subgraph.dtype for subgraph in task.subgraphs})
        dtype = dtypes[number % len(dtypes)]
        of_dtype = [subgraph for subgraph in task.subgraphs if subgraph.dtype == dtype]
        rows.append((task, sorted(of_dtype, key=lambda s: (s.elements, s.id))[len(of_dtype) // 2]))
    return rows


def save_longtail(rows: Sequence[SpeedupRow], path: Path, **about: Any) -> None:
    """Write the rows as JSON, with their counts and the fields of ``about``."""
    columns = [field.name for field in dataclasses.fields(SpeedupRow)]
    lines = ",\n".join(json.dumps(list(dataclasses.astuple(row))) for row in rows)
    head = json.dumps({**about, **longtail_counts(rows), "columns": columns})[1:-1]
    path.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")
