"""Step 5: the subgraphs of a task, drawn from all places that have its operators, each checked by every rule."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_passbench.core.escape import line
from pytest_passbench.forge.corpus import Graph
from pytest_passbench.forge.decompose import calls, cut
from pytest_passbench.forge.dtypes import DTYPES
from pytest_passbench.forge.input_records import condition
from pytest_passbench.forge.instances import Instance, curated, instances
from pytest_passbench.forge.probe import MAX_EXCESS_SECONDS, MAX_SECONDS, MIN_SECONDS, eager_seconds, suits, too_long
from pytest_passbench.forge.task_groups import spread
from pytest_passbench.forge.windows import Window, siblings

MIN_ELEMENTS, MAX_ELEMENTS = 64, 3_000_000
"""Bounds of a subgraph's input elements."""


def draw(windows: Sequence[Window], corpus: Mapping[str, Sequence[Graph]]) -> list[Instance]:
    """Return every distinct instance of the windows, in all sizes and dtypes, without running any."""
    by_key: dict[str, Instance] = {}
    for window in windows:
        for graph, start, end in siblings(corpus[window.case], window):
            piece = cut(calls(graph.graph)[start:end], graph.captured.values, graph.original)
            if piece is None or any(s.dtype not in KNOWN_DTYPES for s in piece.inputs):
                continue
            for instance in instances(graph, piece):
                if instance.ops == window.ops:
                    by_key.setdefault(instance.key, instance)
    return list(by_key.values())


KNOWN_DTYPES = {"float32", "float64", "int64", "int32", "bool", "uint8", "int16", "int8"}


@dataclass(frozen=True)
class CuratedInstances:
    """The instances that a task gets, and why others were refused: ``rule: text`` each."""

    instances: list[Instance]
    refusals: list[str]


def choose(pool: Sequence[Instance], quota: int, patience: int = 8) -> CuratedInstances:
    """Return up to ``quota`` instances that pass every rule and take a fair time, spread over dtypes, sources and
    sizes.

    Trying ends when there are ``patience`` failures more than successes.
    """
    selection: list[Instance] = []
    fit = [instance for instance in pool if MIN_ELEMENTS <= instance.elements <= MAX_ELEMENTS]
    refusals = [_misfit(instance) for instance in pool if not MIN_ELEMENTS <= instance.elements <= MAX_ELEMENTS]
    failures: Counter[tuple[str, str]] = Counter()
    hopeless: set[tuple[str, str]] = set()  # with the dtype: rounding alone may make an operator idle
    for attempt in spread(fit, 4 * quota):
        if len(selection) >= quota or sum(failures.values()) >= patience + len(selection):
            break
        failed = failures[attempt.origin, attempt.dtype] >= 2 or (attempt.source, attempt.dtype) in hopeless
        full = sum(instance.dtype == attempt.dtype for instance in selection) >= -(-quota // len(DTYPES)) + 1
        if failed or full:
            continue
        curated_instance, refusal = measured(attempt)
        if curated_instance is None:
            failures[attempt.origin, attempt.dtype] += 1
            hopeless.add((attempt.source, attempt.dtype))
            refusals.append(refusal)
        else:
            selection.append(curated_instance)
    return CuratedInstances(selection, refusals)


def _misfit(instance: Instance) -> str:
    return f"elements: {instance.elements:,} input elements; {MIN_ELEMENTS} to {MAX_ELEMENTS:,} are allowed"


def measured(instance: Instance) -> tuple[Instance | None, str]:
    """Return the curated instance with its eager time in microseconds; or None, and the rule that excludes it."""
    try:
        long = too_long(dataclasses.replace(instance, inputs=condition(instance.inputs)[0]).probe())
    except Exception as error:  # a dtype or shape that these operators do not take
        return None, f"runs: {line(f'{type(error).__name__}: {error}')}"
    if long:
        return None, f"eager_time: more than {MAX_SECONDS * 1e3:g} ms"
    instance_or_none, refusal = curated(instance)
    if instance_or_none is None:
        return None, refusal[0]
    seconds = eager_seconds(instance_or_none.probe())
    if not suits(seconds - MAX_EXCESS_SECONDS):
        least = MIN_SECONDS + MAX_EXCESS_SECONDS
        allowed = f"{least * 1e6:g} us to {MAX_SECONDS * 1e3:g} ms are allowed"
        return None, f"eager_time: {seconds * 1e6:.1f} us; {allowed}"
    return dataclasses.replace(
        instance_or_none, meta=(*instance_or_none.meta, ("eager_us", round(seconds * 1e6, 1)))
    ), ""
