"""The tasks of a run that failed, the worst first, each with its place in the candidate's files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from pytest_passbench.core.record import RAN, Record
from pytest_passbench.core.run import Run
from pytest_passbench.report.tables import why

_SEVERITY = {"integrity": 0, "crash": 1, "timeout": 1, "compile_fail": 1, "runtime_fail": 1, "nan_inf": 2,
             "shape_mismatch": 2, "type_mismatch": 2, RAN: 3, "pass_miss": 4, "eager_fail": 5}  # fmt: skip
_PLACE = re.compile(r"([\w./-]+\.py):(\d+)")


@dataclass(frozen=True)
class Failing:
    """A task that failed for a candidate. ``worst`` is the record that is told. ``file`` is as the run names it."""

    task: str
    candidate: str
    worst: Record
    failed: int
    judged: int
    file: str
    line: int

    @property
    def severity(self) -> int:
        """The rank of the worst status.

        0 is a broken rule, 1 a fault before an answer, 2 a wrong form, 3 a wrong answer, 4 no match.
        """
        return _SEVERITY.get(self.worst.arm.status, 1)

    @property
    def status(self) -> str:
        """The status of the worst subgraph; "accuracy" for a wrong answer."""
        return "accuracy" if self.worst.arm.status == RAN else self.worst.arm.status

    @property
    def text(self) -> str:
        """The failure in a line, without the task's name."""
        told = f"{self.worst.subgraph}: {self.status}: {why(self.worst)}"
        return f"{self.failed} of {self.judged} subgraphs failed: {told}"


def failing(run: Run) -> list[Failing]:
    """Return the tasks with a subgraph that is not correct, the worst first. What was not judged is no failure."""
    found = []
    for candidate in run.candidates:
        name = str(candidate.get("name", ""))
        for task in run.tasks:
            records = [one for one in run.of(name) if one.task == task]
            wrong = [one for one in records if one.judged and not one.correct]
            if wrong:
                worst = min(wrong, key=lambda one: _SEVERITY.get(one.arm.status, 1))
                file, line = _place(str(candidate.get("path", "")), worst)
                found.append(Failing(task, name, worst, len(wrong), len(records), file, line))
    return sorted(found, key=lambda one: (one.severity, -one.failed / one.judged))


def _place(candidate: str, record: Record) -> tuple[str, int]:
    """Return the file and line that a failure is about: a finding's, a message's, or the pass that matched."""
    folder = PurePath(candidate)
    for finding in record.findings:
        if finding.file:
            return _inside(folder, finding.file), max(1, finding.line)
    named = _PLACE.search(record.arm.message)
    if named is not None:
        return _inside(folder, named[1]), int(named[2])
    matched = [one.name for one in record.passes if one.matches]
    names = matched or [one.name for one in record.passes]
    where = folder / record.folder if record.folder else folder
    return str(where / (f"{names[0]}.py" if names else "sorted_output_pass_rule_names.json")), 1


def _inside(folder: PurePath, file: str) -> str:
    """Return a file of the candidate. A name that would lead out of its folder counts as the folder."""
    path = PurePath(file)
    if path.is_absolute() or ".." in path.parts:
        return str(folder)
    return str(path) if path.parts[: len(folder.parts)] == folder.parts and folder.parts else str(folder / path)


def relative(file: str, base: str) -> str:
    """Return a file below a folder by its path from there, or as it is."""
    path = PurePath(file)
    return str(path.relative_to(base)) if base and path.is_relative_to(base) else file


def count(found: Iterable[Failing]) -> int:
    """Return the number of failed subgraphs."""
    return sum(one.failed for one in found)
