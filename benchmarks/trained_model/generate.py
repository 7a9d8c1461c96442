"""Answers of a model to questions: greedy, or drawn by chance, for questions of about one length at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers import Tokenizer

from trained_model.model import LONGEST
from trained_model.tokens import ANSWER, FEEDBACK, PAD, mark_id, text_of

MOST = 700
"""The most tokens of an answer; the teacher's longest has fewer."""


def answers(
    model: Any, tokenizer: Tokenizer, questions: Sequence[list[int]], *, temperature: float = 0.0, seed: int = 0,
    rows: int = 32, most: int = MOST,
) -> list[str]:  # fmt: skip
    """Return an answer to each question, in order."""
    ids = answer_ids(model, tokenizer, questions, temperature=temperature, seed=seed, rows=rows, most=most)
    return [text_of(tokenizer, item) for item in ids]


def answer_ids(
    model: Any, tokenizer: Tokenizer, questions: Sequence[list[int]], *, temperature: float = 0.0, seed: int = 0,
    rows: int = 32, most: int = MOST,
) -> list[list[int]]:  # fmt: skip
    """Return the ids of an answer to each question, in order."""
    model.eval()
    order = sorted(range(len(questions)), key=lambda place: len(questions[place]))
    results: dict[int, list[int]] = {}
    torch.manual_seed(seed)
    for begin in range(0, len(order), rows):
        places = order[begin : begin + rows]
        for place, row in zip(places, _generated(model, tokenizer, [questions[i] for i in places], temperature, most),
                              strict=True):  # fmt: skip
            results[place] = row
    return [results[place] for place in range(len(questions))]


def _generated(
    model: Any, tokenizer: Tokenizer, questions: Sequence[list[int]], temperature: float, most: int
) -> list[list[int]]:
    pad, longest = mark_id(tokenizer, PAD), max(map(len, questions))
    ids = torch.full((len(questions), longest), pad)
    for place, question in enumerate(questions):
        ids[place, longest - len(question) :] = torch.tensor(question)
    by_chance = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    choice = by_chance if temperature else {"do_sample": False}
    marks = [mark_id(tokenizer, mark) for mark in (ANSWER, FEEDBACK)]
    with torch.no_grad():
        output = model.generate(
            input_ids=ids, attention_mask=(ids != pad).long(), max_new_tokens=min(most, LONGEST - longest),
            suppress_tokens=marks, pad_token_id=pad, **choice,
        )  # fmt: skip
    return [row[longest:] for row in output.tolist()]
