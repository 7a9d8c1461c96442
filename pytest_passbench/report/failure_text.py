"""The evidence of failed subgraphs in words, grouped by cause: pytest and ``passbench show`` print it.

Everything that a candidate could have written is capped and goes through :mod:`pytest_passbench.core.escape`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import BITWISE, NEVER
from pytest_passbench.core.record import DISQUALIFIED, RAN, Record

MAX_OUTPUT_CHARS = 4000
"""Characters shown of one captured output: its end, where a traceback stands."""

MAX_TEXT_CHARS = 1000
"""Characters shown of a message."""

MAX_CAUSE_CHARS = 160
"""Characters shown of the cause in a failure's line: the count behind it is never cut off."""

COLUMNS = 80
"""The width at which sentences wrap. Compilers' messages keep their lines, since carets point into them."""

INDENT = " " * 12
"""The indent of the text beside a label."""

#: The parts of messages that differ for subgraphs with one cause: shapes, dtypes, a crashed kernel's numbers.
OF_SUBGRAPH = re.compile(
    r"\[[\d, ]*\]|\b(?:bfloat16|float\d+|complex\d+|u?int\d+|bool)\b|(?<= = )-?\d\S*|\b\d+ bytes?\b"
)

#: Phases of subgraphs that failed because of another subgraph. No text names them: they are no part of the work.
CONSEQUENCES = {DISQUALIFIED, "out"}

NEARER = "nearer to float64 than eager"
"""The words for an answer that is further from eager's than t allows, but nearer to float64's."""


def cause(record: Record) -> str:
    """Return why a subgraph failed in a line, without its place: for subgraphs that failed alike it is one line."""
    arm = record.arm
    if arm.status == RAN:
        return standing(record)
    missed = misses.causes(record.passes) if arm.status == "pass_miss" else []
    text = missed[0].text.partition("; ")[0].removeprefix("nearest: ") if missed else ""
    text = text or arm.message.partition("\n")[0] or "".join(finding.message for finding in record.findings[:1])
    text = text.rpartition(" error: ")[2] if arm.status == "compile_fail" else text
    return one_line(f"{arm.status}: {text}" if text else arm.status, MAX_CAUSE_CHARS)


def standing(record: Record) -> str:
    """Return how the candidate did on a subgraph: its status and phase, or whether the answer is correct."""
    arm = record.arm
    if arm.status != RAN:
        at_phase = arm.phase and arm.phase not in CONSEQUENCES
        return arm.status + (f" in {printable(arm.phase)}" if at_phase else "")
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


def cause_key(record: Record) -> str:
    """Return a text that is the same for failures of one cause, whatever the shapes, dtypes and values."""
    if record.arm.status == RAN:
        findings = [f"{finding.layer}: {finding.rule}" for finding in record.findings]
        return "\n".join([standing(record), _levels(record), *findings])
    return "\n".join([standing(record), OF_SUBGRAPH.sub("[]", _evidence(record))])


def describe(alike: Sequence[Record], named: Callable[[Record], str] = attrgetter("subgraph")) -> str:
    """Return the text on subgraphs that failed alike: what happened to the first, and the names of the others."""
    first, *others = map(named, alike)
    evidence = _evidence(alike[0])
    elsewhere = "" if all(_evidence(record) == evidence for record in alike) else " (their values: results.md)"
    also = [_row("also", ", ".join(others) + elsewhere)] if others else []
    return "\n".join(filter(None, [f"{printable(first)}: {standing(alike[0])}", evidence, *also]))


def blocks(records: Iterable[Record]) -> list[str]:
    """Return a text for each cause of failure, over all tasks. Subgraphs are named with their tasks.

    Subgraphs that no pass matched are left out, since the table of misses has their causes.
    """
    failed = [record for record in records if not record.correct]
    others = [record for record in failed if record.arm.status != "pass_miss" or not misses.causes(record.passes)]
    groups = grouped(others, cause_key).values()  # most passes that fail do so on every subgraph
    return [describe(alike, lambda record: f"{record.task}/{record.subgraph}") for alike in groups]


def _evidence(record: Record) -> str:
    rows = [_row(label, text) for label, text in _rows(record) if text]
    return "\n".join([*rows, *_output(record.arm.output)])


def _row(label: str, text: str) -> str:
    """Return a label with a text beside it, whose further lines are indented as the first one is."""
    safe = printable(text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + "...", LINES)
    lines = safe if label == "message" else _in_lines(safe)
    return f"  {printable(label):<9} " + lines.replace("\n", f"\n{INDENT}")


def _in_lines(text: str) -> str:
    """Return a text with those lines wrapped that are too long to stand beside a label."""
    wrapper = textwrap.TextWrapper(COLUMNS - len(INDENT), break_long_words=False, break_on_hyphens=False)
    return "\n".join(map(wrapper.fill, text.split("\n")))


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
        place = f"{finding.place}: " if finding.place else ""
        text = f"{place}{finding.message} [{finding.layer}: {finding.rule}]"
        if text != arm.message:
            yield finding.severity, text


def _accuracy(record: Record) -> Iterator[tuple[str, str]]:
    arm = record.arm
    yield "outputs", ("" if set(arm.correct_from) == {NEVER} else _levels(record))
    yield "worst", arm.worst.replace(" (greatest error", "\n(greatest error")
    yield "rounding", ("" if record.correct else arm.rounding)
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
