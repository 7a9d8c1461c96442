"""Going on with a run that was interrupted: nothing is judged twice, and the result is that of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import LATEST
from pytest_passbench.run import journal


def find(given: str, report_dir: Path, base: Path) -> Path:
    """Return the folder of a run to go on with: ``given``, relative to ``base``, or the latest in ``report_dir``.

    Raises UserError if there is none.
    """
    if given != LATEST:
        return base / given
    found = sorted({path.parent for path in report_dir.glob("*/journal*.jsonl")}, key=lambda path: path.name)
    if not found:
        raise UserError("has no run that was interrupted", where=report_dir, remedy="run without --passbench-resume")
    return found[-1]


def check(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise UserError if the run in ``folder`` was of something else than the run that is to go on with it.

    ``old`` and ``new`` are headers, as :meth:`~pytest_passbench.run.ledger.Ledger.header` makes them.
    """
    changed = list(_differences(old, new))
    if changed:
        remedy = "give the same candidate and options as before, or run without --passbench-resume"
        raise UserError(f"cannot be resumed: {'; '.join(changed)}", where=folder, remedy=remedy)


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    before, now = old.get("settings", {}), new["settings"]
    for name in now:
        if before.get(name) != now[name]:
            yield f"{name} was {before.get(name)!r} and is {now[name]!r}"
    known, present = old.get("candidates", {}), new["candidates"]
    if list(known) != list(present):
        yield f"the candidates were {', '.join(known)} and are {', '.join(present)}"
    else:
        for name in present:
            if known[name] != present[name]:
                yield f"the files of the candidate {name} have changed"
    if old.get("seed") != new["seed"]:
        yield "the seed is another one"
    if old.get("harness") != new["harness"]:
        yield "this is another version of pytest-passbench"


def records(folder: Path) -> tuple[dict[str, Any], dict[tuple[str, str, str], Record]]:
    """Return a journal's header, and its last record of each task, candidate and subgraph. Raises UserError."""
    found = journal.read(folder)
    return found.header, {(record.task, record.candidate, record.subgraph): record for record in found.records}
