"""The splits: what the suite's tasks have is held out; training and validation are apart by architecture family."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_passbench.core.task import Task
from pytest_passbench.dataset import TEST, TRAIN, VALIDATION
from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.forge.normal_form import digest, normal_form
from pytest_passbench.forge.probe import Probe

VALIDATION_SHARE = 0.1


@dataclass(frozen=True)
class HeldOut:
    """The strict forms and the operator sequences of the suite's tasks."""

    forms: frozenset[str]
    operators: frozenset[tuple[str, ...]]

    def has(self, row: GraphRow) -> bool:
        """Return True if a row has one of these forms or operator sequences."""
        return row.form in self.forms or tuple(row.operators) in self.operators


def held_out(tasks: Iterable[Task]) -> HeldOut:
    """Return what these tasks hold out. Each of their graphs is run once."""
    forms, operators = set(), set()
    for task in tasks:
        operators.add(tuple(task.header.ops))
        first = {subgraph.graph: subgraph for subgraph in reversed(task.subgraphs)}
        for subgraph in first.values():
            probe = Probe(task, subgraph)
            forms.add(normal_form(probe.pure, probe.values, sized=False))
    return HeldOut(frozenset(forms), frozenset(operators))


def is_validation(family: str) -> bool:
    """Return True if an architecture family belongs to validation, which the hash of its name decides."""
    return int(digest([family], 8), 16) < VALIDATION_SHARE * 16**8


def assign(rows: Sequence[GraphRow], apart: HeldOut) -> None:
    """Set each row's split. A strict form that a training family has goes to training, even if others have it too."""
    trained = {row.form for row in rows if not all(map(is_validation, row.families))}
    for row in rows:
        row.split = TEST if apart.has(row) else TRAIN if row.form in trained else VALIDATION


def leaks(rows: Iterable[GraphRow], apart: HeldOut) -> Iterator[str]:
    """Yield a sentence for each row that is wrongly in or out of the test split, and for each form in both others."""
    forms: dict[str, Collection[str]] = {}
    for row in rows:
        if (row.split == TEST) != apart.has(row):
            yield f"row {row.id} is in {row.split}, but the suite's tasks {'have' if apart.has(row) else 'lack'} it"
        splits = {*forms.get(row.form, ()), row.split} - {TEST}
        if len(splits) > 1:
            yield f"row {row.id}: its strict form {row.form} is in {' and '.join(sorted(splits))}"
        forms[row.form] = splits
