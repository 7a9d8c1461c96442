"""The tables of the stage `final`: what the judge said of each arm, with intervals, real and random graphs apart."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from trained_model.files import read
from trained_model.graphs import Graph
from trained_model.judged import key_of
from trained_model.pairs import right_pairs

DRAWS = 2000
FALLBACK = 0.1
"""AS of an answer that the machine could not judge at all."""
PAPER = 2.67
"""The ratio of AS after training to AS before it that the paper reports for its own model."""


@dataclass(frozen=True)
class Score:
    """Scores of an arm on one graph, the means of its seeds."""

    right: float
    best: float
    log_as: float
    staged: float
    copies: float


def scores(folder: Path, graphs: Sequence[Graph], journal: str) -> tuple[dict[str, dict[str, Score]], list[str]]:
    """Return the scores of each arm by graph, and the arms that lack a judged answer to a graph."""
    verdicts = {row["key"]: row for row in read(folder / journal)}
    train = {text for _, text in right_pairs(folder, "train")}
    runs: dict[str, list[dict[str, dict[str, Any]]]] = {}
    for path in sorted((folder / "answers").glob("*.jsonl")):
        rows = {row["graph"]: row for row in read(path)}
        runs.setdefault(path.stem.rpartition("-")[0], []).append(rows)
    whole = {arm: seeds for arm, seeds in runs.items() if all(_is_whole(graphs, rows, verdicts) for rows in seeds)}
    return {
        arm: {graph.id: _score(graph, [rows[graph.id] for rows in seeds], verdicts, train) for graph in graphs}
        for arm, seeds in whole.items()
    }, [arm for arm in runs if arm not in whole]


def _is_whole(graphs: Sequence[Graph], rows: Mapping[str, dict[str, Any]], verdicts: Mapping[str, Any]) -> bool:
    """Return True if a run has answers to all graphs, and all are judged. Its stage may still be writing them."""
    return all(
        graph.id in rows
        and all(key_of(graph, text) in verdicts for text in (rows[graph.id]["greedy"], *rows[graph.id]["samples"]))
        for graph in graphs
    )


def _score(
    graph: Graph, rows: Sequence[dict[str, Any]], verdicts: Mapping[str, dict[str, Any]], train: set[str]
) -> Score:
    greedy = [verdicts[key_of(graph, row["greedy"])] for row in rows]
    best = [any(verdicts[key_of(graph, text)]["right"] for text in row["samples"] or [row["greedy"]]) for row in rows]
    count = len(rows)
    return Score(
        right=sum(item["right"] for item in greedy) / count,
        best=sum(best) / count,
        log_as=sum(_log(item["AS"]) for item in greedy) / count,
        staged=sum(item["staged"] or 0.0 for item in greedy) / count,
        copies=sum(row["greedy"] in train for row in rows) / count,
    )


def _log(score: float | None) -> float:
    """Return the logarithm of an AS: that of FALLBACK if there is none, minus infinity for a broken rule's 0."""
    return -math.inf if score == 0 else math.log(FALLBACK if score is None else score)


def interval(values: Sequence[float], of: Callable[[float], float] = float) -> str:
    """Return the mean with its 95 % interval, from graphs drawn with replacement."""
    if not values:
        return ""
    chance = random.Random(0)
    means = sorted(sum(chance.choices(values, k=len(values))) / len(values) for _ in range(DRAWS))
    low, high = means[int(0.025 * DRAWS)], means[int(0.975 * DRAWS)]
    return f"{of(sum(values) / len(values)):.3f} [{of(low):.3f}, {of(high):.3f}]"


def table(folder: Path, graphs: Sequence[Graph], journal: str) -> str:
    """Return the tables as text: each arm by groups of graphs, and paired differences."""
    arms, lacking = scores(folder, graphs, journal)
    if not arms:
        raise SystemExit(f"{folder}: no arm has an answer to each graph: end the stage `answer` first")
    groups = {
        "real": [graph.id for graph in graphs if graph.origin == "real"],
        "random": [graph.id for graph in graphs if graph.origin == "random"],
        "real, 2-4 operators": [g.id for g in graphs if g.origin == "real" and 2 <= len(g.operators) <= 4],
        "random, 2-4 operators": [g.id for g in graphs if g.origin == "random" and 2 <= len(g.operators) <= 4],
    }
    text = [f"Left out, since answers are lacking: {', '.join(lacking)}", ""] if lacking else []
    for name, ids in groups.items():
        rows = [_row(arm, [by_graph[key] for key in ids]) for arm, by_graph in arms.items()]
        text += [f"## {name}: {len(ids)} graphs", "", tabulate(rows, "keys", tablefmt="github"), ""]
        text += [_difference(arms, ids, *pair) for pair in PAIRS if set(pair) <= set(arms)] + [""]
    return "\n".join(text)


PAIRS = (("sft", "retrieval"), ("sft", "random"), ("grpo", "sft"), ("sft", "teacher"))


def _row(arm: str, items: Sequence[Score]) -> dict[str, str]:
    return {
        "arm": arm,
        "right": interval([item.right for item in items]),
        "best of 4 right": interval([item.best for item in items]),
        "AS": interval([item.log_as for item in items], math.exp),
        "staged": interval([item.staged for item in items]),
        "copies of training answers": f"{sum(item.copies for item in items) / max(len(items), 1):.3f}",
    }


def _difference(arms: dict[str, dict[str, Score]], ids: Sequence[str], one: str, other: str) -> str:
    """Return a paired difference of two arms, and the ratio of their AS beside the paper's."""
    right = interval([arms[one][key].right - arms[other][key].right for key in ids])
    ratio = interval([arms[one][key].log_as - arms[other][key].log_as for key in ids], math.exp)
    paper = f" (the paper's: {PAPER})" if other == "random" else ""
    return f"- {one} less {other}: right {right}; ratio of AS {ratio}{paper}"
