"""``results.json``: written at once or not at all, and read with one clear message for any other file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.files import kind_of, read_text, write_text
from pytest_passbench.core.jsontext import parse as parse_json
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.run import SCHEMA, Run, digest, plain

NAME = "results.json"
MAX_BYTES = 512 << 20


def write(folder: Path, run: Run) -> None:
    """Write ``folder/results.json``, making the folder; a reader sees the old file or the whole new one.

    Raises UserError if the folder cannot be written to.
    """
    write_file(Path(folder) / NAME, run)


def write_file(path: Path, run: Run) -> None:
    """Write the run to a file of any name, as :func:`write` does."""
    write_text(path, json.dumps(plain(run.to_json()), indent=1, allow_nan=False) + "\n")


def read(path: Path) -> Run:
    """Return the run in a results file, or in its folder. Raises UserError for any other file."""
    path = located(path)
    return parse(load(path), path)


def located(path: Path) -> Path:
    """Return the path of a results file, given that or its folder's."""
    return Path(path) / NAME if kind_of(Path(path)) == "folder" else Path(path)


def load(path: Path) -> Any:
    """Return the JSON in a file. Raises UserError if it is missing, unreadable or cut short."""
    if kind_of(path) is None:
        remedy = "give the results.json of a run: reports/<run>/results.json"
        raise UserError("no such file", where=path, remedy=remedy)
    return parse_json(read_text(path, MAX_BYTES), path, decode_special)


def parse(data: Any, path: Path) -> Run:
    """Return the run in ``data``, which was read from ``path``.

    Raises UserError for data of another form than the published schema's, and for impossible values.
    """
    try:
        from pytest_passbench.run import results_check
    except ModuleNotFoundError as error:
        remedy = f"install {error.name}; only this check needs it"
        raise UserError(f"cannot be checked without the package {error.name}", where=path, remedy=remedy) from None

    version = data.get("schema") if isinstance(data, dict) else None
    if version != SCHEMA:
        remedy = "give a results.json that this version of passbench wrote"
        raise UserError(f"has schema {abbreviated(version)}, not {SCHEMA!r}", where=path, remedy=remedy)
    remedy = "the file was edited or is of another version; take a fresh copy, or run again"
    if problem := results_check.schema_fault(data):
        raise UserError(problem, where=path, remedy=remedy)
    try:
        run = Run.from_data(data)
    except Rejected as error:  # a number such as 3.0 is an integer for the schema
        raise UserError(str(error), where=path, remedy=remedy) from None
    if problem := results_check.fault(run):
        raise UserError(problem, where=path, remedy=remedy)
    run.untouched = run.digest == digest(data)
    return run


def check_untouched(run: Run, path: Path, remedy: str) -> None:
    """Raise UserError if the file that a run was read from was changed after it was written."""
    if not run.untouched:
        raise UserError(
            "was changed after it was written", where=path, remedy=f"take a fresh copy of it, or {remedy}"
        )


def decode_special(data: dict[str, Any]) -> Any:
    """Return an object of JSON, or the float that :func:`~pytest_passbench.core.run.plain` wrote as one."""
    if data.keys() == {"float"} and data["float"] in ("nan", "inf", "-inf"):
        return float(data["float"])
    return data
