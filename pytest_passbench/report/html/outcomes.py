"""The ways in which subgraphs end, each with its sign and its class in the style sheet."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_passbench.report import tables
from pytest_passbench.score.subgraph import NOT_JUDGED

SIGNS = {"faster": "▲", "same": "=", "slower": "▼", "unresolved": "?", tables.NOT_MEASURED: "–", NOT_JUDGED: "–",
         "harness_fail": "–"}  # fmt: skip
"""The sign and, by its name, the colour of each way in which a subgraph ends. Any other way is a failure."""

FAILED = "✕"


@dataclass(frozen=True)
class OutcomeCount:
    """A way in which subgraphs ended, and how many did."""

    count: int
    name: str

    @property
    def sign(self) -> str:
        """A character that stands for it."""
        return SIGNS.get(self.name, FAILED)

    @property
    def kind(self) -> str:
        """Its class in the style sheet."""
        named = self.name if self.name in ("faster", "same", "slower", "unresolved") else "failed"
        return "unmeasured" if SIGNS.get(self.name) == "–" else named
