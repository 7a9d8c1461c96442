"""The sensitivity of a graph: whether its outputs still agree if it had another value in one place."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pytest_passbench.forge.null_answers import passes
from pytest_passbench.forge.probe import Probe, downstream

NOTICING_T = -5
"""The t at which a wrong value must be noticed: that of the default tolerance of ``torch.testing``."""


def unnoticed(probe: Probe, node: fx.Node, value: Any) -> bool:
    """Return True if all outputs are correct at t = NOTICING_T although ``node`` had the value ``value``."""
    changed = downstream(probe.pure, probe.values, node, value)
    return all(same(answer, expected) for answer, expected in zip(changed, probe.outputs, strict=True))


def same(answer: Any, expected: torch.Tensor) -> bool:
    """Return True if an answer is a tensor of the right shape that is correct at t = NOTICING_T."""
    return (
        isinstance(answer, torch.Tensor) and answer.shape == expected.shape and passes(answer, expected, NOTICING_T)
    )
