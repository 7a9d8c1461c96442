"""Step 5: the subgraphs of a task, drawn from all places that have its operators, each checked by every rule."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_passbench.forge.conditions import condition
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.decompose import calls, cut
from pytest_passbench.forge.dtypes import DTYPES
from pytest_passbench.forge.eager_time import eager_seconds, suits, too_long
from pytest_passbench.forge.group import spread
from pytest_passbench.forge.instances import Instance, curated, instances
from pytest_passbench.forge.windows import Window, siblings

MIN_ELEMENTS, MAX_ELEMENTS = 64, 3_000_000
"""Bounds of a subgraph's input elements."""


def draw(windows: Sequence[Window], corpus: Mapping[str, Sequence[Graph]]) -> list[Instance]:
    """Return every distinct instance of the windows, in all sizes and dtypes, without running any."""
    found: dict[str, Instance] = {}
    for one in windows:
        for graph, start, end in siblings(corpus[one.case], one):
            piece = cut(calls(graph.graph)[start:end], graph.captured.values, graph.original)
            if piece is None or any(s.dtype not in KNOWN_DTYPES for s in piece.inputs):
                continue
            for instance in instances(graph, piece):
                if instance.ops == one.ops and MIN_ELEMENTS <= instance.elements <= MAX_ELEMENTS:
                    found.setdefault(instance.key, instance)
    return list(found.values())


KNOWN_DTYPES = {"float32", "float64", "int64", "int32", "bool", "uint8", "int16", "int8"}


def choose(pool: Sequence[Instance], quota: int, patience: int = 8) -> list[Instance]:
    """Return up to ``quota`` instances that pass every rule and take a fair time, spread over dtypes, sources and
    sizes.

    Trying ends when there are ``patience`` failures more than successes.
    """
    chosen: list[Instance] = []
    failures: Counter[tuple[str, str]] = Counter()
    hopeless: set[str] = set()
    for attempt in spread(pool, 4 * quota):
        if len(chosen) >= quota or sum(failures.values()) >= patience + len(chosen):
            break
        failed = failures[attempt.origin, attempt.dtype] >= 2 or attempt.source in hopeless
        full = sum(one.dtype == attempt.dtype for one in chosen) >= -(-quota // len(DTYPES)) + 1
        if failed or full:
            continue
        made = measured(attempt)
        if made is None:
            failures[attempt.origin, attempt.dtype] += 1
            hopeless.add(attempt.source)
        else:
            chosen.append(made)
    return chosen


def measured(instance: Instance) -> Instance | None:
    """Return the curated instance with its eager time in microseconds, or None if a rule or the time excludes it."""
    if not _quick(instance):
        return None
    made, _ = curated(instance)
    if made is None:
        return None
    seconds = eager_seconds(made.probe())
    if not suits(seconds):
        return None
    return dataclasses.replace(made, meta=(*made.meta, ("eager_us", round(seconds * 1e6, 1))))


def _quick(instance: Instance) -> bool:
    """Return True if it runs, and soon enough to be checked."""
    try:
        return not too_long(dataclasses.replace(instance, inputs=condition(instance.inputs)[0]).probe())
    except Exception:  # a dtype or shape that these operators do not take
        return False
