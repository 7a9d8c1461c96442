"""Typical operator n-grams: adjacent operators of the whole corpus are folded as in byte-pair encoding.

The most frequent pair of neighbours becomes one token, again and again. A token's expansion is an n-gram that
the corpus repeats (Sennrich et al., 2016, with operators instead of letters).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Gram = tuple[str, ...]
Token = tuple[Gram, int, int]
Pair = tuple[Gram, Gram]

MIN_LENGTH, MAX_LENGTH = 4, 63
"""Bounds of a typical n-gram's length in operators."""


@dataclass(frozen=True)
class Occurrence:
    """A place of an n-gram: operators ``start`` to ``end - 1`` of the sequence with number ``sequence``."""

    sequence: int
    start: int
    end: int


def fold(sequences: Sequence[Sequence[str]], merges: int) -> dict[Gram, list[Occurrence]]:
    """Return every n-gram that folding makes a token of, with all its places, in order of making.

    Folding ends after ``merges`` tokens, or when no pair occurs twice. N-grams grow up to
    :data:`MAX_LENGTH` operators.
    """
    tokens: list[list[Token]] = [[((name,), i, i + 1) for i, name in enumerate(names)] for names in sequences]
    grams: dict[Gram, list[Occurrence]] = {}
    counts: Counter[Pair] = Counter()
    for sequence in tokens:
        counts.update(_pairs(sequence))
    while counts and len(grams) < merges:
        pair, count = max(counts.items(), key=lambda item: (item[1], -len(item[0][0] + item[0][1]), item[0]))
        if count < 2:
            break
        grams[pair[0] + pair[1]] = _merge(tokens, pair, counts)
    return grams


def typical(grams: dict[Gram, list[Occurrence]]) -> dict[Gram, list[Occurrence]]:
    """Return the n-grams that are long enough to be typical."""
    return {gram: places for gram, places in grams.items() if len(gram) >= MIN_LENGTH}


def _pairs(tokens: Sequence[Token]) -> Counter[Pair]:
    pairs = ((a[0], b[0]) for a, b in pairwise(tokens))
    return Counter(pair for pair in pairs if len(pair[0]) + len(pair[1]) <= MAX_LENGTH)


def _merge(sequences: list[list[Token]], pair: Pair, counts: Counter[Pair]) -> list[Occurrence]:
    """Fold ``pair`` everywhere, keep ``counts`` right, and return the places of the new token."""
    places = []
    for number, tokens in enumerate(sequences):
        if not any(a[0] == pair[0] and b[0] == pair[1] for a, b in pairwise(tokens)):
            continue
        counts.subtract(_pairs(tokens))
        folded = _fold_one(tokens, pair)
        places += [Occurrence(number, start, end) for gram, start, end in folded if gram == pair[0] + pair[1]]
        sequences[number] = folded
        counts.update(_pairs(folded))
    counts.pop(pair, None)
    for empty in [key for key, count in counts.items() if count <= 0]:
        del counts[empty]
    return places


def _fold_one(tokens: Sequence[Token], pair: Pair) -> list[Token]:
    folded: list[Token] = []
    for token in tokens:
        if folded and folded[-1][0] == pair[0] and token[0] == pair[1]:
            folded[-1] = (pair[0] + pair[1], folded[-1][1], token[2])
        else:
            folded.append(token)
    return folded
