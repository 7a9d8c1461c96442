"""A run's report, computed once: terminal, Markdown, page, comment and CI only print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, ci_annotations, failure_text, head_to_head, tables
from pytest_passbench.report.caveats import caveats
from pytest_passbench.report.charts import Curve
from pytest_passbench.report.ci_annotations import Annotation
from pytest_passbench.report.tables import Table


@dataclass(frozen=True)
class CandidateReport:
    """The tables of a candidate. One that has nothing to say has no rows.

    ``failures_in_brief`` goes with ``failure_texts``, a text for each cause; ``failures`` has causes in its rows.
    """

    name: str
    tasks: Table
    head_to_head: Table
    changes: Table
    failures: Table
    failures_in_brief: Table
    failure_texts: tuple[str, ...]
    held_out: Table
    misses: Table
    subgraphs: Table
    head_to_head_subgraphs: Table

    @property
    def comparisons(self) -> tuple[Table, ...]:
        """The tables of what each task is beside a reference, and beside an earlier run, if they have rows."""
        return tuple(table for table in (self.head_to_head, self.changes) if table.rows)

    @property
    def subgraph_tables(self) -> tuple[Table, ...]:
        """The tables about single subgraphs that follow the failures, if they have rows."""
        every = self.held_out, self.misses, self.subgraphs, self.head_to_head_subgraphs
        return tuple(table for table in every if table.rows)


@dataclass(frozen=True)
class Report:
    """The report of a run. ``caveats`` are what a reader must know before using the numbers, a sentence each.

    ``failures`` are the tasks that failed, and ``behind`` those with a subgraph slower than the reference.
    ``possible`` has no rows if no head-room is known.
    """

    run: Run
    board: Table
    possible: Table
    es: Table
    curves: tuple[Curve, ...]
    candidates: tuple[CandidateReport, ...]
    caveats: tuple[str, ...]
    failures: tuple[Annotation, ...]
    behind: tuple[Annotation, ...]


def report_of(run: Run, at: int = T_STRICT, further: Sequence[str] = ()) -> Report:
    """Return the report of a run. The board counts what is correct at ``at``; ``further`` caveats come first."""
    return Report(
        run=run,
        board=tables.board_table(run, at),
        possible=tables.possible_table(run, at),
        es=tables.es_table(run),
        curves=tuple(tables.curves(run)),
        candidates=tuple(_candidate(run, name) for name in run.names),
        caveats=(*further, *caveats(run)),
        failures=tuple(ci_annotations.failures(run)),
        behind=tuple(ci_annotations.behind(run)),
    )


def _candidate(run: Run, name: str) -> CandidateReport:
    return CandidateReport(
        name=name,
        tasks=tables.task_table(run, name),
        head_to_head=head_to_head.task_table(run, name),
        changes=changes.table(run, name),
        failures=tables.failure_table(run, name),
        failures_in_brief=tables.failure_table(run, name, causes=False),
        failure_texts=tuple(failure_text.blocks(run.of(name))),
        held_out=tables.held_out_table(run, name),
        misses=tables.miss_table(run, name),
        subgraphs=tables.subgraph_table(run, name),
        head_to_head_subgraphs=head_to_head.subgraph_table(run, name),
    )
