"""Checks of a suite: every curation rule on every subgraph, and the rules between tasks."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.forge.normal_form import normal_form
from pytest_passbench.forge.probe import Probe
from pytest_passbench.forge.rules import complaints
from pytest_passbench.suite import workers
from pytest_passbench.suite.find import TaskRef


@dataclass(frozen=True)
class Complaint:
    """An objection of a rule to one subgraph, or to a whole task if ``subgraph`` is empty."""

    task: str
    subgraph: str
    text: str

    def __str__(self) -> str:
        place = f"{self.task}/{self.subgraph}" if self.subgraph else self.task
        return f"{place}: {self.text}"


@dataclass(frozen=True)
class NormalForms:
    """The normal forms of a subgraph: with its shapes and dtypes, and without."""

    task: str
    subgraph: str
    train: bool
    sized: str
    shapeless: str


def check(refs: Sequence[TaskRef], processes: int = 1) -> Iterator[Complaint]:
    """Yield every complaint about the tasks, in order; ``processes`` tasks are checked at a time."""
    yield from renamed(refs)
    forms: list[NormalForms] = []
    for task_complaints, task_forms in workers.in_order(check_task, refs, processes, __name__):
        yield from task_complaints
        forms += task_forms
    yield from duplicates(forms)


def check_task(ref: TaskRef) -> tuple[list[Complaint], list[NormalForms]]:
    """Return the rules' complaints about one task's subgraphs, and the normal forms of those that run."""
    torch.set_num_threads(1)
    task = ref.load()
    all_complaints, forms = [], []
    for subgraph in task.subgraphs:
        probe = Probe(task, subgraph)
        subgraph_complaints = [Complaint(task.id, subgraph.id, text) for text in complaints(probe)]
        if not any(complaint.text.startswith("runs:") for complaint in subgraph_complaints):
            forms.append(form_of(probe))
        all_complaints += subgraph_complaints
    return all_complaints, forms


def form_of(probe: Probe) -> NormalForms:
    """Return the normal forms of a subgraph, which is run for its shapes."""
    header = probe.task.header
    sized, shapeless = (normal_form(probe.pure, probe.values, sized) for sized in (True, False))
    return NormalForms(header.id, probe.subgraph.id, "train" in header.tags, sized, shapeless)


def renamed(refs: Sequence[TaskRef]) -> Iterator[Complaint]:
    """Yield a complaint for each task with the operator sequence of an earlier task."""
    owners: dict[tuple[str, ...], str] = {}
    for ref in refs:
        if ref.header.ops and (other := owners.setdefault(ref.header.ops, ref.id)) != ref.id:
            yield Complaint(ref.id, "", f"rename: task {other} has the same operator sequence")


def duplicates(forms: Iterable[NormalForms]) -> Iterator[Complaint]:
    """Yield subgraphs that repeat an earlier one in another spelling, and tasks that do but for shapes and dtypes."""
    same: dict[str, NormalForms] = {}
    alike: dict[str, NormalForms] = {}
    reported: set[tuple[str, str]] = set()
    for form in forms:
        if (other := same.setdefault(form.sized, form)) is not form:
            where = f"{other.task}/{other.subgraph}"
            yield Complaint(form.task, form.subgraph, f"duplicate: the same graph, shapes and dtypes as {where}")
        other = alike.setdefault(form.shapeless, form)
        if other.task != form.task and (other.task, form.task) not in reported:
            reported.add((other.task, form.task))
            split = " of the other split" if other.train != form.train else ""
            yield Complaint(
                form.task, "", f"duplicate: but for shapes and dtypes the graph of task {other.task}{split}"
            )


def sample(refs: Iterable[TaskRef], share: float) -> list[TaskRef]:
    """Return all lite tasks and ``share`` of the others, by a hash of their ids: the same ones every time."""
    limit = share * 2**32
    return [r for r in refs if "lite" in r.header.tags or zlib.crc32(r.id.encode()) < limit]
