"""Controls: retrieval without learning, and the teacher as a ceiling."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trained_model.graphs import Graph


def nearest(graph: Graph, pairs: Sequence[tuple[Graph, str]]) -> str:
    """Return the answer to the training graph that is nearest by edit distance of operators.

    Of several, one with as many inputs is taken first, then one whose text is most alike. The graph's own text
    replaces the pattern's, as anybody who looks an answer up would do; the kernel stays as it is.
    """
    least = min(distance(graph.operators, other.operators) for other, _ in pairs)
    close = [pair for pair in pairs if distance(graph.operators, pair[0].operators) == least]
    words = set(re.findall(r"\S+", graph.source))

    def order(pair: tuple[Graph, str]) -> tuple[bool, int, str]:
        other = pair[0]
        alike = len(words & set(re.findall(r"\S+", other.source)))
        return len(other.inputs) != len(graph.inputs), -alike, other.id

    other, text = min(close, key=order)
    return with_pattern(text, other, graph)


def with_pattern(text: str, other: Graph, graph: Graph) -> str:
    """Return an answer with the pattern of another graph, if it takes as many inputs; else as it is."""
    if len(other.inputs) != len(graph.inputs):
        return text
    old, new = ("\n".join(item.source.strip().splitlines()[1:]) for item in (other, graph))
    return text.replace(old, new)


def distance(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the edit distance of two sequences."""
    row = list(range(len(right) + 1))
    for number, word in enumerate(left, 1):
        before, row[0] = row[0], number
        for place, other in enumerate(right, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != other))
    return row[-1]
