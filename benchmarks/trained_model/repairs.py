"""The stage `repairs`: conversations of two turns, in which a wrong answer is judged, and mended after the feedback.

A wrong answer is the teacher's with one mistake of a kind that models make. It counts only if the judge refuses it.
The mended answer is the teacher's, which was judged right.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from trained_model.files import read
from trained_model.graphs import Graph
from trained_model.judged import judge_all, key_of
from trained_model.operators import ELEMENT
from trained_model.pairs import right_pairs

JOURNAL = "repairs.jsonl"
KINDS = ("another operator", "another name", "an unknown name", "another number", "a lost statement")


def spoiled(text: str, kind: str, chance: random.Random) -> str:
    """Return an answer with a mistake of a kind in its kernel; the same text if it has no place for that kind."""
    begin = text.index("void run(")
    begin, end = text.index("{\n", begin), text.index('\n}\nextern "C"')
    kernel = text[begin:end]
    names = sorted(set(re.findall(r"\b(?:in|tmp)_\d+\b", kernel)))
    if kind == "another operator":
        calls = sorted(set(re.findall(r"pb::\w+(?=\()", " ".join(ELEMENT.values()))))
        signs = [" + ", " - ", " * "]
        pattern = r"pb::(?!map|all|round|sum)\w+(?=\()| [-+*/] (?=[a-z])"
        kernel = _exchanged(kernel, pattern, chance, lambda old: chance.choice(calls if old[0] == "p" else signs))
    elif kind in ("another name", "an unknown name"):
        others = names if kind == "another name" else ["tmp_9", "in_9", "x", "out"]
        kernel = _exchanged(kernel, r"(?<=[(, ])(?:in|tmp)_\d+(?=[;),])", chance, lambda _: chance.choice(others))
    elif kind == "another number":
        kernel = _exchanged(kernel, r"\d+\.\d+(?=f)", chance, lambda old: str(round(float(old) * 1.5 + 0.25, 3)))
    else:
        kernel = _exchanged(kernel, r"\n +vec tmp_\d+ = [^\n]*|\n +pb::map\(d[^\n]*", chance, lambda _: "")
    return text[:begin] + kernel + text[end:]


def _exchanged(text: str, pattern: str, chance: random.Random, new: Callable[[str], str]) -> str:
    places = list(re.finditer(pattern, text))
    if not places:
        return text
    place = chance.choice(places)
    return text[: place.start()] + new(place[0]) + text[place.end() :]


def wrong_answers(folder: Path, most: int) -> Iterator[tuple[Graph, str]]:
    """Yield graphs of the train split with a spoiled answer each."""
    for number, (graph, text) in enumerate(right_pairs(folder, "train")[:most]):
        chance = random.Random(graph.id)
        broken = spoiled(text, KINDS[number % len(KINDS)], chance)
        if broken != text:
            yield graph, broken


def judge_repairs(folder: Path, most: int) -> None:
    """Have the spoiled answers judged, and print how many there are at each stage."""
    judge_all(folder, JOURNAL, wrong_answers(folder, most))
    counts = Counter(row["stage"] for row in read(folder / JOURNAL))
    print(json.dumps({"spoiled": sum(counts.values()), **counts}))


def conversations(folder: Path, most: int) -> list[tuple[Graph, str, str, str]]:
    """Return graphs with a refused answer, the feedback on it, and the right answer."""
    verdicts = {row["key"]: row for row in read(folder / JOURNAL)}
    right = {graph.id: text for graph, text in right_pairs(folder, "train")}
    return [
        (graph, broken, short(verdict["feedback"]), right[graph.id])
        for graph, broken in wrong_answers(folder, most)
        if "feedback" in (verdict := verdicts.get(key_of(graph, broken), {}))
    ]


def short(feedback: str, most: int = 160) -> str:
    """Return the lines of a feedback that say what was wrong, as the model reads them."""
    lines = [line.strip() for line in feedback.splitlines() if line.strip()]
    telling = [line for line in lines if re.search(r"error|expected|differs|wrong|line \d", line)] or lines
    return " ".join(telling)[:most] + "\n"
