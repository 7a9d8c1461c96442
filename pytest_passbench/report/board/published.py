"""The published rows: what PassBench's authors measured. They stand apart, since nothing here is comparable."""

from __future__ import annotations

from dataclasses import dataclass

ABOUT = (
    "The PassBench board on an NVIDIA A30 with greedy decoding, as published. Other tasks, another machine and "
    "another way of measuring, so no difference to the rows above is computed."
)


@dataclass(frozen=True)
class PublishedRow:
    """A row as published: AS, G-Mean, and the shares of correct and of faster subgraphs in per cent."""

    name: str
    as_: float
    gmean: float
    correct: float
    fast1: float


ROWS = (
    PublishedRow("eager", 1.0, 1.0, 100.0, 100.0),
    PublishedRow("TorchInductor", 0.706, 0.846, 85.0, 20.3),
    PublishedRow("best language model", 0.448, 0.835, 61.9, 9.2),
    PublishedRow("best fine-tuned small model", 0.371, 0.809, 48.8, 5.3),
    PublishedRow("its base model", 0.139, 0.693, 11.8, 0.6),
)
