"""The dependence of a row's input shapes on the batch b and the size n of its model."""

from __future__ import annotations

import json
import re

from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.suite.sizes import Point, dimensions

_VARIANT = re.compile(r"b(\d+)n(\d+)")


def sizes(row: GraphRow) -> list[list[str]] | None:
    """Return an expression in ``b`` and ``n`` for each dimension of each input; None if there is none.

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
