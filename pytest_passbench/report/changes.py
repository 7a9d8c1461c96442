"""Changes since an earlier run, by subgraph: pure functions of records with the earlier result in ``stored``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot, inf, log
from typing import Literal

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings
from pytest_passbench.report.tables import NONE, NOT_MEASURED, Table, ending, offset
from pytest_passbench.score.interval import Interval, combined, quotient
from pytest_passbench.timing.looks import MIN_DELTA

ALL = "all tasks"
NEW, NOT_JUDGED, STILL_WRONG = "new", "not judged", "incorrect as before"
GAINED, LOST = "gained", "lost"
SAME_TASKS = "compare runs of the same tasks"
"""The remedy if nothing can be compared."""
Fall = Literal["kept", "open", "fell"]


@dataclass(frozen=True)
class TaskChange:
    """A task in an earlier run and now; :data:`ALL` stands for all tasks.

    ``before``, ``after`` and ``change`` are means over the subgraphs that were correct and measured in both runs;
    None if there are none. ``compared`` is the number of subgraphs that both runs judged.
    """

    task: str
    before: Interval | None
    after: Interval | None
    change: Interval | None
    compared: int
    correct_before: int
    correct_after: int
    outcomes: dict[str, int]

    @property
    def lost(self) -> int:
        """The number of subgraphs that were correct before and are not now."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.startswith(LOST))

    @property
    def rank(self) -> tuple[bool, float]:
        """The order of tasks: those that lost answers, then by their change, the worst first."""
        return not self.lost, log(self.change.ratio) if self.change is not None else inf


def change_of(record: Record) -> Interval | None:
    """Return the change of a subgraph's speed-up; None unless it was correct and measured in both runs."""
    then = record.stored.speed if _comparable(record) and record.stored is not None else None
    return quotient(record.arm.speed, then) if then is not None and record.arm.speed is not None else None


def confirming_change(record: Record) -> Interval | None:
    """Return the change of a speed-up by the confirming measurement; None if there was none."""
    stored = record.stored
    if stored is None or stored.again is None or stored.speed is None:
        return None
    return quotient(stored.again, stored.speed)


def _comparable(record: Record) -> bool:
    return record.stored is not None and not record.stored.note and record.stored.correct and record.correct


def fall(change: Interval, limit: float) -> Fall:
    """Return whether a speed-up fell by more than ``limit`` (0.03 is 3 %): "fell" and "kept" are certain."""
    if change.high < 1 - limit:
        return "fell"
    return "kept" if change.low >= 1 - limit else "open"


def doubtful(record: Record, limit: float, strict: bool = False) -> bool:
    """Return True if a speed-up fell by more than ``limit``. With ``strict`` also if that is open."""
    change = change_of(record)
    return change is not None and fall(change, limit) in _bad(strict)


def regressed(record: Record, limit: float, strict: bool = False) -> bool:
    """Return True if a speed-up is :func:`doubtful`, and the confirming measurement agrees."""
    confirming = confirming_change(record)
    return doubtful(record, limit, strict) and confirming is not None and fall(confirming, limit) in _bad(strict)


def regressions(run: Run, candidate: str) -> list[Record]:
    """Return the records of a candidate that fail for their speed, by the run's own limit (:func:`regressed`).

    There are none if the run was compared with nothing.
    """
    limit, strict = limit_of(run), is_strict(run)
    return [record for record in run.of(candidate) if run.compared and regressed(record, limit, strict)]


def is_strict(run: Run) -> bool:
    """Return True if a case also fails if it is open whether its speed-up fell."""
    return bool(run.settings.get("compare_strict", Settings.compare_strict))


def limit_of(run: Run) -> float:
    """Return the share of a speed-up that the run's cases may lose."""
    return float(run.settings.get("max_regression", Settings.max_regression))


def slowdown(record: Record) -> str:
    """Return in words how the speed-up of a :func:`regressed` record changed, in both measurements."""
    stored, now = record.stored, record.arm.speed
    assert stored is not None
    assert stored.speed is not None
    assert now is not None
    was = f"{record.subgraph}: {now.ratio:.3g}x, was {stored.speed.ratio:.3g}x"
    return f"{was}: {quotient(now, stored.speed)} of it; measured again, {confirming_change(record)}"


def open_still(record: Record, limit: float) -> bool:
    """Return True if neither measurement could tell whether a speed-up fell by more than ``limit``."""
    change, confirming = change_of(record), confirming_change(record)
    if change is None or fall(change, limit) != "open":
        return False
    return confirming is None or fall(confirming, limit) == "open"


def _bad(strict: bool) -> tuple[Fall, ...]:
    return ("fell", "open") if strict else ("fell",)


def lost(record: Record) -> bool:
    """Return True if the answer was correct in the earlier run, and is not now."""
    stored = record.stored
    return stored is not None and not stored.note and stored.correct and record.judged and not record.correct


def outcome(record: Record, delta: float) -> str:
    """Return the change of a subgraph in a word or two. A change smaller than ``delta`` counts as none."""
    stored = record.stored
    if stored is None:
        return NEW
    if stored.note:
        return stored.note
    if not record.judged:
        return NOT_JUDGED
    if lost(record):
        return f"{LOST} ({ending(record)})"
    if not record.correct:
        return STILL_WRONG
    return _speed_outcome(record, delta) if stored.correct else GAINED


def _speed_outcome(record: Record, delta: float) -> str:
    change, band = change_of(record), 1 + delta
    if change is None:
        return NOT_MEASURED
    if change.low > band:
        return "faster"
    if change.high < 1 / band:
        return "slower"
    return "same" if 1 / band <= change.low and change.high <= band else "unresolved"


def delta_of(run: Run) -> float:
    """Return the smallest change that counts as one: by the noise of both runs, and at least 2 %."""
    noises = (run.noise, run.compared.get("noise", {}))
    return max(MIN_DELTA, *(float(noise.get("delta", 0.0)) for noise in noises))


def of_tasks(run: Run, candidate: str) -> list[TaskChange]:
    """Return the changes of a candidate's tasks, the worst first. The list is empty if there is no earlier run."""
    if not run.compared:
        return []
    tasks = [_of(task, group, run) for task, group in run.by_task(candidate).items() if group]
    return sorted(tasks, key=lambda item: item.rank)


def of_all(run: Run, candidate: str) -> TaskChange:
    """Return the change of all of a candidate's subgraphs together."""
    return _of(ALL, run.of(candidate), run)


def _of(task: str, records: Sequence[Record], run: Run) -> TaskChange:
    delta, both = delta_of(run), [record for record in records if change_of(record) is not None]
    now, then = offset(run), float(run.compared.get("noise", {}).get("offset", 0.0))
    stored = [record for record in records if record.stored is not None and not record.stored.note]
    comparable = [record for record in stored if record.judged]
    return TaskChange(
        task=task,
        before=combined([record.stored.speed for record in both if record.stored and record.stored.speed], then),
        after=combined([record.arm.speed for record in both if record.arm.speed], now),
        change=combined([change for record in both if (change := change_of(record))], hypot(now, then)),
        compared=len(comparable),
        correct_before=sum(record.stored.correct for record in comparable if record.stored),
        correct_after=sum(record.correct for record in comparable),
        outcomes=dict(Counter(outcome(record, delta) for record in records).most_common()),
    )


def table(run: Run, candidate: str) -> Table:
    """Return a line per task of how a candidate changed since an earlier run, the worst first, and one for all.

    The same table is shown in a terminal, in Markdown and by ``passbench compare``. It has no rows if the run was
    compared with nothing.
    """
    headers = ("task", "before", "after", "change", "correct", "outcome")
    tasks = of_tasks(run, candidate)
    rows = [_row(item) for item in [*tasks, *([of_all(run, candidate)] if len(tasks) > 1 else [])]]
    about = (
        "Speed-ups over eager, the mean of what was correct and measured in both runs, and their quotient after / "
        f"before, with 95 % intervals. Faster and slower: by more than {100 * delta_of(run):.1f} %, with the whole "
        "interval. Lost: correct before, and not after."
    )
    return Table(_title(run, candidate), headers, tuple(rows), brief=("before", "after"), about=about)


def _title(run: Run, candidate: str) -> str:
    then = run.compared.get("candidates", {}).get(candidate, candidate)
    name = candidate if then == candidate else f"{then} to {candidate}"
    return f"Changes: {name}, since {file_of(run)}"


def nothing_compared(run: Run, candidates: Iterable[str]) -> str:
    """Return the sentence on candidates of which no subgraph can be compared with the earlier run."""
    return f"no subgraph of {line(', '.join(candidates))} since {line(file_of(run))} can be compared"


def file_of(run: Run) -> str:
    """Return the name of the earlier run's file, with its folder's."""
    return "/".join(str(run.compared.get("file", "")).split("/")[-2:])


def _row(item: TaskChange) -> tuple[str, ...]:
    means = (str(mean) if mean is not None else NONE for mean in (item.before, item.after, item.change))
    counts = dict.fromkeys(map(str, (item.correct_before, item.correct_after)))
    correct = f"{' to '.join(counts)} of {item.compared}" if item.compared else NONE
    return item.task, *means, correct, ", ".join(f"{count} {outcome}" for outcome, count in item.outcomes.items())


def sentence(run: Run, candidate: str) -> str:
    """Return how a candidate changed since an earlier run, in a sentence."""
    total = of_all(run, candidate)
    if not total.compared:
        return nothing_compared(run, [candidate])
    speed = f"speed-up {total.change} times that of before" if total.change is not None else "no speed-up compared"
    gained = total.outcomes.get(GAINED, 0)
    compared = counted(total.compared, "subgraph")
    return f"{candidate}: {speed}; of {compared} {total.lost} lost correctness, {gained} gained it"


def notes(run: Run) -> list[str]:
    """Return what a reader must know before comparing the two runs, a sentence each."""
    sentences = [str(text) for text in run.compared.get("warnings", ())]
    absent = int(run.compared.get("subgraphs", 0)) - sum(record.stored is not None for record in run.records)
    if absent > 0:
        sentences.append(f"Not judged now: {counted(absent, 'subgraph')} of {file_of(run)}.")
    return sentences
