"""The merging of shards' results into one run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Key
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import Settings, same_in
from pytest_passbench.run.results_file import check_untouched

MAY_DIFFER = {setting.name for setting in fields(Settings)}.difference(same_in("merge"))


def merge(shards: Sequence[tuple[Path, Run]]) -> Run:
    """Return the shards' records as one run, in the order given; each path is only for messages and ``parts``.

    Raises UserError if a file was changed after it was written. It does so too if settings, candidates or the suite's
    edition differ, or if two files have the same subgraph of the same candidate.
    """
    first_path, first = shards[0]
    for path, run in shards:
        _check_same(first_path, first, path, run)
    _check_apart(shards)
    runs = [run for _, run in shards]
    return Run(
        settings={name: value for name, value in first.settings.items() if name != "shard"},
        environment=common([run.environment for run in runs]),
        tasks=list(dict.fromkeys(task for run in runs for task in run.tasks)),
        records=[record for run in runs for record in run.records],
        candidates=first.candidates,
        against=first.against,
        compared=first.compared,
        # That of the noisiest shard: merging must make no interval narrower.
        noise=max((run.noise for run in runs), key=lambda noise: float(noise.get("width", 0.0))),
        started=min((run.started for run in runs), key=_moment),
        finished=max((run.finished for run in runs), key=_moment),
        interrupted=any(run.interrupted for run in runs),
        parts=[part for path, run in shards for part in _parts(path, run)],
        hashes=_hashes(runs),
        selected={
            name: {task: count for run in runs for task, count in run.selected.get(name, {}).items()}
            for name in dict.fromkeys(name for run in runs for name in run.selected)
        },
    )


def _hashes(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the hash of every task, and that of the harness if all shards had the same."""
    tasks = {name: value for run in runs for name, value in run.hashes.get("tasks", {}).items()}
    harness = {str(run.hashes.get("harness", "")) for run in runs}
    editions = sorted({edition for run in runs for edition in run.editions})
    return {"tasks": tasks, "harness": harness.pop() if len(harness) == 1 else "", "editions": editions}


def _check_same(first_path: Path, first: Run, path: Path, run: Run) -> None:
    check_untouched(run, path, "run that shard again")
    for name in sorted({*first.settings, *run.settings} - MAY_DIFFER):
        if first.settings.get(name) != run.settings.get(name):
            what = f"has {name} = {run.settings.get(name)!r}, {first_path} has {first.settings.get(name)!r}"
            raise UserError(what, where=path, remedy="merge runs with the same settings")
    if first.editions and run.editions and first.editions != run.editions:
        edition, other = (", ".join(shard.editions) for shard in (run, first))
        what = f"judged edition {edition} of the suite, {first_path} edition {other}"
        raise UserError(what, where=path, remedy="merge runs of one edition")
    if _contents(first) != _contents(run):
        what = f"judged other candidates than {first_path}: {_described(run)}, not {_described(first)}"
        raise UserError(what, where=path, remedy="merge runs of the same candidates")
    if first.against.get("content_hash") != run.against.get("content_hash"):
        what = f"was measured against another reference than {first_path}"
        raise UserError(what, where=path, remedy="merge runs against the same reference")
    if first.compared.get("digest") != run.compared.get("digest"):
        what = f"was compared with another run than {first_path}"
        raise UserError(what, where=path, remedy="merge runs that were compared with the same one")


def _contents(run: Run) -> dict[str, str]:
    return {str(item.get("name")): str(item.get("content_hash")) for item in run.candidates}


def _described(run: Run) -> str:
    return ", ".join(f"{name} ({content[:12]})" for name, content in _contents(run).items()) or "none"


def _check_apart(shards: Sequence[tuple[Path, Run]]) -> None:
    judged_in: dict[Key, Path] = {}
    for path, run in shards:
        for record in run.records:
            if record.key in judged_in:
                what = f"has {record.task}::{record.subgraph} of {record.candidate}, as {judged_in[record.key]} has"
                raise UserError(what, where=path, remedy="give every shard once")
            judged_in[record.key] = path


def common(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what is the same in all of these dictionaries."""
    first = values[0]
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in values)
    }


def _moment(text: str) -> float:
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


def _parts(path: Path, run: Run) -> list[dict[str, Any]]:
    """Return what the merged file keeps of one input: its environment, digest, seed and noise."""
    if run.parts:
        return run.parts
    identity = {"file": path.name, "digest": run.digest, "started": run.started, "finished": run.finished}
    about = {"environment": run.environment, "noise": run.noise, "seed": run.seed}
    return [{**identity, **about, "tasks": run.tasks, "shard": run.settings.get("shard")}]
