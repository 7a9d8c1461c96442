"""The tokenizer: names, operators' calls, and the boilerplate between them are tokens; rare numbers are spelt.

Pieces never cross the edges of names, so a name is the same token in the graph, in the pattern and in the kernel, and
copying it is a step of attention. What the train split does not have often is spelt in characters.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from trained_model.graphs import Graph

PAD, BEGIN, ANSWER, END, FEEDBACK = MARKS = ("<pad>", "<begin>", "<answer>", "<end>", "<feedback>")
NAME = r"(?:in|tmp)_\d+"
NUMBER = r"-?\d+\.\d+(?:e[+-]?\d+)?|\d+e-\d+|(?<![\w\[-])\d+"
CALL = r"pb::\w+\(|torch\.(?:nn\.functional\.)?\w+\(|(?<=\d)\.\w+\("
STOP = f"{NAME}|{NUMBER}|{CALL}"
PIECES = rf"{STOP}|\n(?:(?!{STOP})[\s\S])*"
"""Matches names, numbers, calls, and text from a line's end up to the next of these. The rest are pieces, too."""
HEAD_LENGTH = 100
"""Characters from which a block of lines is a token of its own, whatever stands in it."""
RARE_PIECE, RARE_NUMBER = 1 / 400, 1 / 40
"""A piece, or a number, is a token if at least this share of the pairs has it."""


def prompt(graph: Graph) -> str:
    """Return a graph as the model reads it: its text, and the shapes of its inputs."""
    return graph.source + "".join(f"{item['name']} {item['shape']}\n" for item in graph.inputs)


def heads(answers: Iterable[str]) -> list[str]:
    """Return the beginnings of passes, up to the first line that has a name of a graph."""
    counts = Counter(text[: text.index("template <class T> void run(")] for text in answers)
    return [text for text, count in counts.most_common(8) if count >= 3 and len(text) > HEAD_LENGTH]


def train(pairs: Sequence[tuple[Graph, str]]) -> Tokenizer:
    """Return a tokenizer whose tokens are the frequent pieces of the train split's pairs."""
    split = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PIECES), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    counts: Counter[str] = Counter()
    first = heads(text for _, text in pairs)
    for graph, text in pairs:
        rest = next((text.removeprefix(head) for head in sorted(first, key=len)[::-1] if text.startswith(head)), text)
        counts.update({piece for part in (prompt(graph), rest) for piece, _ in split.pre_tokenize_str(part)})
    characters = set(pre_tokenizers.ByteLevel.alphabet())
    pieces = [
        piece
        for piece, count in counts.items()
        if count >= max(3, len(pairs) * (RARE_NUMBER if re.fullmatch(NUMBER, piece) else RARE_PIECE))
    ]
    vocabulary = [(mark, 0.0) for mark in MARKS] + [(text, -10.0) for text in sorted(characters)]
    vocabulary += [(piece, -1.0) for piece in sorted(set(pieces) - characters)]
    tokenizer = Tokenizer(models.Unigram(vocabulary, 0, False))
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    tokenizer.add_special_tokens(list(MARKS))
    tokenizer.add_tokens([AddedToken(head, normalized=False) for head in first])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path, pairs: Sequence[tuple[Graph, str]]) -> None:
    """Write the tokenizer, and how many tokens a prompt and an answer have."""
    tokenizer.save(str(folder / "tokenizer.json"))
    prompts = [len(tokenizer.encode(prompt(graph)).ids) for graph, _ in pairs]
    answers = [len(tokenizer.encode(text).ids) for _, text in pairs]
    counts = {
        "tokens": tokenizer.get_vocab_size(), "pairs": len(pairs), "prompt": round(sum(prompts) / len(pairs), 1),
        "answer": round(sum(answers) / len(pairs), 1), "longest": max(map(sum, zip(prompts, answers, strict=True))),
    }  # fmt: skip
    (folder / "tokenizer-counts.json").write_text(json.dumps(counts))
    print(json.dumps(counts))


def load(folder: Path) -> Tokenizer:
    """Return the tokenizer of a folder."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def mark_id(tokenizer: Tokenizer, mark: str) -> int:
    """Return the id of a mark."""
    number = tokenizer.token_to_id(mark)
    assert number is not None, mark
    return int(number)


def encoded(tokenizer: Tokenizer, question: str, text: str) -> tuple[list[int], list[int]]:
    """Return the ids of a question, with its marks, and of the answer to it, with its end."""
    return asked(tokenizer, question), [*tokenizer.encode(text).ids, mark_id(tokenizer, END)]


def asked(tokenizer: Tokenizer, question: str) -> list[int]:
    """Return the ids of a question, with its marks."""
    return [mark_id(tokenizer, BEGIN), *tokenizer.encode(question).ids, mark_id(tokenizer, ANSWER)]


def text_of(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Return the text of an answer's ids, up to its end."""
    end = mark_id(tokenizer, END)
    whole = list(ids[: ids.index(end)] if end in ids else ids)
    return str(tokenizer.decode(whole, skip_special_tokens=False))
