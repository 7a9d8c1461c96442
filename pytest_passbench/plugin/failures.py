"""The report of a failed case: one line for the summary, and the evidence by cause, without a traceback.

Everything that a candidate could have written is capped and goes through :mod:`pytest_passbench.core.escape`.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.ladder import BITWISE, NEVER
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.report.changes import slowdown

MAX_DETAILED = 6
"""Different failures of a task that are shown in full; of the rest, a line each."""

MAX_OUTPUT_CHARS = 4000
"""Characters shown of one captured output: its end, where a traceback stands."""

MAX_TEXT_CHARS = 1000
"""Characters shown of a message."""

MAX_CAUSE_CHARS = 160
"""Characters shown of the cause in a failure's line: the count behind it is never cut off."""

COLUMNS = 80
"""The width at which sentences wrap. Compilers' messages keep their lines, since carets point into them."""

INDENT = " " * 12
"""The indent of what stands beside a label."""

HALVES = {"float16", "bfloat16"}

IN_HALF = "Half precision: see docs/kernels.md#agreeing-with-eager-in-half-precision"
"""Said if answers differ from eager's in 16 bits alone."""

#: The parts of a message in which subgraphs differ that fail for one cause: shapes and dtypes.
_OF_SUBGRAPH = re.compile(r"\[[\d, ]*\]|\b(?:bfloat16|float\d+|complex\d+|u?int\d+|bool)\b")

NEARER = "nearer to float64 than eager"
"""Said of an answer that is further from eager's than t allows, and better."""


class TaskFailedError(Exception):
    """The failure of a task: some of its subgraphs are not correct at the run's t, or slower than in an earlier run.

    ``records``: all its records; ``slower``: those that are slower.
    """

    def __init__(self, records: Sequence[Record], slower: Sequence[Record] = ()) -> None:
        self.records, self.slower = records, slower
        self.failed = [record for record in records if record.judged and not record.correct]
        super().__init__(self.line())

    def line(self) -> str:
        """Return the failure in one line: the cause of most failures first, since terminals cut the end off."""
        slower = f"{len(self.slower)} of {len(self.records)} slower than before" if self.slower else ""
        if not self.failed:
            return one_line(f"{slower}: {slowdown(self.slower[0])}", 300)
        groups = list(_grouped(self.failed, lambda record: _OF_SUBGRAPH.sub("[]", cause(record))))
        most = max(groups, key=len)
        others = Counter(_ending(record) for group in groups if group is not most for record in group)
        dtypes = self._failed_dtypes() if not others and most[0].arm.status == RAN else []
        where = f" in {', '.join(dtypes)}" if dtypes else ""
        also = "".join(f"; {number} {ending}" for ending, number in others.most_common())
        also += f"; {slower}" if slower else ""
        return one_line(f"{cause(most[0])}{where} ({len(most)} of {len(self.records)}{also})", 300)

    def text(self) -> str:
        """Return the failure with its evidence, in parts by cause."""
        groups = list(_grouped(self.failed, _key))
        shown = [describe(alike) for alike in groups[:MAX_DETAILED]]
        others = (record for alike in groups[MAX_DETAILED:] for record in alike)
        rest = [one_line(f"{record.subgraph}: {reason(record)}", 300) for record in others]
        wrong = [self._counts(), *shown, *(["\n".join(rest)] if rest else [])] if self.failed else []
        return "\n\n".join([*wrong, *self._slowdowns()]) + "\n"

    def _slowdowns(self) -> list[str]:
        if not self.slower:
            return []
        head = f"{len(self.slower)} of {len(self.records)} subgraphs lost more speed-up than is allowed"
        return ["\n".join([head, *(f"  {one_line(slowdown(record), 300)}" for record in self.slower)])]

    def _counts(self) -> str:
        """Return how many subgraphs failed, with counts by dtype if those of some dtype are all correct."""
        said = f"{len(self.failed)} of {len(self.records)} subgraphs failed"
        dtypes = self._failed_dtypes()
        if not dtypes:
            return said
        total = Counter(record.dtype for record in self.records if record.judged)
        failed = Counter(record.dtype for record in self.failed)
        counts = ", ".join(f"{printable(dtype)} {total[dtype] - failed[dtype]}/{total[dtype]}" for dtype in total)
        half = set(dtypes) <= HALVES and all(record.arm.status == RAN for record in self.failed)
        return f"{said} (correct: {counts})" + (f"\n{IN_HALF}" if half else "")

    def _failed_dtypes(self) -> list[str]:
        """Return the dtypes of the failed subgraphs; none if there is no dtype whose subgraphs are all correct."""
        failed = list(dict.fromkeys(record.dtype for record in self.failed))
        return failed if any(record.judged and record.dtype not in failed for record in self.records) else []


def cause(record: Record) -> str:
    """Return why a subgraph failed in a line, without its place: for subgraphs that failed alike it is one line."""
    arm = record.arm
    if arm.status == RAN:
        return standing(record)
    missed = misses.causes(record.passes) if arm.status == "pass_miss" else []
    said = missed[0].text.partition("; ")[0].removeprefix("nearest: ") if missed else ""
    said = said or arm.message.partition("\n")[0] or "".join(finding.message for finding in record.findings[:1])
    said = said.rpartition(" error: ")[2] if arm.status == "compile_fail" else said
    return one_line(f"{arm.status}: {said}" if said else arm.status, MAX_CAUSE_CHARS)


def _ending(record: Record) -> str:
    return record.arm.status if record.arm.status != RAN else "not correct"


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
    if record.arm.first_correct == NEVER:
        return "not correct at any t"
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


def _grouped(records: Sequence[Record], key: Callable[[Record], str]) -> Iterable[list[Record]]:
    """Return the records in groups of the same key: most passes that fail do so on every subgraph."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups.values()


def _key(record: Record) -> str:
    """Return a text that is the same for failures of one cause, whatever the shapes, dtypes and values."""
    if record.arm.status == RAN:
        findings = [f"{finding.layer}: {finding.rule}" for finding in record.findings]
        return "\n".join([standing(record), _levels(record), *findings])
    return "\n".join([standing(record), _OF_SUBGRAPH.sub("[]", _evidence(record))])


def describe(alike: Sequence[Record]) -> str:
    """Return the text on subgraphs that failed alike: what happened to the first, and the names of the others."""
    first, *others = (record.subgraph for record in alike)
    evidence = _evidence(alike[0])
    elsewhere = "" if all(_evidence(record) == evidence for record in alike) else " (their values: results.md)"
    also = [_row("also", ", ".join(others) + elsewhere)] if others else []
    return "\n".join(filter(None, [f"{printable(first)}: {standing(alike[0])}", evidence, *also]))


def _evidence(record: Record) -> str:
    rows = [_row(label, text) for label, text in _rows(record) if text]
    return "\n".join([*rows, *_output(record.arm.output)])


def _row(label: str, text: str) -> str:
    """Return a label with a text beside it, whose further lines are indented as the first one is."""
    safe = printable(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "...", LINES)
    lines = safe if label == "message" else _in_lines(safe)
    return f"  {printable(label):<9} " + lines.replace("\n", f"\n{INDENT}")


def _in_lines(text: str) -> str:
    return "\n".join(_wrapped(part) for part in text.split("\n"))


def _wrapped(text: str) -> str:
    """Return a line in several lines, if it is too long to stand beside a label."""
    return textwrap.fill(text, COLUMNS - len(INDENT), break_long_words=False, break_on_hyphens=False)


def _rows(record: Record) -> Iterator[tuple[str, str]]:
    arm = record.arm
    matched = [item.name for item in record.passes if item.matches]
    if len(matched) == 1:
        yield "pass", matched[0]
    if record.stored is not None and record.stored.correct:
        yield "before", "correct in the run that this one is compared with"
    yield "message", (_in_lines(arm.message) if arm.status == "pass_miss" else arm.message)
    if arm.status == RAN:
        yield from _accuracy(record)
    if arm.status == "pass_miss":
        for text in misses.lines(record.passes):
            if text not in arm.message:
                yield "miss", text
    for finding in record.findings:
        place = f"{finding.file}:{finding.line}: " if finding.file else ""
        yield finding.severity, f"{place}{finding.message} [{finding.layer}: {finding.rule}]"


def _accuracy(record: Record) -> Iterator[tuple[str, str]]:
    arm = record.arm
    yield "outputs", ("" if set(arm.correct_from) == {NEVER} else _levels(record))
    yield "worst", arm.worst.replace(" (greatest error", "\n(greatest error")
    yield "accuracy", (NEARER if record.nearer else "")
    ratios = enumerate(zip(arm.greatest_ratio64, arm.mean_ratio64, strict=False))
    yield "float64", ", ".join(f"{i}: greatest error {a:.3g} of eager's, mean {b:.3g}" for i, (a, b) in ratios)


def _levels(record: Record) -> str:
    """Return from which t on each output is correct."""
    return ", ".join(f"{i}: {_from(at)}" for i, at in enumerate(record.arm.correct_from))


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
