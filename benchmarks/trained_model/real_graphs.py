"""Graphs of the data set that fit: whole rows, and runs of statements inside longer rows, at their shapes there."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pytest_passbench.dataset.rows import GraphRow
from trained_model.graphs import LARGEST, SMALLEST, Unfit, check, runs, statements

NAMESPACE = {"torch": torch, "operator": operator, "device": torch.device, "inf": float("inf"), "nan": float("nan")}
FLOATS = {torch.float32, torch.bfloat16, torch.float16}
TRIES = 4
"""How many rows that have the same run are tried at most, until the run fits at a row's shapes."""
POSITIVE = {"mean": 2.0, "std": 0.5, "min": 0.5, "max": 4.0}
"""Statistics of inputs without recorded ones, in a graph that takes a logarithm or a root, or divides by a value."""


def real_graphs(rows: Iterable[GraphRow]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the graphs that fit, with inputs and families, by their texts; and the reasons why others do not."""
    fits: dict[str, dict[str, Any]] = {}
    tries: dict[str, int] = {}
    families: dict[str, set[str]] = {}
    reasons: list[str] = []
    for row in rows:
        shapes: dict[str, tuple[int, ...]] | None = None
        for source, names in candidates(row, reasons):
            families.setdefault(source, set()).update(row.families)
            if source in fits or tries.get(source, 0) >= TRIES:
                continue
            tries[source] = tries.get(source, 0) + 1
            shapes = values_shapes(row) if shapes is None else shapes
            inputs = [{"name": new, "shape": list(shapes.get(old, ()))} for new, old in names.items()]
            if suits(source, inputs, reasons):
                fits[source] = {"inputs": with_statistics(source, inputs, row, names)}
    return {source: {**data, "families": sorted(families[source])} for source, data in fits.items()}, reasons


def candidates(row: GraphRow, reasons: list[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the texts in a row that may fit, with the row's names of their inputs."""
    try:
        statements(row.source)
        yield row.source, {item["name"]: item["name"] for item in row.inputs}
    except Unfit as error:
        reasons.append(str(error))
    yield from runs(row.source)


def suits(source: str, inputs: list[dict[str, Any]], reasons: list[str]) -> bool:
    """Return True if a graph fits with these inputs; a reason is added if not."""
    shapes = {item["name"]: tuple(item["shape"]) for item in inputs}
    try:
        check(source, shapes)
    except Unfit as error:
        reasons.append(str(error))
        return False
    largest = max(torch.Size(shape).numel() for shape in shapes.values())
    if not SMALLEST <= largest <= LARGEST:
        reasons.append("too few or too many elements")
        return False
    return True


def values_shapes(row: GraphRow) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a row's contiguous floating-point values, {} if it does not run on fake tensors."""
    names = sorted(set(re.findall(r"\b(?:in|tmp)_\d+\b", row.source)))
    returned = ", ".join(f"{name!r}: {name}" for name in names)
    body = row.source.rpartition("    return")[0] + f"    return {{{returned}}}\n"
    scope: dict[str, Any] = dict(NAMESPACE)
    try:
        exec(body, scope)  # a text of the project's own data set
        with FakeTensorMode(), torch.no_grad():
            tensors = [torch.empty(item["shape"], dtype=getattr(torch, item["dtype"])) for item in row.inputs]
            values = scope["forward"](*tensors)
    except Exception:  # an operator whose result depends on values
        return {}
    return {
        name: tuple(value.shape)
        for name, value in values.items()
        if isinstance(value, torch.Tensor) and value.dtype in FLOATS and value.is_contiguous()
    }


def with_statistics(
    source: str, inputs: list[dict[str, Any]], row: GraphRow, names: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the inputs with statistics: the row's for its own inputs, else positive ones if the graph needs them."""
    recorded = {item["name"]: item for item in row.inputs}
    calls = [item.call for item in statements(source)]
    divides = any(call.name == "div" and len(call.tensors) > 1 for call in calls)
    positive = divides or any(call.name in ("log", "sqrt", "rsqrt") for call in calls)
    result = []
    for item in inputs:
        data = recorded.get(names[item["name"]])
        statistics = {key: data[key] for key in POSITIVE} if data else POSITIVE if positive else {}
        result.append({**item, **statistics})
    return result
