"""The report of a failed case: one line for the summary, and the evidence, without a traceback.

Everything that a candidate could have written is capped and goes through :mod:`pytest_passbench.core.escape`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.ladder import BITWISE, NEVER
from pytest_passbench.core.record import RAN, Record

MAX_DETAILED = 6
"""Different failures of a task that are shown in full; of the rest, a line each."""

MAX_OUTPUT_CHARS = 4000
"""Characters shown of one captured output: its end, where a traceback stands."""

MAX_TEXT_CHARS = 1000
"""Characters shown of a message."""


NEARER = "nearer to float64 than eager"
"""Said of an answer that is further from eager's than t allows, and better."""


class TaskFailedError(Exception):
    """The failure of a task: some of its subgraphs are not correct at the run's t. ``records``: all its records."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.failed = [record for record in records if record.judged and not record.correct]
        super().__init__(self.line())

    def line(self) -> str:
        """Return the failure in one line."""
        first = self.failed[0]
        found = f"{first.subgraph}: {reason(first)}"
        more = f" (and {len(self.failed) - 1} more)" if len(self.failed) > 1 else ""
        return one_line(f"{len(self.failed)} of {len(self.records)} subgraphs failed: {found}{more}", 300)

    def text(self) -> str:
        """Return the failure with its evidence."""
        groups = list(_alike(self.failed))
        shown = [describe(alike) for alike in groups[:MAX_DETAILED]]
        others = (record for alike in groups[MAX_DETAILED:] for record in alike)
        rest = [one_line(f"{record.subgraph}: {reason(record)}", 300) for record in others]
        return "\n\n".join([self.line(), *shown, *(["\n".join(rest)] if rest else [])]) + "\n"


def standing(record: Record) -> str:
    """Return how the candidate did on a subgraph: its status and phase, or whether the answer is correct."""
    arm = record.arm
    if arm.status != RAN:
        return arm.status + (f" in {printable(arm.phase)}" if arm.phase else "")
    if record.correct:
        return "correct"
    if record.criterion == "ladder" or record.accurate() is None:
        return _on_ladder(record)
    inaccurate = "no more accurate than a null answer" if record.accurate() else "less accurate than eager"
    return inaccurate if record.criterion == "fp64" else f"{_on_ladder(record)}, and {inaccurate}"


def _on_ladder(record: Record) -> str:
    if record.arm.first_correct > record.tolerance:
        return f"not correct at t = {record.tolerance}"
    return f"no better at t = {record.tolerance} than a null answer, which passes from t = {record.null_from} on"


def reason(record: Record) -> str:
    """Return why a subgraph failed, in a few words: its standing, and the message or the worst element."""
    arm = record.arm
    if arm.status == RAN:
        nearer = NEARER if record.nearer else ""
        return "; ".join(filter(None, [standing(record), nearer, arm.worst]))
    return standing(record) + (f": {arm.message}" if arm.message else "")


def _alike(records: Sequence[Record]) -> Iterable[list[Record]]:
    """Return the records in groups of the same evidence: a pass that misses does so on every subgraph."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(_evidence(record), []).append(record)
    return groups.values()


def describe(alike: Sequence[Record]) -> str:
    """Return the text on subgraphs that failed alike: what happened, where, and what the candidate printed."""
    first, *others = (printable(record.subgraph) for record in alike)
    also = [f"  {'also':<9} {', '.join(others)}"] if others else []
    return "\n".join([f"{first}: {_evidence(alike[0])}", *also])


def _evidence(record: Record) -> str:
    rows = [f"  {printable(label):<9} {_capped(text)}" for label, text in _rows(record) if text]
    return "\n".join([standing(record), *rows, *_output(record.arm.output)])


def _capped(text: str) -> str:
    return printable(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "...", LINES)


def _rows(record: Record) -> Iterator[tuple[str, str]]:
    arm = record.arm
    yield "message", arm.message
    yield "outputs", ", ".join(f"{i}: {_from(at)}" for i, at in enumerate(arm.correct_from))
    yield "worst", arm.worst
    yield "accuracy", (NEARER if arm.status == RAN and record.nearer else "")
    ratios = zip(arm.greatest_ratio64, arm.mean_ratio64, strict=False)
    yield (
        "float64",
        ", ".join(f"{i}: greatest error {a:.3g} of eager's, mean {b:.3g}" for i, (a, b) in enumerate(ratios)),
    )
    if arm.status == "pass_miss":
        for text in misses.lines(record.passes):
            if text not in arm.message:
                yield "miss", text
    for finding in record.findings:
        place = f"{finding.file}:{finding.line}: " if finding.file else ""
        yield finding.severity, f"{place}{finding.message} [{finding.layer}: {finding.rule}]"


def _from(at: int) -> str:
    if at >= NEVER:
        return "correct at no t"
    return "bitwise equal" if at <= BITWISE else f"correct from t = {at}"


def _output(output: str) -> list[str]:
    if not output.strip():
        return []
    cut = ["  | ..."] if len(output) > MAX_OUTPUT_CHARS else []
    lines = printable(output[-MAX_OUTPUT_CHARS:].strip("\n"), LINES).split("\n")
    return ["  captured output", *cut, *(f"  | {line}" for line in lines)]


def longrepr(path: Path, line: str, text: str) -> Any:
    """Return a report of ``text`` whose short summary is ``line``, and which travels through xdist."""
    from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

    entries = [ReprEntryNative([part + "\n" for part in text.rstrip("\n").split("\n")])]
    traceback = ReprTraceback(reprentries=entries, extraline=None, style="native")
    return ReprExceptionInfo(traceback, ReprFileLocation(str(path), 0, line))
