"""The rows of the long tail: their subgraphs, their classes, and the rows in the documentation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.suite.find import discover, select
from pytest_passbench.suite.summary import LONGTAIL_FILE, SpeedupRow, load_longtail, longtail_counts
from pytest_passbench.suite.taskfile import write_task
from shared.longtail_rows import representatives, save_longtail
from support.paths import ROOT

ROWS = [
    SpeedupRow("a", "s", "float32", 10.0, 2.0, 1.5, 2.5, 0.1),
    SpeedupRow("b", "s", "float32", 10.0, 0.5, 0.4, 0.6, 0.1),
    SpeedupRow("c", "s", "float32", 10.0, 1.1, 0.9, 1.2, 0.1),
]


SOURCE = "def forward(in_0):\n    return (torch.relu(in_0),)\n"


def _task(name: str, *dtypes: str) -> Task:
    subgraphs = tuple(
        Subgraph(f"{dtype}-{size}", "g", dtype, (TensorSpec("in_0", (size,), dtype, 0.0, 1.0),))
        for dtype in dtypes
        for size in (100, 300, 200)
    )
    header = TaskHeader(name, ("relu",), ("lib/x",), (), len(subgraphs), "text")
    return Task(header, Path(f"{name}.task.yaml"), {"g": SOURCE}, subgraphs)


def test_a_task_has_one_row_of_median_size_and_the_dtype_changes_from_task_to_task() -> None:
    tasks = [_task(name, "float32", "bfloat16") for name in "cab"]
    chosen = [(task.id, subgraph.id) for task, subgraph in representatives(tasks)]
    assert chosen == [("a", "bfloat16-200"), ("b", "float32-200"), ("c", "bfloat16-200")]


def test_a_row_is_faster_or_slower_only_if_its_interval_excludes_1(tmp_path: Path) -> None:
    assert longtail_counts(ROWS) == {"graphs": 3, "faster": 1, "slower": 1, "open": 1}
    save_longtail(ROWS, tmp_path / "rows.json", edition="5")
    assert load_longtail(tmp_path / "rows.json") == ROWS
    assert load_longtail(tmp_path / "none.json") == []


def test_a_file_of_another_form_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "docs").mkdir()
    file = tmp_path / LONGTAIL_FILE
    file.write_text('{"ratios": []}')
    with pytest.raises(UserError, match="no rows of the long tail"):
        load_longtail(file)
    (tmp_path / "tasks").mkdir()
    write_task(_task("one", "float32"), tmp_path / "tasks" / "one.task.yaml")
    assert main(["tasks", "list", "--json", str(tmp_path / "tasks")]) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.slow
def test_every_row_in_the_documentation_names_a_subgraph_of_the_suite() -> None:
    rows = load_longtail(ROOT / LONGTAIL_FILE)
    tasks = {ref.id: ref for ref in select(discover(ROOT / "tasks"), "full")}
    assert len({row.task for row in rows}) == len(rows), "a task has two rows"
    for row in rows:
        assert row.task in tasks, f"{row.task} is no task of the suite: benchmarks/longtail.py --write"
        found = {subgraph.id: subgraph.dtype for subgraph in tasks[row.task].load().subgraphs}
        assert found.get(row.subgraph) == row.dtype, f"{row} names no subgraph: benchmarks/longtail.py --write"


def test_rows_are_written_with_all_their_fields(tmp_path: Path) -> None:
    save_longtail(ROWS, tmp_path / "rows.json")
    assert all(field.name in (tmp_path / "rows.json").read_text() for field in dataclasses.fields(SpeedupRow))
