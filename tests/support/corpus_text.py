"""The pages of the corpus: Markdown with a section for each candidate. tests/corpus/README.md has the format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_HEADING = re.compile(r"^## (?P<name>[\w-]+)\n(?P<text>.*?)(?=^## |\Z)", re.M | re.S)
#: A fenced block, with the file that it is or edits in the line before it.
_BLOCK = re.compile(
    r"(?:^`(?P<file>[\w./-]+)`(?: in (?P<encoding>[\w-]+))?:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_FACTS = re.compile(r"^(?:[a-z ]+: [^;\n]+)(?:; [a-z ]+: [^;\n]+)*$", re.M)


class CorpusError(Exception):
    """A page of the corpus that is not in its format, or a diff that does not apply; the message has the section."""


@dataclass(frozen=True)
class Block:
    """The text of a file, or with ``kind`` "diff" an edit of it; ``file`` is empty for the pass itself."""

    file: str
    kind: str
    text: str
    encoding: str


@dataclass(frozen=True)
class Section:
    """A candidate or a base: its sentence, its facts by their names, and its blocks in order."""

    name: str
    sentence: str
    facts: Mapping[str, str]
    blocks: tuple[Block, ...] = field(repr=False)


def sections(page: Path) -> Iterator[Section]:
    """Read the sections of a page. Raises CorpusError for one without a sentence or facts."""
    for heading in _HEADING.finditer(page.read_text()):
        prose = _BLOCK.sub("", heading["text"]).strip()
        sentence, _, facts = (part.strip() for part in prose.rpartition("\n\n"))
        if not sentence or not _FACTS.fullmatch(facts):
            raise CorpusError(f"{page.name}, {heading['name']}: not a sentence and a line of facts: {prose!r}")
        yield Section(
            heading["name"],
            " ".join(sentence.split()),
            dict(fact.split(": ", 1) for fact in facts.split("; ")),
            tuple(
                Block(block["file"] or "", block["kind"], block["text"], block["encoding"] or "utf-8")
                for block in _BLOCK.finditer(heading["text"])
            ),
        )


def edited(text: str, edit: str) -> str:
    """Return a text with the hunks of a diff applied. They have no line numbers, and ``@@`` separates them.

    Raises CorpusError for a hunk whose old lines do not occur in the text exactly once.
    """
    lines = text.split("\n")
    hunks = [_hunk(lines, part) for part in re.split(r"^@@\n", edit, flags=re.M)]
    for start, end, after in sorted(hunks, reverse=True):
        lines[start:end] = after
    return "\n".join(lines)


def _hunk(lines: list[str], part: str) -> tuple[int, int, list[str]]:
    """Return where the old lines of a hunk begin and end, and the new ones."""
    rows = part.splitlines()
    before = [row[1:] for row in rows if not row.startswith("+")]
    places = [at for at in range(len(lines)) if lines[at : at + len(before)] == before]
    if len(places) != 1:
        raise CorpusError(f"the old lines of a hunk stand in {len(places)} places:\n{part}")
    return places[0], places[0] + len(before), [row[1:] for row in rows if not row.startswith("-")]
