"""Rows of a data set, drawn at random: does each build, run, give finite values, and repeat them unless it is marked?

Whole graphs also run with the model's own weights and inputs. They must give the model's own outputs::

    python benchmarks/dataset_rows.py DIR --rows 500
"""

from __future__ import annotations

import argparse
import random
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.dataset import shards
from pytest_passbench.dataset.architectures import Architecture, libraries
from pytest_passbench.dataset.extract import instance_of
from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.forge import rules
from pytest_passbench.suite.build import build_graph

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


def fault_of(row: GraphRow) -> str:
    """Return what is wrong with a row, by the rules of the data set; "" for nothing."""
    probe = instance_of(row).probe()
    try:
        complaints = [text for rule in (rules.finite, rules.constant_outputs) for text in rule(probe)]
        if "deterministic" not in row.marks:
            complaints += rules.deterministic(probe)
    except Exception as error:  # a row that does not run is what is looked for
        return f"{type(error).__name__}: {error}"
    return "; ".join(complaints)


def differs(row: GraphRow, architecture: Architecture) -> str | None:
    """Return how a whole graph's outputs differ from the model's own, "" if they do not; None if it was not compared.

    A graph with an input that is no parameter, buffer or argument of the model is not compared. Neither is a graph of
    a model whose result has no tensors.
    """
    model = architecture.case.build()
    variant = next(item for item in architecture.case.variants if item.label == row.variant)
    inputs = architecture.case.inputs(model, variant)
    arguments: dict[str, Any] = inputs if isinstance(inputs, dict) else {}
    positional = () if isinstance(inputs, dict) else inputs
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    tensors = {name.replace(".", "_"): value for name, value in named.items()}
    free = [value for value in (*positional, *arguments.values()) if isinstance(value, torch.Tensor)]
    values = []
    for data in row.inputs:
        name = (data["original_name"] or "").removeprefix("self.").replace(".", "_")
        shape, dtype = tuple(data["shape"]), data["dtype"]
        match = next((value for value in free if _has(value, shape, dtype)), None)
        value = tensors.get(name, match)
        if value is None or not _has(value, shape, dtype):
            return None
        values.append(value)
    with torch.no_grad():
        outputs = build_graph(row.source, row.id)(*(value.clone() for value in values))
        results = _tensors(model(*positional, **arguments))
    if not results:
        return None
    # A part of the model returns some of its results. A graph that fills a cache returns more than the model does.
    if _are_among(outputs, results) or _are_among(results, outputs):
        return ""
    return "neither are its outputs among the model's results, nor these among its outputs"


def _are_among(some: Sequence[torch.Tensor], others: Sequence[torch.Tensor]) -> bool:
    """Return True if each tensor is close to one of the others."""
    return all(
        any(x.shape == y.shape and torch.allclose(x, y, **TOLERANCE) for y in others) for x in some
    )


def _has(value: torch.Tensor, shape: tuple[int, ...], dtype: str) -> bool:
    return tuple(value.shape) == shape and str(value.dtype) == f"torch.{dtype}"


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return all tensors in a model's result."""
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


def main() -> None:
    """Print the counts and each fault."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--models", type=int, default=50, help="whole graphs that are compared with their models")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(shards.read(args.path))
    generator, begin = random.Random(args.seed), time.process_time()
    drawn = generator.sample(rows, min(args.rows, len(rows)))
    faults = {row.id: fault for row in drawn if (fault := fault_of(row))}
    print(f"{len(drawn)} rows ran, {len(faults)} with a fault, {time.process_time() - begin:.0f} CPU s")
    whole = [row for row in rows if row.kind == "whole" and row.dtype == "float32"]
    cases = {item.case.name: item for group in libraries().values() for item in group}
    outcomes: Counter[str] = Counter()
    for row in generator.sample(whole, min(args.models, len(whole))):
        difference = differs(row, cases[row.architecture])
        outcomes["not compared" if difference is None else difference or "equal to the model's"] += 1
        if difference:
            faults[row.id] = f"{row.architecture} {row.variant}: {difference}"
    print("whole graphs:", dict(outcomes))
    for key, fault in faults.items():
        print(key, fault[:200])


if __name__ == "__main__":
    main()
