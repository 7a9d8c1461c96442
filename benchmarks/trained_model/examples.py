"""Examples of training as ids: pairs in one turn, and repairs in two."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from trained_model.answers import answer, body_of
from trained_model.collect import load
from trained_model.graphs import Graph
from trained_model.pairs import right_pairs
from trained_model.repairs import conversations
from trained_model.sft import Example
from trained_model.tokens import ANSWER, FEEDBACK, asked, encoded, mark_id, prompt


def single(tokenizer: Tokenizer, pairs: Sequence[tuple[Graph, str]], body: bool = False) -> list[Example]:
    """Return examples of one turn; with ``body`` the kernel's statements alone are the answer (an ablation)."""
    return [encoded(tokenizer, prompt(graph), body_of(text) if body else text) for graph, text in pairs]


def repaired(tokenizer: Tokenizer, turns: Sequence[tuple[Graph, str, str, str]]) -> list[Example]:
    """Return examples of two turns: the question has the refused answer and the feedback."""
    return [
        (second_question(tokenizer, graph, broken, feedback), encoded(tokenizer, "", text)[1])
        for graph, broken, feedback, text in turns
    ]


def second_question(tokenizer: Tokenizer, graph: Graph, broken: str, feedback: str) -> list[int]:
    """Return the ids of a question after a refused answer."""
    marks = [mark_id(tokenizer, mark) for mark in (FEEDBACK, ANSWER)]
    told, refused = tokenizer.encode(feedback).ids, tokenizer.encode(broken).ids
    return [*asked(tokenizer, prompt(graph)), *refused, marks[0], *told, marks[1]]


def unjudged(folder: Path, most: int) -> list[tuple[Graph, str]]:
    """Return further pairs of random train graphs, none judged right, for an ablation on the number of pairs."""
    judged = {graph.id for graph, _ in right_pairs(folder, "train")}
    others = [graph for graph in load(folder, "train") if graph.origin == "random" and graph.id not in judged]
    return [(graph, answer(graph.source, graph.shapes())) for graph in others[:most]]


def all_examples(
    folder: Path, tokenizer: Tokenizer, *, repairs: int, extra: int = 0, body: bool = False
) -> list[Example]:
    """Return the examples of a training in random order. Real pairs come four times."""
    pairs = right_pairs(folder, "train")
    pairs += 3 * [pair for pair in pairs if pair[0].origin == "real"] + unjudged(folder, extra)
    rows = single(tokenizer, pairs, body)
    if repairs and not body:
        rows += repaired(tokenizer, conversations(folder, repairs))
    random.Random(0).shuffle(rows)
    return rows
