"""A run and an earlier one that is stored: are they comparable, and what does the earlier one say of a subgraph?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.ladder import right_at
from pytest_passbench.core.record import Key, Record, Stored
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import same_in
from pytest_passbench.report import changes, run_text
from pytest_passbench.run import results_file

#: Entries of the environment whose change may change eager itself.
MACHINE = ("cpu", "cores", "gpu", "torch")


@dataclass(frozen=True)
class StoredRun:
    """An earlier run, and its candidate for each of the present run's, by name (``names``).

    ``limit`` is the greatest share of a speed-up that may be lost. With ``strict``, an open answer is a failure.
    """

    path: Path
    run: Run
    names: Mapping[str, str]
    limit: float = 0.0
    strict: bool = False

    @cached_property
    def _records(self) -> dict[Key, Record]:
        return {record.key: record for record in self.run.records}

    def put(self, record: Record) -> None:
        """Put into a record what the earlier run says of its subgraph, if anything."""
        name = self.names.get(record.candidate)
        then = self._records.get((record.task, name, record.subgraph)) if name is not None else None
        if then is not None:
            record.stored = stored(then, record)

    def doubtful(self, record: Record) -> bool:
        """Return True if a record's case fails unless a confirming measurement says otherwise."""
        confirmed = record.stored is not None and record.stored.again is not None
        return not confirmed and changes.doubtful(record, self.limit, self.strict)

    def regressed(self, record: Record) -> bool:
        """Return True if a speed-up fell by more than the limit, confirmed."""
        return changes.regressed(record, self.limit, self.strict)

    def describe(self, environment: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the results file keeps of the earlier run, JSON-ready. ``environment`` is the present run's."""
        names = dict.fromkeys(self.names.values())
        left_out = filter(None, (run_text.left_out_sentence(self.run, name) for name in names))
        return {
            "file": str(self.path),
            "digest": self.run.digest,
            "started": self.run.started,
            "candidates": dict(self.names),
            "noise": {name: self.run.noise[name] for name in ("delta", "offset") if name in self.run.noise},
            "subgraphs": sum(record.candidate in names for record in self.run.records),
            "warnings": [*warnings(self.run, environment), *(f"In the earlier run {text}" for text in left_out)],
        }


def read(path: Path) -> tuple[Path, Run]:
    """Return the earlier run in a results file or its folder, with the file's path.

    Raises UserError for another file, and for one that was changed after it was written.
    """
    path = results_file.located(path)
    run = results_file.read(path)
    results_file.check_untouched(run, path, "run again")
    return path, run


def matching(path: Path, before: Run, names: Iterable[str]) -> dict[str, str]:
    """Return the earlier run's candidate for each of ``names`` that has one, by name.

    If both runs have a single candidate, these match whatever their names. Raises UserError if none has one.
    """
    now, then = list(names), before.names
    if len(now) == len(then) == 1:
        return {now[0]: then[0]}
    common = {name: name for name in now if name in then}
    if not common:
        what = f"has no candidate of the same name: {', '.join(then) or 'none'}, not {', '.join(now) or 'none'}"
        raise UserError(what, where=path, remedy="compare runs of one candidate each, or of the same names")
    return common


def check(path: Path, before: Run, settings: Mapping[str, Any], editions: Iterable[str]) -> None:
    """Raise UserError if an earlier run is not comparable with one of these settings and editions of the suite."""
    for name in same_in("compare"):
        then, now = before.settings.get(name), settings.get(name)
        if then is not None and now is not None and then != now:
            what = f"is not comparable: {name} was {then} and is {now}"
            raise UserError(what, where=path, remedy=f"compare with a run of the same {name}")
    now_judged, then_judged = sorted(set(editions)), sorted(before.editions)
    if now_judged and then_judged and now_judged != then_judged:
        what = f"is not comparable: edition {', '.join(then_judged)} of the suite, and these tasks are of edition "
        raise UserError(what + ", ".join(now_judged), where=path, remedy="compare with a run of the same edition")


def warnings(before: Run, environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each difference that leaves only ratios to eager to be compared."""
    then = before.environment
    differ = [name for name in MACHINE if name in then and name in environment and then[name] != environment[name]]
    if differ:
        differences = ", ".join(f"{name} was {then[name]} and is {environment[name]}" for name in differ)
        yield f"The earlier run is of another machine ({differences}): only ratios to eager are compared."
    if before.interrupted:
        yield "The earlier run was interrupted: it does not have all subgraphs."


def stored(then: Record, now: Record) -> Stored:
    """Return what an earlier record says of a subgraph. It is correct by the criterion and t of the present one."""
    result = Stored(then.arm.status, right_at(*then.levels(now.criterion), now.tolerance))
    if then.arm.speed is not None:
        result.speed = replace(then.arm.speed, pairs=[])
    if then.edition and now.edition and then.edition != now.edition:
        result.note = "another edition"
    elif then.task_hash and now.task_hash and then.task_hash != now.task_hash:
        result.note = "another task of the same name"
    elif not then.judged:
        result.note = "not judged before"
    return result


def confirmed(record: Record, confirmation: Record) -> Record:
    """Return a record with its confirming measurement, or the confirming record if its answer is wrong."""
    assert record.stored is not None
    if confirmation.judged and not confirmation.correct:
        return replace(confirmation, stored=record.stored)
    return replace(record, stored=replace(record.stored, again=confirmation.arm.speed))


def compared(path: Path, before: Run, after: Run) -> Run:
    """Return a run with what an earlier one says of its subgraphs. Raises UserError if they are not comparable."""
    check(path, before, after.settings, after.editions)
    earlier = StoredRun(path, before, matching(path, before, after.names))
    records = [replace(record, stored=None) for record in after.records if record.candidate in earlier.names]
    for record in records:
        earlier.put(record)
    listed = [item for item in after.candidates if item.get("name") in earlier.names]
    return replace(after, records=records, candidates=listed, compared=earlier.describe(after.environment))
