"""Whether the committed tasks can be made again from a fresh capture of an architecture."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_passbench.core.task import Task
from pytest_passbench.forge.corpus import capture_case
from pytest_passbench.forge.curate import draw
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.normal_form import canonical_source, digest
from pytest_passbench.forge.windows import matching
from pytest_passbench.suite.build import build_graph


@dataclass(frozen=True)
class Verified:
    """The result for one architecture: how many committed subgraphs were made again, and the names of the others."""

    case: str
    same: int
    missing: tuple[str, ...]


def verify(case: ModelCase, tasks: Sequence[Task]) -> Verified:
    """Capture ``case`` anew, cut the operators of every task that names it, and compare the hashes."""
    case_tasks = [task for task in tasks if case.name in task.header.sources]
    graphs = capture_case(case)
    windows = list(matching(graphs, {task.header.ops for task in case_tasks}))
    keys = {instance.key for instance in draw(windows, {case.name: graphs})}
    reproduced = []
    for task in case_tasks:
        case_subgraphs = {s.id for s in task.subgraphs if s.source.startswith(f"{case.name} (")}
        reproduced += [(key, f"{task.id}/{name}") for key, name in identities(task) if name in case_subgraphs]
    missing = tuple(name for key, name in reproduced if key not in keys)
    return Verified(case.name, len(reproduced) - len(missing), missing)


def identities(task: Task) -> Iterator[tuple[str, str]]:
    """Yield a hash per subgraph, which no renaming of values or inputs changes, with the subgraph's id."""
    canonical = functools.cache(lambda key: canonical_source(build_graph(task.graphs[key], str(task.path))))
    for subgraph in task.subgraphs:
        shapes = [f"{spec.shape}{spec.dtype}" for spec in subgraph.inputs]
        yield digest([canonical(subgraph.graph), *shapes]), subgraph.id
