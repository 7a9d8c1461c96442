"""``results.json``: written at once or not at all, and read with one clear message for a file that is not ours."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import STATUSES, ArmResult
from pytest_passbench.core.run import SCHEMA, Run, digest, plain
from pytest_passbench.run.form import faults
from pytest_passbench.run.old_schema import SCHEMA_1, upgraded
from pytest_passbench.score.subgraph import possible

NAME = "results.json"
MAX_SUBGRAPHS = 100_000  # of a task


def write(folder: Path, run: Run) -> None:
    """Write ``folder/results.json``, making the folder; a reader sees the old file or the whole new one.

    Raises UserError if the folder cannot be written to.
    """
    write_file(Path(folder) / NAME, run)


def write_file(path: Path, run: Run) -> None:
    """Write the run to a file of any name, as :func:`write` does."""
    write_text(path, json.dumps(plain(run.to_json()), indent=1, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write one report file atomically: a temporary file beside it, then a rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs that write the same report must not write the same temporary file.
        part = path.with_name(f".{path.name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        remedy = "choose another folder for the report, one that you may write to"
        raise UserError(f"cannot be written: {error.strerror}", where=path, remedy=remedy) from error


def read(path: Path) -> Run:
    """Return the run in a results file, or in its folder. Raises UserError for any other file."""
    path = Path(path)
    path = path / NAME if path.is_dir() else path
    return parse(load(path), path)


def load(path: Path) -> Any:
    """Return the JSON in a file. Raises UserError if it is missing, unreadable or cut short."""
    try:
        return json.loads(path.read_text(encoding="utf-8"), object_hook=decode_special)
    except FileNotFoundError:
        remedy = "give the results.json of a run: reports/<run>/results.json"
        raise UserError("no such file", where=path, remedy=remedy) from None
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path, remedy="check the path") from error
    except UnicodeDecodeError:
        raise UserError("is not text", where=path, remedy="give a results.json") from None
    except json.JSONDecodeError as error:
        place = f"{path}:{error.lineno}"
        remedy = "the file is cut short or was edited; take a fresh copy, or run again"
        raise UserError(f"is not JSON: {error.msg}", where=place, remedy=remedy) from None


def parse(data: Any, path: Path) -> Run:
    """Return the run in ``data``, which was read from ``path``. Raises UserError for another form."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema not in (SCHEMA, SCHEMA_1):
        remedy = "give a results.json that this version of passbench wrote"
        raise UserError(f"has schema {schema!r}, not {SCHEMA!r}", where=path, remedy=remedy)
    remedy = "the file was edited or is of another version; take a fresh copy, or run again"
    try:
        run = Run.from_json(upgraded(data) if schema == SCHEMA_1 else data)
        run.untouched = run.digest == digest(data)
    except KeyError as error:
        raise UserError(f"lacks {error}", where=path, remedy=remedy) from None
    except (TypeError, AttributeError, ValueError) as error:
        raise UserError(f"has another form: {error}", where=path, remedy=remedy) from None
    for fault in faults(run, Run, ""):
        raise UserError(fault, where=path, remedy=remedy)
    for name, counts in run.selected.items():
        if any(not 0 <= count <= MAX_SUBGRAPHS for count in counts.values()):
            raise UserError(f"selected.{name} has an impossible number of subgraphs", where=path, remedy=remedy)
    for index, record in enumerate(run.records):
        for arm in (record.arm, *record.baselines.values()):
            for fault in _impossible(arm):
                raise UserError(f"records[{index}] has {fault}", where=path, remedy=remedy)
    return run


def _impossible(arm: ArmResult) -> Iterator[str]:
    """Yield what in an arm has the right type but an impossible value."""
    if arm.status not in STATUSES:
        yield f"the unknown status {arm.status!r}"
    speed = arm.speed
    if speed is None:
        return
    if not possible(speed.ratio):
        yield f"the speed-up {speed.ratio!r}"
    if not 0.0 <= speed.low <= speed.high:
        yield f"the interval {speed.low!r} to {speed.high!r}"


def decode_special(data: dict[str, Any]) -> Any:
    """Return an object of JSON, or the float that :func:`~pytest_passbench.core.run.plain` wrote as one."""
    if data.keys() == {"float"} and data["float"] in ("nan", "inf", "-inf"):
        return float(data["float"])
    return data
