"""Splits: what is held out for a last test and for validation, by normal form, sequence of operators and family.

A real graph that an architecture of a held-out family has is held out. So is every random graph with the form or the
sequence of a held-out one, and a share of the random sequences. A real graph that is held out by its form or
sequence alone, while its families are trained on, is left out of all splits.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from trained_model.graphs import Graph

FAMILIES = {"test": 0.12, "validation": 0.08}
"""The shares of architecture families that are held out."""
SEQUENCES = {"test": 0.06, "validation": 0.04}
"""The shares of the random graphs' sequences that are held out."""


def share(text: str, shares: dict[str, float]) -> str:
    """Return the split that a text's hash falls into, "train" if it is not held out."""
    place = int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) / 16**8
    for name, size in shares.items():
        if place < size:
            return name
        place -= size
    return "train"


def assign(graphs: Sequence[Graph]) -> Counter[str]:
    """Set the split of each graph, and return how many each has. "" stands for those that are left out."""
    for graph in graphs:
        held = {share(family, FAMILIES) for family in graph.families}
        graph.split = next((name for name in ("test", "validation") if name in held), "train")
        if graph.origin == "random":
            graph.split = share(graph.sequence, SEQUENCES)
    for name, others in (("test", ("validation", "train")), ("validation", ("train",))):
        words = {word for graph in graphs if graph.split == name for word in marks(graph)}
        for graph in graphs:
            if graph.split in others and words & marks(graph):
                graph.split = name if graph.origin == "random" else ""
        apart = {word for graph in graphs if graph.split == name for word in marks(graph)}
        for graph in graphs:  # one that was added for its sequence may have the form of another
            if graph.split in others and apart & marks(graph):
                graph.split = ""
    return Counter(f"{graph.origin} {graph.split or 'left out'}" for graph in graphs)


def marks(graph: Graph) -> set[str]:
    """Return what two graphs of different splits must not have in common."""
    return {f"form {graph.form}", f"sequence {graph.sequence}"}


def leaks(graphs: Sequence[Graph]) -> list[str]:
    """Return what stands in two splits: forms, sequences, and held-out families that are trained on."""
    places: dict[str, set[str]] = {}
    for graph in graphs:
        for word in marks(graph) if graph.split else ():
            places.setdefault(word, set()).add(graph.split)
    twice = [word for word, splits in places.items() if len(splits) > 1]
    train = {family for graph in graphs if graph.split == "train" for family in graph.families}
    return twice + [f"family {family}" for family in sorted(train) if share(family, FAMILIES) != "train"]
