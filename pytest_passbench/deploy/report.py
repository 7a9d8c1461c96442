"""What passes did in a user's program: the graphs that they were applied to, and what was left to eager."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tabulate import tabulate

from pytest_passbench.core.plurals import counted


@dataclass
class AppliedGraph:
    """A graph that ``torch.compile`` handed over.

    ``operators`` are the names of its operators, ``covered`` those that kernels replace. ``matches`` has the number
    of matches by pass. ``notes`` say what was left to eager, and why.
    """

    operators: list[str] = field(default_factory=list)
    covered: list[str] = field(default_factory=list)
    matches: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass
class DeploymentReport:
    """The graphs of a program in the order in which they were compiled. Its text is a table for a terminal."""

    graphs: list[AppliedGraph] = field(default_factory=list)

    @property
    def matches(self) -> Counter[str]:
        """The number of matches by pass, over all graphs."""
        return sum((Counter(graph.matches) for graph in self.graphs), Counter())

    @property
    def left(self) -> Counter[str]:
        """The operators that no kernel replaces, with the number of their calls."""
        return sum((Counter(graph.operators) - Counter(graph.covered) for graph in self.graphs), Counter())

    def __str__(self) -> str:
        operators = sum(len(graph.operators) for graph in self.graphs)
        covered = sum(len(graph.covered) for graph in self.graphs)
        lines = [f"{counted(len(self.graphs), 'graph')}; kernels replace {covered} of {operators} operators"]
        if self.matches:
            lines.append(tabulate(self.matches.most_common(), headers=["pass", "matches"]))
        if self.left:
            calls = ", ".join(f"{name} ({count})" for name, count in self.left.most_common(10))
            lines.append(f"left to eager: {calls}")
        lines += dict.fromkeys(note for graph in self.graphs for note in graph.notes)
        return "\n".join(lines)
