"""Wrong forms of clamps and activations. Inputs on which one of them is right do not test that operator.

A relu whose input stays below 6 cannot be told from relu6, and a gelu of large inputs not from relu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.probe import Probe, unnoticed
from pytest_passbench.rewrite.normalise import CanonicalCall, canonical

Form = Callable[[torch.Tensor], torch.Tensor]

MAX_GUARD = 1e-3
"""A bound or an addend of at most this magnitude only guards a division or a logarithm."""

OTHER_SEEDS = (3, 4, 5)
"""Further inputs on which clamps are tried: a value of few elements reaches a bound by chance."""
MARGIN = 1.25
"""A relu's input must exceed 6 by this factor, so that it exceeds 6 on other inputs of the same record as well."""

RELU_6 = ("clamped at 6", lambda x: x.clamp(0, 6 * MARGIN))
CLAMPS: dict[str, tuple[tuple[str, Form], ...]] = {
    "relu": (RELU_6,),
    "relu6": (("without its lower bound", lambda x: x.clamp(max=6)), ("without its upper bound", torch.relu)),
    "hardswish": (
        ("without its lower bound", lambda x: x * (x + 3).clamp(max=6) / 6),
        ("without its upper bound", lambda x: x * (x + 3).clamp(min=0) / 6),
    ),
    "hardsigmoid": (
        ("without its lower bound", lambda x: (x + 3).clamp(max=6) / 6),
        ("without its upper bound", lambda x: (x + 3).clamp(min=0) / 6),
    ),
    "leaky_relu": (("as relu", torch.relu),),
}
"""Wrong forms of operators with fixed bounds, by operator."""

ACTIVATIONS: dict[str, tuple[tuple[str, Form], ...]] = {
    "gelu": (("as half its input", lambda x: x / 2), ("as relu", torch.relu)),
    "silu": (("as half its input", lambda x: x / 2), ("as relu", torch.relu)),
    "mish": (("as 0.6 of its input", lambda x: x * 0.6), ("as relu", torch.relu)),
    "softplus": (("as a line", lambda x: x / 2 + math.log(2)), ("as relu", torch.relu)),
    "elu": (("as relu", torch.relu),),
    "tanh": (("as the sign", torch.sign),),
    "erf": (("as a line", lambda x: x * (2 / math.sqrt(math.pi))), ("as the sign", torch.sign)),
    "sigmoid": (("as a line", lambda x: x / 4 + 0.5), ("as a step", lambda x: (x > 0).to(x.dtype))),
    "exp": (("as a line", lambda x: x + 1),),
    "sin": (("as its input", lambda x: x),),
    "cos": (("as 1", torch.ones_like),),
}
"""Wrong forms that are right for small or for large inputs alone: the first-order Taylor series, and the limits."""


def flat_clamps(probe: Probe) -> Iterator[str]:
    """Yield clamps whose inputs do not reach both bounds, on these inputs or on others of the same record."""
    if any(clamp_forms(call) for _, call in _calls(probe)):
        others = (Probe(probe.task, probe.subgraph, seed) for seed in OTHER_SEEDS)
        yield from dict.fromkeys(text for drawn in (probe, *others) for text in _flat(drawn))


def _flat(probe: Probe) -> Iterator[str]:
    for node, call in _calls(probe):
        yield from _complaints(probe, node, call, clamp_forms(call))


def clamp_forms(call: CanonicalCall) -> tuple[tuple[str, Form], ...]:
    """Return the wrong forms of a clamp; none for any other operator."""
    return CLAMPS.get(call.op) or tuple(_bounded(call))


def idle_activations(probe: Probe) -> Iterator[str]:
    """Yield activations that could be a line, a step or a constant on these inputs."""
    for node, call in _calls(probe):
        yield from _complaints(probe, node, call, ACTIVATIONS.get(call.op, ()))
        if call.op in ("softmax", "log_softmax"):
            result = probe.values[node]
            flat = result.double().mean(call.args["dim"], keepdim=True).expand(result.shape).to(result.dtype)
            if unnoticed(probe, node, flat):
                yield f"{node.name} ({call.op}) could be taken as the mean of each row"


def _calls(probe: Probe) -> Iterator[tuple[fx.Node, CanonicalCall]]:
    for node in probe.pure.graph.nodes:
        if node.op in ("call_function", "call_method"):
            yield node, canonical(node)


def _complaints(
    probe: Probe, node: fx.Node, call: CanonicalCall, forms: tuple[tuple[str, Form], ...]
) -> Iterator[str]:
    for text, form in forms:
        source = probe.values[call.args["input"]]
        if unnoticed(probe, node, form(source).to(probe.values[node].dtype)):
            yield f"{node.name} ({call.op}) could be taken {text}"


def _bounded(call: CanonicalCall) -> Iterator[tuple[str, Form]]:
    """Yield the forms of ``clamp`` and ``hardtanh`` that lack one bound. A bound that is a guard is not left out."""
    bounds = {
        "clamp": (call.get("min"), call.get("max")),
        "hardtanh": (call.args.get("min_val", -1.0), call.args.get("max_val", 1.0)),
        "clamp_min": (call.get("min"), None),
        "clamp_max": (None, call.get("max")),
    }
    low, high = bounds.get(call.op, (None, None))
    if _counts(low):
        yield "without its lower bound", lambda x: x if high is None else x.clamp(max=high)
    if _counts(high):
        yield "without its upper bound", lambda x: x if low is None else x.clamp(min=low)


def _counts(bound: Any) -> bool:
    return isinstance(bound, int | float) and math.isfinite(bound) and (bound == 0 or abs(bound) > MAX_GUARD)
