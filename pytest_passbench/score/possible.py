"""The share of the possible: how much of what a subgraph could gain over eager was gained (docs/scores.md)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median

from pytest_passbench.core.ladder import T_STRICT
from pytest_passbench.score.classes import CLASSES, class_of
from pytest_passbench.score.es import speed_at
from pytest_passbench.score.subgraph import Judged

LEAST_HEADROOM = 1.5
"""Subgraphs with less are left out: an error of 10 % in a head-room of 1.5 moves the share by a fourth of itself."""

ALL = "all"
"""The name of all classes together."""


@dataclass(frozen=True)
class Possible:
    """The share of the possible of some subgraphs: the median, and of how many. None means: of none."""

    share: float | None
    subgraphs: int


def share(item: Judged, t: int = T_STRICT) -> float | None:
    """Return the log of a subgraph's speed-up at ``t`` over the log of its task's head-room.

    It is 0 at eager's speed and for a failure, 1 at the head-room, and below 0 for what is slower than eager. The
    null guard holds. It is None if the head-room is unknown or below :data:`LEAST_HEADROOM`, or if the subgraph is
    correct without a measured speed.
    """
    if item.headroom < LEAST_HEADROOM or item.unmeasured_at(t):
        return None
    return log(speed_at(item, t, guard=True)) / log(item.headroom) if item.correct_at(t) else 0.0


def possible(subgraphs: Iterable[Judged], t: int = T_STRICT) -> Possible:
    """Return the median of the shares at ``t`` of those subgraphs that have one."""
    shares = [value for item in subgraphs if (value := share(item, t)) is not None]
    return Possible(median(shares) if shares else None, len(shares))


def with_total(subgraphs: Sequence[Judged], t: int = T_STRICT) -> dict[str, Possible]:
    """Return the share of the possible of each class that has subgraphs with a share, in order, and of all."""
    groups: dict[str, list[Judged]] = {kind: [] for kind in CLASSES}
    for item in subgraphs:
        groups[class_of(item.operators)].append(item)
    shares = {kind: possible(group, t) for kind, group in groups.items()}
    return {kind: value for kind, value in shares.items() if value.subgraphs} | {ALL: possible(subgraphs, t)}
