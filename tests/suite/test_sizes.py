"""Maps of sizes: which further batches and sizes follow from a task's subgraphs."""

from __future__ import annotations

import random

import pytest

from pytest_passbench.suite import find
from pytest_passbench.suite.sizes import NoMap, SizeMap, at, draws, size_map
from pytest_passbench.suite.taskfile import read_task

PATHS = sorted(find.installed_tasks().rglob("*.task.yaml"))[::12]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name.removesuffix(".task.yaml"))
def test_at_a_recorded_size_a_map_gives_back_what_was_recorded(path):
    task = read_task(path)
    for subgraph in task.subgraphs:
        sizes = size_map(task, subgraph)
        if isinstance(sizes, NoMap):
            assert sizes.reason
            continue
        assert at(sizes, sizes.recorded[0]) == (task.graphs[subgraph.graph], subgraph)
        for point in sizes.recorded[1:]:
            text, there = at(sizes, point)
            shapes = [spec.shape for spec in there.inputs]
            assert any(
                task.graphs[item.graph] == text and [spec.shape for spec in item.inputs] == shapes
                for item in task.subgraphs
                if item.source == there.source and item.dtype == subgraph.dtype
            )


@pytest.mark.parametrize("seed", range(5))
def test_drawn_sizes_are_new_and_within_bounds(seed):
    path = next(path for path in find.installed_tasks().rglob("relu-square-e1cb.task.yaml"))
    task = read_task(path)
    sizes = next(
        item for item in (size_map(task, subgraph) for subgraph in task.subgraphs) if isinstance(item, SizeMap)
    )
    points = draws(sizes, random.Random(seed))
    for _, (point, _text, subgraph) in zip(range(5), points, strict=False):
        assert point not in sizes.recorded
        assert subgraph.elements <= 2 * sizes.largest
        assert subgraph.inputs[0].shape != sizes.subgraph.inputs[0].shape


def test_a_part_of_a_task_has_the_maps_of_the_whole():
    task = read_task(next(path for path in find.installed_tasks().rglob("relu-square-e1cb.task.yaml")))
    for subgraph in task.subgraphs:
        part = task.part({subgraph.id})
        assert part.subgraphs == (subgraph,)
        assert size_map(part, subgraph) == size_map(task, subgraph)
