"""The table of the architectures that a build tried: the graphs that each has, its CPU time, or why it failed.

With the shards it holds all of a build, so a build can go on from a data set that came without its captures.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.dataset import shards
from pytest_passbench.dataset.build import cases_by_file
from pytest_passbench.dataset.rows import CaseRows, GraphRow
from pytest_passbench.forge.jobs import FAILED

FILE = "architectures.parquet"


def write(captures: Path, out: Path) -> None:
    """Write the table of the build in the folder ``captures``: first those that were captured, in their order."""
    cases = [(path, case, "") for path, case in cases_by_file(captures)]
    for path in sorted(captures.glob(f"*{FAILED}")):
        name = path.stem.replace("__", "/", 1)
        cases.append((path, CaseRows(name, name.partition("/")[0], "", 0), path.read_text(encoding="utf-8")))
    pyarrow = shards.arrow()
    table = pyarrow.Table.from_pylist([
        {"file": path.stem, "architecture": case.architecture, "library": case.library, "family": case.family,
         "position": case.position, "seconds": case.seconds, "graphs": case.ids,
         "refused": json.dumps(case.refused, sort_keys=True), "failure": failure}
        for path, case, failure in cases
    ])  # fmt: skip
    pyarrow.parquet.write_table(table, out / FILE, compression="zstd", compression_level=12)


def restore(out: Path, captures: Path) -> int:
    """Write the captures of a data set that has none, from its table and its shards. Return how many there are.

    Return 0 if the captures are there, or no table is. Raises UserError if a file is not that of a data set.
    """
    if captures.exists() or not (out / FILE).exists():
        return 0
    pyarrow, rows = shards.arrow(), defaultdict[str, list[GraphRow]](list)
    try:
        records = pyarrow.parquet.read_table(out / FILE).to_pylist()
        files = [(record["file"], record["failure"], _case(record)) for record in records]
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise UserError("is no table of architectures", where=out / FILE,
                        remedy="remove it: the build then begins anew") from error  # fmt: skip
    for row in shards.read(out):
        rows[row.architecture].append(row)
    part = captures.with_name(f"{captures.name}.part")  # a build that finds captures takes them for all there are
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for place, (name, failure, case) in enumerate(files):
        path = part / f"{name}{FAILED if failure else '.json'}"
        case.rows = rows[case.architecture]
        write_text(path, failure or json.dumps(asdict(case)))
        os.utime(path, ns=(place, place))  # a build reads its captures in the order of their times
    part.rename(captures)
    return len(files)


def _case(record: dict[str, Any]) -> CaseRows:
    plain = {name: record[name] for name in ("architecture", "library", "family", "position", "seconds")}
    return CaseRows(**plain, ids=list(record["graphs"]), refused=json.loads(record["refused"]))
