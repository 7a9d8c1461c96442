"""The documentation as its tests read it: pages, fenced blocks, and what their commands print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from support.paths import ROOT

_OUTSIDE = ["README.md", "CONTRIBUTING.md", "candidates/README.md"]
_OUTSIDE += [f"benchmarks/{name}.md" for name in ("CUDA", "EDITIONS", "LOG")]
PAGES = sorted([*(ROOT / name for name in _OUTSIDE), *(ROOT / "docs").glob("*.md")])

#: A fenced block, with the path in the line before it if it is the text of a file.
_BLOCK = re.compile(r"(?:^`(?P<path>[^`\n]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: ``sh`` is run, ``text`` is what came out, a block with a ``path`` is that file."""

    kind: str
    text: str
    path: str | None


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    return [Block(match["kind"], match["text"], match["path"]) for match in _BLOCK.finditer(page.read_text())]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _BLOCK.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def unlike(shown: str, printed: str) -> list[str]:
    """Return the lines of a page's output that a real output lacks. Figures, hashes, spaces and widths may differ.

    A line counts up to its first bracket, after which come intervals, places and shares of progress.
    Numbers of correct subgraphs must be equal.
    """
    there = {_form(line) for line in printed.splitlines()}
    missing = [line for line in shown.splitlines() if _form(line) and _form(line) not in there]
    return missing + [said for said in re.findall(r"\d+/\d+ correct", shown) if said not in printed]


def _form(line: str) -> str:
    figureless = re.sub(r"\b[0-9a-f]{16,}\b|\d[\d.,]*", "0", line.split("[")[0])
    return re.sub(r"[\s=-]+", " ", figureless).strip()
