"""The long tail: TorchInductor's speed-up over eager on one subgraph of each task, with its interval.

``benchmarks/longtail.py`` measures it by the judge, and writes ``docs/suite-longtail.json``.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.task import Subgraph, Task

FILE = Path("docs") / "suite-longtail.json"
"""The file's place beside the folder of the tasks."""
FASTER, SLOWER, OPEN = "faster", "slower", "open"


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


def counts(rows: Sequence[SpeedupRow]) -> dict[str, Any]:
    """Return the number of rows, and how many of them are in each class."""
    kinds = [row.kind for row in rows]
    return {"graphs": len(rows), **{kind: kinds.count(kind) for kind in (FASTER, SLOWER, OPEN)}}


def save(rows: Sequence[SpeedupRow], path: Path, **about: Any) -> None:
    """Write the rows as JSON, with their counts and what else is known ``about`` them."""
    columns = [field.name for field in dataclasses.fields(SpeedupRow)]
    lines = ",\n".join(json.dumps(list(dataclasses.astuple(row))) for row in rows)
    head = json.dumps({**about, **counts(rows), "columns": columns})[1:-1]
    path.write_text(f'{{{head}, "rows": [\n{lines}\n]}}\n', encoding="utf-8")


def load(path: Path) -> list[SpeedupRow]:
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
