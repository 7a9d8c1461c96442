"""The stage `judge`: the teacher's answer to each graph, judged once; wrong ones are dropped and counted."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from trained_model.answers import answer
from trained_model.collect import load
from trained_model.files import read
from trained_model.graphs import Graph
from trained_model.judged import judge_all, key_of

JOURNAL = "teacher.jsonl"


def judge_pairs(folder: Path, most: int, held_out: int) -> None:
    """Have the teacher's answers judged: to real train graphs, held-out ones, and ``most`` random train graphs.

    Of each held-out split these are at most ``held_out`` real and as many random graphs.
    """
    judge_all(folder, JOURNAL, ordered(folder, most, held_out))
    print(json.dumps(summary(folder)))


def ordered(folder: Path, most: int, held_out: int) -> Iterator[tuple[Graph, str]]:
    """Yield the pairs to judge in order."""
    parts: dict[tuple[str, str], list[Graph]] = defaultdict(list)
    for graph in load(folder):
        parts[graph.split, graph.origin].append(graph)
    real, train = parts.pop(("train", "real"), []), parts.pop(("train", "random"), [])
    others = [random.Random(0).sample(part, min(held_out, len(part))) for part in parts.values()]
    for graph in chain(real, *others, train[:most]):
        yield graph, answer(graph.source, graph.shapes())


def right_pairs(folder: Path, split: str) -> list[tuple[Graph, str]]:
    """Return the graphs of a split with the teacher's answers that were judged right."""
    verdicts = {row["key"]: row for row in read(folder / JOURNAL)}
    pairs = [(graph, answer(graph.source, graph.shapes())) for graph in load(folder, split)]
    return [pair for pair in pairs if verdicts.get(key_of(*pair), {}).get("right")]


def summary(folder: Path) -> dict[str, object]:
    """Return how many pairs were judged, by split, origin and stage, and the mean seconds."""
    graphs = {graph.id: graph for graph in load(folder)}
    rows = [row for row in read(folder / JOURNAL) if row["graph"] in graphs]
    counts = Counter(f"{graphs[row['graph']].split} {graphs[row['graph']].origin}: {row['stage']}" for row in rows)
    seconds = [row["seconds"] for row in rows if "seconds" in row]
    return {
        "judged": len(rows),
        **dict(sorted(counts.items())),
        "seconds": round(sum(seconds) / max(len(rows), 1), 3),
    }
