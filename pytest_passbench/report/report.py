"""A run's report with its caveats, computed once: terminal, Markdown, page, comment and CI only print it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_passbench.core.ladder import T_FROZEN, T_STRICT
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import LAUNCH_BOUND, RAN
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, ci_annotations, failure_text, head_to_head, run_text, tables
from pytest_passbench.report.charts import Curve
from pytest_passbench.report.ci_annotations import Annotation
from pytest_passbench.report.tables import Table
from pytest_passbench.score import board
from pytest_passbench.score.subgraph import from_record

MAX_SHARDS = 1000
MAX_NAMED = 12  # subgraphs that the harness failed to judge


@dataclass(frozen=True)
class CandidateReport:
    """The tables of a candidate. A table that has nothing to say has no rows.

    ``comparisons`` compare each task with a reference, and with an earlier run. ``subgraph_tables`` are about single
    subgraphs and follow the failures. Both leave out tables without rows.
    ``failures_in_brief`` goes with ``failure_texts``, a text for each cause; ``failures`` has causes in its rows.
    """

    name: str
    tasks: Table
    comparisons: tuple[Table, ...]
    failures: Table
    failures_in_brief: Table
    failure_texts: tuple[str, ...]
    held_out: Table
    misses: Table
    subgraph_tables: tuple[Table, ...]


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
    comparisons = head_to_head.task_table(run, name), changes.table(run, name)
    held_out, misses = tables.held_out_table(run, name), tables.miss_table(run, name)
    by_subgraph = tables.subgraph_table(run, name), head_to_head.subgraph_table(run, name)
    return CandidateReport(
        name=name,
        tasks=tables.task_table(run, name),
        comparisons=tuple(table for table in comparisons if table.rows),
        failures=tables.failure_table(run, name),
        failures_in_brief=tables.failure_table(run, name, causes=False),
        failure_texts=tuple(failure_text.blocks(run.of(name))),
        held_out=held_out,
        misses=misses,
        subgraph_tables=tuple(table for table in (held_out, misses, *by_subgraph) if table.rows),
    )


def caveats(run: Run) -> list[str]:
    """Return what a reader must know before using the numbers, a sentence each; last about the earlier run."""
    sentences = []
    rows = [board.row(name, board.tasks_of(run, name), run.score_settings) for name in run.names]
    missing, total = sum(row.missing for row in rows), sum(row.subgraphs for row in rows)
    if run.interrupted:
        sentences.append("The run was interrupted: this is what there was.")
    if missing:
        b = run.score_settings.b
        sentences.append(f"{missing} of {total} subgraphs were not judged: failures, each b = {b:g} in AS and ES(t).")
    sentences += run_text.left_out_sentences(run)
    sentences += _harness_failures(run)
    unmeasured = Counter(r.arm.speed_note for r in run.records if from_record(r).unmeasured_at(T_FROZEN))
    for note, count in unmeasured.items():
        why = f" ({note})" if note else ""
        sentences.append(
            f"The speed of {counted(count, 'correct subgraph')} was not measured{why}, so AS is not available."
        )
    by_ladder = sum(record.accurate() is None and record.arm.status == RAN for record in run.records)
    if by_ladder and run.has_accuracy:
        sentences.append(
            f"{counted(by_ladder, 'subgraph has', 'subgraphs have')} no float64 form: under (fp64) agreement counts."
        )
    sentences += _untuned(run)
    sentences += _launch_bound(run)
    if "width" in run.noise:
        width = 100.0 * float(run.noise["width"])
        sentences.append(f"Noise: of two identical programs, 95 % measured within {width:.1f} % of each other here.")
    if run.parts:
        sentences.append(f"Merged from {counted(len(run.parts), 'file')}.")
        sentences += [f"Shard {shard} is not among them: none of its tasks counts here." for shard in _absent(run)]
    return [*sentences, *changes.notes(run)]


def _launch_bound(run: Run) -> list[str]:
    bound = sum(record.arm.speed is not None and record.arm.speed.launch_bound for record in run.records)
    if not bound:
        return []
    return [
        f"{counted(bound, 'subgraph is', 'subgraphs are')} launch-bound: a call takes more than {LAUNCH_BOUND:g} "
        "times as long as the device works on it, so the speed-up says how fast programs launch, and little of "
        "kernels."
    ]


def _untuned(run: Run) -> list[str]:
    """Return a sentence on the passes whose kernels could have been tuned and were not."""
    passes = {(r.candidate, r.folder, item.name) for r in run.records for item in r.passes if item.untuned}
    if not passes:
        return []
    subject = counted(len(passes), "pass has", "passes have")
    return [f"Nothing was tuned: {subject} @triton.autotune; the first valid configuration was taken."]


def _harness_failures(run: Run) -> list[str]:
    """Return what could not be judged for a fault that is no candidate's: how many, and a line for each."""
    failed = [record for record in run.records if not record.judged]
    if not failed:
        return []
    first = f"{len(failed)} of {len(run.records)} subgraphs could not be judged, through no fault of a candidate: "
    named = [f"{r.task}/{r.subgraph} of {r.candidate}: {r.arm.message}" for r in failed[:MAX_NAMED]]
    more = [f"... and {len(failed) - MAX_NAMED} more, in results.json"] if len(failed) > MAX_NAMED else []
    return [first + "no score has them, so this result is incomplete.", *named, *more]


def _absent(run: Run) -> list[str]:
    """Return the shards of the merged run for which no file was given, as ``2 of 3``."""
    shards = [part.get("shard") for part in run.parts]
    present = {tuple(shard) for shard in shards if isinstance(shard, list) and list(map(type, shard)) == [int, int]}
    counts = {parts for _, parts in present if parts <= MAX_SHARDS}
    expected = {(index, parts) for parts in counts for index in range(1, parts + 1)}
    return [f"{index} of {parts}" for index, parts in sorted(expected - present)]
