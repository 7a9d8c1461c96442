"""The subgraphs of a run as data for the page's script, which shows them in opened rows.

A subgraph is a row of values, by :data:`COLUMNS`. Texts that many subgraphs share stand once, in a list, and rows
have their numbers. Rounds are packed into two characters each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, zip_longest
from math import isfinite
from typing import Any

from pytest_passbench.core import misses
from pytest_passbench.core.criterion import MAX_GREATEST_RATIO, max_mean_ratio
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.ladder import BITWISE, NEVER
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.report import tables
from pytest_passbench.report.html.model import OutcomeCount
from pytest_passbench.score.interval import digits

COLUMNS = (
    "subgraph", "source", "dtype", "eager", "candidate", "speed", "ending", "sign", "kind", "correct", "levels",
    "errors", "baselines", "passes", "texts", "findings", "seconds", "rounds", "folder",
)  # fmt: skip
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
LEVELS = len(ALPHABET) ** 2
"""The number of different values that a packed round can have, between the least and the greatest of its subgraph."""

MAX_MISSES = 4  # causes why no pass matched, nearest first


def shortened(text: str, limit: int) -> str:
    """Return a text made printable. If it is longer than ``limit``, its middle is left out."""
    safe = printable(text[: 50 * limit], LINES)
    if len(safe) <= limit:
        return safe
    half = limit // 2
    return f"{safe[:half]}\n[... {len(safe) - 2 * half} characters are left out here ...]\n{safe[-half:]}"


def details(records: Iterable[Record], rounds: int, characters: int) -> dict[str, Any]:
    """Return JSON-ready data on these subgraphs, with at most ``rounds`` of each and ``characters`` of a text."""
    numbers: dict[str, int] = {}

    def number_of(text: str) -> int:
        return numbers.setdefault(shortened(text, characters), len(numbers))

    rows = [_row(record, number_of, rounds) for record in records]
    return {"columns": COLUMNS, "rows": rows, "texts": list(numbers), "alphabet": ALPHABET}


def _row(record: Record, text: Callable[[str], int], rounds: int) -> list[Any]:
    arm, speed = record.arm, record.arm.speed
    ending = OutcomeCount(1, tables.ending(record))
    durations = sum(seconds for seconds in record.durations.values() if isfinite(seconds))
    return [
        text(record.subgraph),
        text(record.source),
        text(record.dtype),
        digits(speed.eager_us) if speed else "",
        digits(speed.other_us) if speed else "",
        _interval(arm) or arm.speed_note,
        text(ending.name.replace("_", " ")),
        ending.sign,
        ending.kind,
        int(record.correct),
        _levels(record),
        _errors(record),
        [[text(name), _interval(other), text(_ending(record, name))] for name, other in record.baselines.items()],
        _passes(record, text),
        [[text(label), text(content)] for label, content in _texts(record) if content],
        [[text(f.severity), text(f"{f.layer}/{f.rule}"), text(f.message), text(f.place)]
         for f in record.findings],
        _short(durations),
        packed(speed.pairs, rounds) if speed and rounds else [],
        text(record.folder),
    ]  # fmt: skip


def _interval(arm: ArmResult) -> list[str]:
    speed = arm.speed
    return [digits(value) for value in (speed.ratio, speed.low, speed.high)] if speed else []


def _ending(record: Record, baseline: str) -> str:
    arm = record.baselines[baseline]
    if arm.status != "ran":
        return arm.status.replace("_", " ")
    return arm.speed.verdict.lower() if arm.speed else tables.NOT_MEASURED


def _levels(record: Record) -> str:
    """Return from which t on each output agrees with eager's."""
    return ", ".join(_from(at) for at in record.arm.correct_from)


def _from(at: int) -> str:
    return "at no t" if at >= NEVER else "bit for bit" if at <= BITWISE else f"from t = {at}"


def _errors(record: Record) -> list[list[Any]]:
    """Return for each output: dtype, eager's greatest error, the candidate's, both ratios, and their limits."""
    arm = record.arm
    if not arm.error64 and not arm.greatest_ratio64:
        return []
    columns = record.dtypes, record.eager_error64, arm.error64, arm.greatest_ratio64, arm.mean_ratio64
    rows = islice(zip_longest(*columns), max(len(arm.error64), len(arm.greatest_ratio64), len(record.eager_error64)))
    return [
        [dtype or "", *map(_number, numbers), f"{MAX_GREATEST_RATIO:g}", f"{max_mean_ratio(dtype or ''):g}"]
        for dtype, *numbers in rows
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _passes(record: Record, text: Callable[[str], int]) -> list[list[Any]]:
    """Return the passes that matched: name, matches, operators covered and added, launch plan, whether untuned."""
    return [
        [
            text(item.name),
            item.matches,
            text(", ".join(item.operators)),
            text(", ".join(item.computed)),
            [text(step) for step in item.plan],
            int(item.untuned),
        ]
        for item in record.passes
        if item.matches
    ]


def _texts(record: Record) -> list[tuple[str, str]]:
    arm = record.arm
    missed = misses.causes(record.passes)[:MAX_MISSES] if arm.status == "pass_miss" else []
    nearest = "\n".join(f"{cause.who}: {cause.text}" for cause in missed if cause.text)
    where = f"message ({arm.phase})" if arm.phase else "message"
    return [
        (where, "" if nearest else arm.message),
        ("why no pass matched", nearest),
        ("greatest error", arm.worst),
        ("rounding", arm.rounding),
        ("speed", arm.speed_note),
        ("printed", arm.output),
    ]


def packed(pairs: Sequence[Sequence[float]], limit: int) -> list[Any]:
    """Return rounds as [least, greatest, lengths of the pairs, every, text]: two characters a round.

    A round is a log-ratio. It is written as its place between the least and the greatest, in :data:`LEVELS` steps.
    If there are more than ``limit``, whole pairs are left out: of ``every`` pairs the first is kept.
    """
    total = sum(map(len, pairs))
    every = max(1, -(-total // limit))
    finite = [[value for value in pair if isfinite(value)] for pair in pairs[::every]]
    values = [value for pair in finite for value in pair]
    if not values:
        return []
    least, greatest = min(values), max(values)
    span = greatest - least or 1.0
    places = (round((value - least) / span * (LEVELS - 1)) for value in values)
    text = "".join(ALPHABET[place // len(ALPHABET)] + ALPHABET[place % len(ALPHABET)] for place in places)
    return [_short(least), _short(greatest), [len(pair) for pair in finite], every, text]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
