"""The shards of a data set: Parquet files for each split, and the card, in the layout of the ``datasets`` library."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.dataset import SPLITS
from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.score.possible import class_of
from pytest_passbench.suite.sizes import Point, dimensions

DATA = "data"
ROWS_PER_SHARD = 50_000
CLASS = "class"
"""The column of the class of operators that decides how fast a graph can be."""
SIZES = "sizes"
"""The column that says how the inputs' shapes depend on the batch and the size."""
AS_JSON = ("inputs", "instances")
"""Columns that hold JSON, since their fields differ from row to row."""
_VARIANT = re.compile(r"b(\d+)n(\d+)")


def arrow() -> Any:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``. Raises UserError if they are not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UserError("pyarrow is not installed", where="dataset",
                        remedy="pip install 'pytest-passbench[dataset]'") from error  # fmt: skip
    return pyarrow


def write(rows: Sequence[GraphRow], out: Path) -> list[Path]:
    """Write the rows of each split in files of their own, in the order of their ids, and return the paths.

    The same rows give the same bytes with one version of pyarrow. Old shards are removed.
    """
    pyarrow, folder = arrow(), out / DATA
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.parquet"):
        path.unlink()
    paths = []
    for split in SPLITS:
        members = sorted((row for row in rows if row.split == split), key=lambda row: row.id)
        chunks = [members[at : at + ROWS_PER_SHARD] for at in range(0, len(members), ROWS_PER_SHARD)]
        for number, chunk in enumerate(chunks):
            path = folder / f"{split}-{number:05d}-of-{len(chunks):05d}.parquet"
            table = pyarrow.Table.from_pylist([_record(row) for row in chunk])
            pyarrow.parquet.write_table(table, path, compression="zstd", compression_level=12)
            paths.append(path)
    return paths


def _record(row: GraphRow) -> dict[str, Any]:
    record = asdict(row)
    texts = {name: json.dumps(record[name], sort_keys=True) for name in AS_JSON}
    return {**record, **texts, CLASS: class_of(row.operators), SIZES: sizes(row)}


def read(out: Path, split: str | None = None) -> Iterator[GraphRow]:
    """Yield the rows of a data set's shards. Raises UserError if there are none, or a file is no shard."""
    pyarrow = arrow()
    paths = sorted((out / DATA).glob(f"{split or '*'}-*.parquet"))
    if not paths:
        raise UserError("has no shards", where=out, remedy="build them: passbench dataset build --out=DIR")
    for path in paths:
        try:
            records = pyarrow.parquet.read_table(path).to_pylist()
            yield from (_row(record) for record in records)
        except (pyarrow.ArrowException, TypeError, KeyError, ValueError) as error:
            raise UserError("is no shard of a data set", where=path, remedy="build the data set again") from error


def _row(record: dict[str, Any]) -> GraphRow:
    del record[CLASS], record[SIZES]  # they follow from the other columns
    return GraphRow(**{**record, **{name: json.loads(record[name]) for name in AS_JSON}})


def sizes(row: GraphRow) -> list[list[str]] | None:
    """Return an expression in the batch ``b`` and the size ``n`` for each dimension of each input, or None.

    There is none if the text was captured at one batch and size only, or no simple expression gives a dimension.
    """
    shapes: dict[Point, list[tuple[int, ...]]] = {_point(row.variant): [tuple(spec["shape"]) for spec in row.inputs]}
    for instance in row.instances:
        if instance["dtype"] == row.dtype:
            shapes.setdefault(_point(instance["variant"]), [_shape(text) for text in instance["inputs"]])
    if len(shapes) < 2 or len({tuple(map(len, parts)) for parts in shapes.values()}) > 1:
        return None
    points = list(shapes)
    forms = [dimensions(points, parts) for parts in zip(*shapes.values(), strict=True)]
    if any(form is None for parts in forms for form in parts):
        return None
    return [[str(form) for form in parts] for parts in forms]


def _point(variant: str) -> Point:
    match = _VARIANT.fullmatch(variant)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _shape(text: str) -> tuple[int, ...]:
    """Return the shape of an instance's input, which is written ``float32[4, 128]``."""
    return tuple(json.loads(text[text.index("[") :]))
