"""Eager's built programs, kept from one candidate's case to the next on the same subgraph.

Only programs are kept, in sandboxes that no candidate's code runs in. Each case has new inputs, forks new runners,
and times eager beside its candidate.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.inputs.pages import Pages

MAX_PROGRAMS = 32  # subgraphs. Each has up to two processes and five open files
MAX_PAGES_BYTES = 1 << 30  # of the input pages of all of them


@dataclass(frozen=True)
class Built:
    """Eager's templates of a subgraph, by arm, and the input pages that they have mapped.

    Without a template for float64, the graph has no float64 form.
    """

    pages: Pages
    templates: dict[str, Template]

    @property
    def alive(self) -> bool:
        """True if every template can still be asked for runners."""
        return all(template.lasts for template in self.templates.values())


@dataclass
class Programs:
    """The kept programs of a judge, by the content of the subgraph. Those used longest ago go first.

    ``enabled`` is False for a judge that keeps none.
    """

    enabled: bool = False
    _built: dict[str, Built] = field(default_factory=dict)

    def of(self, case: Case, arm: Arm) -> Built | None:
        """Return the programs of the case's subgraph in eager's sandbox ``arm``; None if there are none."""
        key = _key(case)
        built = self._built.pop(key, None)
        if built is None:
            return None
        if not built.alive or any(template.arm is not arm for template in built.templates.values()):
            _end(built)
            return None
        self._built[key] = built  # the latest
        return built

    def keep(self, case: Case, built: Built) -> None:
        """Keep the programs of a subgraph, which live on in their sandbox. End others if there are too many."""
        key = _key(case)
        if key in self._built:
            _end(self._built.pop(key))
        self._built[key] = built
        while len(self._built) > MAX_PROGRAMS or (len(self._built) > 1 and self._bytes() > MAX_PAGES_BYTES):
            _end(self._built.pop(next(iter(self._built))))

    def _bytes(self) -> int:
        return sum(built.pages.layout.size for built in self._built.values())

    def close(self) -> None:
        """End all programs that are kept."""
        while self._built:
            _end(self._built.popitem()[1])


def _end(built: Built) -> None:
    for template in built.templates.values():
        template.end()
    built.pages.close()


def _key(case: Case) -> str:
    """Return a hash of all that eager's programs and their input pages are made of."""
    subgraph, task = case.subgraph, case.task
    parts = task.graphs[subgraph.graph], task.path.name, subgraph.graph, subgraph.dtype, subgraph.inputs
    return hashlib.sha256(repr(parts).encode()).hexdigest()
