"""What became of a candidate, in words for the author's next attempt: a person's, or a model's.

Most of it is text that the candidate has brought about. So every part is capped and escaped, paths are those within
the candidate, and nothing is said of seeds or inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from pytest_passbench.core import misses
from pytest_passbench.core.escape import LINES, line, printable
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import DISQUALIFIED, RAN, Finding, Record, Speed
from pytest_passbench.report.failure_text import OF_SUBGRAPH, standing

LIMIT = 4000
"""Characters of a feedback, if the caller sets no other limit."""

MAX_MESSAGE = 1200
"""Characters of a compiler's or another long message."""

MAX_OUTPUT = 400
"""Characters of the candidate's output that are shown: its last ones."""

MAX_CAUSES = 5
"""Different failures that are shown: broken rules first, then the most frequent."""

MAX_PASSES = 12
CUT = "\n[...]"

IN_WORDS = {
    "compile_fail": "a file cannot be read, or a kernel does not compile",
    "runtime_fail": "raises an exception, or does what no launch plan can hold",
    "timeout": "takes too long",
    "crash": "ends its process",
    "integrity": "breaks a rule, which makes the whole attempt worthless",
    "pass_miss": "no pass matches the graph",
    "nan_inf": "gives NaN or infinity where eager does not",
    "shape_mismatch": "gives outputs of another shape than eager",
    "type_mismatch": "gives outputs of another dtype, or other memory, than eager",
    "eager_fail": "eager itself cannot run the graph",
    "harness_fail": "could not be judged, through no fault of the candidate",
}
"""Each status but RAN in words."""

#: The folders in an absolute path of two parts or more. A URL does not match.
_FOLDERS = re.compile(r"(?<![\w./:<])/(?:[^\s/:'\"()<>]+/)+")


def text(records: Sequence[Record], expected: int, path: str, limit: int = LIMIT) -> str:
    """Return the feedback on a candidate's records in at most ``limit`` characters.

    ``expected`` subgraphs were to be judged. ``path`` is the candidate's folder, which is left out of all paths.
    """
    judged = [record for record in records if record.judged]
    right = [record for record in judged if record.correct]
    parts = [_head(judged, right, expected)]
    parts += _failures([record for record in records if not (record.judged and record.correct)])
    parts += [_further_sizes(right), _matches(judged), _speeds(right), _warnings(judged), _output(judged)]
    body = _inside("\n\n".join(filter(None, parts)), path)
    return body if len(body) <= limit else (body[: max(0, limit - len(CUT))] + CUT)[:limit]


def _inside(text: str, path: str) -> str:
    """Return a text with paths relative to the candidate's folder. Other absolute paths keep only their last part."""
    if path:
        text = text.replace(f"{path}/", "").replace(path, "the candidate")
    return _FOLDERS.sub("", text)


def _head(judged: Sequence[Record], right: Sequence[Record], expected: int) -> str:
    total = max(expected, len(judged))
    summary = f"{len(right)} of {total} subgraphs are correct"
    if judged:
        agrees, accurate = f"agreement with eager at t = {judged[0].tolerance}", "as accurate as eager"
        words = {"ladder": agrees, "fp64": accurate, "either": f"{agrees}, or {accurate}"}
        summary += f" ({words[judged[0].criterion]})"
    return summary + "."


def _failures(failed: Sequence[Record]) -> Iterator[str]:
    ranked = sorted(grouped(failed, _key).values(), key=_rank)
    for group in ranked[:MAX_CAUSES]:
        yield _failure(group)
    rest = sum(map(len, ranked[MAX_CAUSES:]))
    if rest:
        yield f"{rest} more subgraphs fail in {len(ranked) - MAX_CAUSES} other ways."


def _rank(group: Sequence[Record]) -> tuple[bool, bool, int]:
    """Return a sort key: broken rules first, then failures that only follow from them, then the most frequent."""
    arm = group[0].arm
    return arm.status != "integrity", arm.phase == DISQUALIFIED, -len(group)


def _key(record: Record) -> str:
    """Return a text that is the same for failures of one cause, whatever their shapes, dtypes and values."""
    arm = record.arm
    if arm.status == RAN:
        return f"wrong {arm.first_correct == NEVER}"
    return f"{arm.status} {arm.phase} {OF_SUBGRAPH.sub('[]', arm.message)}"


def _failure(group: Sequence[Record]) -> str:
    first, arm = group[0], group[0].arm
    where = f"{line(first.task, 80)}/{line(first.subgraph, 80)}"
    others = f" and {len(group) - 1} more" if len(group) > 1 else ""
    if arm.status == RAN:
        return "\n".join([f"Wrong answer on {where}{others}: {_wrong(first)}.", *_worst(group)])
    headline = f"{arm.status} on {where}{others}: {IN_WORDS.get(arm.status, arm.status)}."
    lines = [f"  {printable(part)}" for part in _capped(arm.message, MAX_MESSAGE).splitlines()]
    findings = [finding for record in group for finding in record.findings if finding.message not in arm.message]
    more = [f"  {item}" for item in dict.fromkeys(map(_finding, findings))]
    return "\n".join([headline, *lines, *more[:MAX_CAUSES]])


def _finding(finding: Finding) -> str:
    place = f"{finding.place}: " if finding.place else ""
    return line(f"{place}{finding.message} [rule {finding.rule}]", 400)


def _wrong(record: Record) -> str:
    """Return the standing of a wrong answer, and from which t on it is correct, if that counts."""
    first = record.arm.first_correct
    later = record.criterion != "fp64" and record.tolerance < first < NEVER
    return standing(record) + (f"; correct from t = {first} on" if later else "")


def _worst(group: Sequence[Record]) -> Iterator[str]:
    """Yield the worst element of the first subgraph of each dtype."""
    for record, *_ in grouped((record for record in group if record.arm.worst), attrgetter("dtype")).values():
        nearer = "; nearer to float64 than eager is" if record.nearer else ""
        yield f"  worst element ({line(record.dtype, 20)}): {line(record.arm.worst, 300)}{nearer}"
        if record.arm.rounding:
            yield f"  {line(record.arm.rounding, 500)}"


def _further_sizes(right: Sequence[Record]) -> str:
    """Return at how many further sizes the answers are right, and the first ones at which they are not."""
    total = sum(len(record.held_out_judged) for record in right)
    failed = [(record, item) for record in right for item in record.held_out_failures]
    if not failed:
        return f"Right at all {counted(total, 'further size')}, drawn at random." if total else ""
    rows = [f"Of {counted(total, 'further size')}, drawn at random, {len(failed)} are not right:"]
    for record, item in failed[:MAX_CAUSES]:
        where = f"{line(record.task, 80)}/{line(record.subgraph, 80)} at batch {item.batch}, size {item.size}"
        outcome = item.outcome(record.criterion, record.tolerance)
        why = item.arm.message or item.arm.worst or IN_WORDS.get(item.arm.status, "")
        rows.append(f"  {where}: {outcome}" + (f": {line(why, 300)}" if why else ""))
    if len(failed) > MAX_CAUSES:
        rows.append(f"  {len(failed) - MAX_CAUSES} more.")
    return "\n".join(rows)


def _matches(judged: Iterable[Record]) -> str:
    """Return which passes matched where, and the nearest miss of those that matched nowhere."""
    reports = [report for record in judged for report in record.passes]
    matched = grouped((report for report in reports if report.matches), attrgetter("name"))
    missed = grouped((report for report in reports if report.name not in matched), attrgetter("name"))
    rows = [
        f"Pass {line(name, 80)} matched {counted(len(group), 'subgraph')}: "
        f"{line(', '.join(group[0].operators), 200)}."
        for name, group in list(matched.items())[:MAX_PASSES]
    ]
    if len(matched) > MAX_PASSES:
        rows.append(f"{len(matched) - MAX_PASSES} more passes matched.")
    nowhere = [max(reversed(group), key=attrgetter("nearness")) for group in missed.values()]
    near = misses.lines(nowhere)[:MAX_CAUSES]
    if near:
        rows.append("Passes that matched nowhere, the nearest to a match first:")
        rows += [f"  {line(item, 500)}" for item in near]
    return "\n".join(rows)


def _speeds(right: Sequence[Record]) -> str:
    measured = [(record, record.arm.speed) for record in right if record.arm.speed is not None]
    if not measured:
        return "No correct subgraph has a measured speed." if right else ""
    measured.sort(key=lambda pair: pair[1].ratio)
    (slow, slowest), (fast, fastest) = measured[0], measured[-1]
    rows = [f"Speed-up over eager (95 % interval), slowest: {_speed(slow, slowest)}"]
    if len(measured) > 1:
        rows.append(f"fastest: {_speed(fast, fastest)}")
    slower = sum(speed.verdict == "SLOWER" for _, speed in measured)
    if slower:
        rows.append(f"{slower} of {len(measured)} are slower than eager")
    return "; ".join(rows) + "."


def _speed(record: Record, speed: Speed) -> str:
    took = f"{speed.other_us:.3g} us instead of {speed.eager_us:.3g} us"
    return f"{speed.ratio:.2f} [{speed.low:.2f}, {speed.high:.2f}] on {line(record.subgraph, 80)} ({took})"


def _warnings(judged: Iterable[Record]) -> str:
    warnings = {
        _finding(finding): None for record in judged for finding in record.findings if finding.severity == "warning"
    }
    return "\n".join(f"Warning: {item}" for item in list(warnings)[:MAX_CAUSES])


def _output(judged: Iterable[Record]) -> str:
    printed = next((record.arm.output.strip() for record in judged if record.arm.output.strip()), "")
    if not printed:
        return ""
    rows = printable(printed[-MAX_OUTPUT:], LINES).splitlines()
    return "\n".join(["It printed:", *(f"  | {row}" for row in rows)])


def _capped(text: str, limit: int) -> str:
    """Return a message cut in its middle: a compiler's first line counts most, and a traceback's last one."""
    safe = printable(text, LINES)
    if len(safe) <= limit:
        return safe
    # Both cuts are at the ends of lines, or of words in a long line.
    head, tail = safe[: limit * 2 // 3], safe[-limit // 3 :]
    head = head.rpartition("\n")[0] or head.rpartition(" ")[0] or head
    tail = tail.partition("\n")[2] or tail.partition(" ")[2] or tail
    return f"{head}{CUT}\n{tail}"
