"""Going on with a run that was interrupted: nothing is judged twice, and the result is that of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import LATEST
from pytest_passbench.run import journal


def find(folder: str, report_dir: Path, base: Path) -> Path:
    """Return the folder of a run to go on with: ``folder``, relative to ``base``, or the latest in ``report_dir``.

    Raises UserError if there is none.
    """
    if folder != LATEST:
        return base / folder
    folders = sorted({path.parent for path in report_dir.glob("*/journal*.jsonl")}, key=lambda path: path.name)
    if not folders:
        raise UserError("has no run that was interrupted", where=report_dir, remedy="run without --passbench-resume")
    return folders[-1]


@dataclass(frozen=True)
class Earlier:
    """A run that was interrupted: its folder, the header of its journal, and how many of its lines were cut short.

    ``records`` has the last record of each task, candidate and subgraph.
    """

    folder: Path
    header: dict[str, Any]
    records: dict[tuple[str, str, str], Record]
    cut: int

    def __str__(self) -> str:
        summary = f"{counted(len(self.records), 'subgraph is', 'subgraphs are')} not judged again"
        return f"resumes {self.folder}: {summary}" + (f"; lines that were cut short: {self.cut}" if self.cut else "")


def read(folder: Path) -> Earlier:
    """Return the interrupted run in a folder, without what the harness failed to judge: that is judged again.

    Raises UserError if the folder has no journal that can be read.
    """
    journaled = journal.read(folder)
    judged = [record for record in journaled.records if record.judged]
    records = {(record.task, record.candidate, record.subgraph): record for record in judged}
    return Earlier(folder, journaled.header, records, journaled.cut)


def check(earlier: Earlier, header: Mapping[str, Any]) -> None:
    """Raise UserError if an interrupted run was of something else than the run that is to go on with it.

    ``header`` is the new run's, as :meth:`~pytest_passbench.run.ledger.Ledger.header` makes it.
    """
    changed = list(_differences(earlier.header, header))
    if changed:
        remedy = "give the same candidate and options as before, or run without --passbench-resume"
        raise UserError(f"cannot be resumed: {'; '.join(changed)}", where=earlier.folder, remedy=remedy)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = old.get("settings", {}), new["settings"]
    for name in now:
        if before.get(name) != now[name]:
            yield f"{name} was {before.get(name)!r} and is {now[name]!r}"
    previous, present = old.get("candidates", {}), new["candidates"]
    if list(previous) != list(present):
        yield f"the candidates were {', '.join(previous)} and are {', '.join(present)}"
    else:
        for name in present:
            if previous[name] != present[name]:
                yield f"the files of the candidate {name} have changed"
    if old.get("against", "") != new["against"]:
        yield "the reference (--passbench-against) is another one, or its files have changed"
    if old.get("compared", "") != new["compared"]:
        yield "the run to compare with (--passbench-compare), or how, is another one"
    if old.get("seed") != new["seed"]:
        yield "the seed is another one"
    if old.get("harness") != new["harness"]:
        yield "this is another version of pytest-passbench"
