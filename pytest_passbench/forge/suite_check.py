"""``passbench tasks check``: every curation rule on every subgraph of a suite, and the rules between tasks."""

from __future__ import annotations

import functools
import multiprocessing as mp
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.task import Task
from pytest_passbench.forge.canonical import canonical_source, digest
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.rules import complaints
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.find import TaskRef


@dataclass(frozen=True)
class Complaint:
    """An objection of a rule to one subgraph (empty for a whole task)."""

    task: str
    subgraph: str
    text: str

    def __str__(self) -> str:
        place = f"{self.task}/{self.subgraph}" if self.subgraph else self.task
        return f"{place}: {self.text}"


def check(refs: Sequence[TaskRef], processes: int = 1) -> Iterator[Complaint]:
    """Yield every complaint about the tasks, in order; ``processes`` tasks are checked at a time."""
    yield from repeated(refs)
    if processes == 1:
        for ref in refs:
            yield from check_task(ref)
        return
    with mp.get_context("spawn").Pool(processes) as pool:
        for found in pool.imap(_listed, refs):
            yield from found


def _listed(ref: TaskRef) -> list[Complaint]:
    return list(check_task(ref))


def check_task(ref: TaskRef) -> Iterator[Complaint]:
    """Yield the rules' complaints about one task's subgraphs."""
    torch.set_num_threads(1)
    task = ref.load()
    for subgraph in task.subgraphs:
        for text in complaints(Probe(task, subgraph)):
            yield Complaint(task.id, subgraph.id, text)


def repeated(refs: Sequence[TaskRef]) -> Iterator[Complaint]:
    """Yield tasks with the operators of another one, and subgraphs that are another one renamed."""
    owners: dict[tuple[str, ...], str] = {}
    seen: dict[str, str] = {}
    for ref in refs:
        if ref.header.ops and (other := owners.setdefault(ref.header.ops, ref.id)) != ref.id:
            yield Complaint(ref.id, "", f"rename: task {other} has the same operator sequence")
        for key, name in identities(ref.load()):
            if (other := seen.setdefault(key, f"{ref.id}/{name}")) != f"{ref.id}/{name}":
                yield Complaint(ref.id, name, f"rename: the same graph, shapes and dtypes as {other}")


def identities(task: Task) -> Iterator[tuple[str, str]]:
    """Yield a hash per subgraph, which no renaming of values or inputs changes, with the subgraph's id."""
    canonical = functools.cache(lambda key: canonical_source(build_graph(task.graphs[key], str(task.path))))
    for subgraph in task.subgraphs:
        shapes = [f"{spec.shape}{spec.dtype}" for spec in subgraph.inputs]
        yield digest([canonical(subgraph.graph), *shapes]), subgraph.id


def sample(refs: Iterable[TaskRef], share: float) -> list[TaskRef]:
    """Return all lite tasks and ``share`` of the others, by a hash of their ids: the same ones every time."""
    limit = share * 2**32
    return [r for r in refs if "lite" in r.header.tags or zlib.crc32(r.id.encode()) < limit]
