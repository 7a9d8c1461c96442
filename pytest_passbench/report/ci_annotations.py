"""The tasks of a run that a reviewer has to see, the worst first, each with its place in the candidate's files.

They are those that failed, and those with a subgraph on which a candidate is slower than the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, head_to_head
from pytest_passbench.report.tables import ending, why
from pytest_passbench.score.interval import Interval
from pytest_passbench.score.subgraph import ACCURACY

SLOWER = "slower"
"""The status of a subgraph that is correct, and slower than the earlier run or the reference allows."""

_SEVERITY = {"integrity": 0, "crash": 1, "timeout": 1, "compile_fail": 1, "runtime_fail": 1, "nan_inf": 2,
             "shape_mismatch": 2, "type_mismatch": 2, ACCURACY: 3, SLOWER: 4, "pass_miss": 5,
             "eager_fail": 6}  # fmt: skip
#: A file with a line number. A candidate may have written the text, so matching takes linear time, and few digits.
_PLACE = re.compile(r"(?<![\w./-])([\w./-]+\.py):(\d{1,9})\b")


@dataclass(frozen=True)
class Annotation:
    """A task of a candidate, with the ``status`` of its worst subgraph and ``count`` subgraphs that are like it.

    ``text`` says in a line what happened, without the task's name. ``file`` is as the run names it.
    """

    task: str
    candidate: str
    status: str
    count: int
    text: str
    file: str
    line: int

    @property
    def severity(self) -> int:
        """The rank of the status, by the nature of the failure.

        0: a broken rule. 1: a fault before an answer. 2: an answer of a wrong form. 3: a wrong answer.
        4: a lost speed-up. 5: no match. 6: a fault of eager's.
        """
        return _SEVERITY.get(self.status, 1)


def failures(run: Run) -> list[Annotation]:
    """Return the tasks that failed, the worst first: a subgraph is not correct, or slower than in the earlier run.

    A subgraph that was not judged is no failure.
    """
    ranked = []
    for name, path in _candidates(run):
        slower = changes.regressions(run, name)
        for task, records in grouped(run.of(name), lambda record: record.task).items():
            wrong = [record for record in records if record.judged and not record.correct]
            fell = [record for record in slower if record.task == task]
            if wrong or fell:
                worst = min([*wrong, *fell], key=lambda record: _SEVERITY.get(_status(record), 1))
                text = "; ".join([*_wrong(wrong, len(records)), *_fell(fell, len(records))])
                annotation = _annotation(path, worst, len(wrong) + len(fell), text)
                ranked.append((annotation.severity, -annotation.count / len(records), annotation))
    return [annotation for *_, annotation in sorted(ranked, key=lambda item: item[:2])]


def behind(run: Run) -> list[Annotation]:
    """Return the tasks with subgraphs that are certainly slower than the reference's. No case fails for them.

    Tasks with the greatest share of such subgraphs come first.
    """
    ranked = []
    for name, path in _candidates(run):
        for records in grouped(run.of(name), lambda record: record.task).values():
            ratios = [(ratio, record) for record in records if (ratio := record.head_to_head) is not None]
            slower = [(ratio, record) for ratio, record in ratios if ratio.verdict == "SLOWER"]
            if slower:
                ratio, worst = min(slower, key=lambda item: item[0].ratio)
                count = f"{len(slower)} of {len(records)} subgraphs slower than {head_to_head.reference(run)}"
                text = f"{count}: {worst.subgraph}: {Interval.of(ratio)} times as fast"
                annotation = _annotation(path, worst, len(slower), text)
                ranked.append((-annotation.count / len(records), annotation))
    return [annotation for _, annotation in sorted(ranked, key=lambda item: item[0])]


def _candidates(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each candidate."""
    for candidate in run.candidates:
        yield str(candidate.get("name", "")), str(candidate.get("path", ""))


def _status(record: Record) -> str:
    return SLOWER if record.correct else ending(record)


def _wrong(records: list[Record], judged: int) -> Iterator[str]:
    """Yield how many subgraphs failed, and how the worst one did."""
    if records:
        worst = min(records, key=lambda record: _SEVERITY.get(_status(record), 1))
        yield f"{len(records)} of {judged} subgraphs failed: {worst.subgraph}: {_status(worst)}: {why(worst)}"


def _fell(records: list[Record], judged: int) -> Iterator[str]:
    """Yield how many subgraphs lost more speed-up than is allowed, and how the first one did."""
    if records:
        yield f"{len(records)} of {judged} subgraphs slower than before: {changes.slowdown(records[0])}"


def _annotation(candidate: str, worst: Record, count: int, text: str) -> Annotation:
    file, line = _place(candidate, worst)
    return Annotation(worst.task, worst.candidate, _status(worst), count, text, file, line)


def _place(candidate: str, record: Record) -> tuple[str, int]:
    """Return the file and line that a record is about: a finding's, a message's, or the pass that matched."""
    folder = PurePath(candidate)
    for finding in record.findings:
        if finding.file:
            return _inside(folder, finding.file), max(1, finding.line)
    named = _PLACE.search(record.arm.message)
    if named is not None:
        return _inside(folder, named[1]), int(named[2])
    matched = [item.name for item in record.passes if item.matches]
    names = matched or [item.name for item in record.passes]
    where = folder / record.folder if record.folder else folder
    return str(where / (f"{names[0]}.py" if names else "sorted_output_pass_rule_names.json")), 1


def _inside(folder: PurePath, file: str) -> str:
    """Return a file of the candidate. A name that would lead out of its folder counts as the folder."""
    path = PurePath(file)
    if path.is_absolute() or ".." in path.parts:
        return str(folder)
    return str(path) if path.parts[: len(folder.parts)] == folder.parts and folder.parts else str(folder / path)
