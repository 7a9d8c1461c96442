"""The tables of a candidate that follow the one of its tasks: every report for people has them, if it is full."""

from __future__ import annotations

from pytest_passbench.report import changes, head_to_head, tables

COMPARISONS = (head_to_head.task_table, changes.table)
"""What each task of a candidate is beside a reference, and beside an earlier run."""

DETAILS = (
    *COMPARISONS, tables.failure_table, tables.miss_table, tables.subgraph_table, head_to_head.subgraph_table,
)  # fmt: skip
"""All of them: functions of a run and a candidate's name. A table without rows is left out."""
