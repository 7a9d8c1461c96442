"""The stages `answer` and `final`: each arm's answers to the held-out graphs, and all of them judged in one run."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trained_model.answers import with_body
from trained_model.controls import nearest
from trained_model.files import Journal, read
from trained_model.generate import answers
from trained_model.graphs import Graph
from trained_model.judged import judge_all
from trained_model.pairs import right_pairs
from trained_model.tokens import asked, prompt

SAMPLES = 4
"""Answers that are drawn by chance besides the greedy one: best of four."""
TEMPERATURE = 0.7
CHUNK = 32


def chosen(folder: Path, split: str, most: int) -> list[tuple[Graph, str]]:
    """Return graphs of a held-out split that the teacher is right on, at most so many real and random ones each."""
    pairs = right_pairs(folder, split)
    parts = [[pair for pair in pairs if pair[0].origin == origin] for origin in ("real", "random")]
    return [pair for part in parts for pair in random.Random(0).sample(part, min(most, len(part)))]


def answer_all(
    model: Any, tokenizer: Tokenizer, pairs: Sequence[tuple[Graph, str]], path: Path, seed: int, *,
    body: bool = False, threads: int = 2,
) -> None:  # fmt: skip
    """Write a model's greedy answer to each graph, and those drawn by chance.

    With ``body`` the model writes the kernel's statements alone, and the rest of the file is the teacher's.
    """
    torch.set_num_threads(threads)
    journal = Journal(path)
    done = {row["graph"] for row in journal.rows}
    left = [pair for pair in pairs if pair[0].id not in done]
    for begin in range(0, len(left), CHUNK):
        part = left[begin : begin + CHUNK]
        questions = [asked(tokenizer, prompt(graph)) for graph, _ in part]
        greedy = answers(model, tokenizer, questions)
        several = [question for question in questions for _ in range(SAMPLES)]
        drawn = answers(model, tokenizer, several, temperature=TEMPERATURE, seed=seed * 1000 + len(done) + begin)
        for place, (graph, text) in enumerate(part):
            written = [greedy[place], *drawn[place * SAMPLES : (place + 1) * SAMPLES]]
            whole = [with_body(text, item) for item in written] if body else written
            journal.add({"graph": graph.id, "greedy": whole[0], "samples": whole[1:]})
    journal.close()


def control_answers(folder: Path, pairs: Sequence[tuple[Graph, str]]) -> None:
    """Write the answers of retrieval and of the teacher, as those of arms."""
    train = right_pairs(folder, "train")
    for name in ("retrieval", "teacher"):
        journal = Journal(folder / "answers" / f"{name}-0.jsonl")
        done = {row["graph"] for row in journal.rows}
        for graph, text in pairs:
            if graph.id not in done:
                answer = text if name == "teacher" else nearest(graph, train)
                journal.add({"graph": graph.id, "greedy": answer, "samples": []})
        journal.close()


def to_judge(folder: Path, graphs: dict[str, Graph]) -> Iterator[tuple[Graph, str]]:
    """Yield each different answer of all arms, in random order, so that no arm is judged at a quieter time."""
    pairs = {
        (row["graph"], text)
        for path in sorted((folder / "answers").glob("*.jsonl"))
        for row in read(path)
        for text in (row["greedy"], *row["samples"])
        if row["graph"] in graphs
    }
    ordered = sorted(pairs)
    random.Random(0).shuffle(ordered)
    for graph, text in ordered:
        yield graphs[graph], text


def judge_arms(folder: Path, graphs: Sequence[Graph], journal: str) -> None:
    """Have all arms' answers judged in one run."""
    judge_all(folder, journal, to_judge(folder, {graph.id: graph for graph in graphs}))
