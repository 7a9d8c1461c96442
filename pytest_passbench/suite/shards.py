"""The tasks of a shard, when a run is divided among machines."""

from __future__ import annotations

from collections.abc import Mapping


def of_shard(costs: Mapping[str, int], index: int, parts: int) -> set[str]:
    """Return the ids of the tasks of a shard. ``costs`` are in subgraphs by id, ``index`` counts from 1 to ``parts``.

    The costliest tasks are dealt out first, so that the parts take about as long as each other.
    """
    dealt = sorted(costs, key=lambda task: (-costs[task], task))
    return set(dealt[index - 1 :: parts])
