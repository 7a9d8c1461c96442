"""Null answers, which need no computation, and the t from which they would be called correct."""

from __future__ import annotations

import bisect
import functools
from collections.abc import Iterable, Iterator, Sequence

import torch

from pytest_passbench.core.ladder import LADDER, NEVER, tolerances

Values = Sequence[torch.Tensor]
SAMPLED_ELEMENTS = 1 << 14


def passes(answer: torch.Tensor, expected: torch.Tensor, t: int) -> bool:
    """Return True if ``answer`` is close to ``expected`` at ``t``, by the tolerances of its dtype. NaNs are equal.

    A sample of the elements is compared first, which finds most failures.
    """
    return _close(_sample(answer), _sample(expected), t) and _close(answer, expected, t)


def _sample(values: torch.Tensor) -> torch.Tensor:
    return values.reshape(-1)[:: max(1, values.numel() // SAMPLED_ELEMENTS)]


def _close(answer: torch.Tensor, expected: torch.Tensor, t: int) -> bool:
    if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
        return bool(torch.equal(answer, expected))
    rtol, atol = tolerances(str(expected.dtype), t)
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    return bool(torch.allclose(answer.to(wide), expected.to(wide), rtol=rtol, atol=atol, equal_nan=True))


def null_answers(expected: torch.Tensor, inputs: Values, stale: torch.Tensor | None) -> Iterator[torch.Tensor]:
    """Yield zeros, ones, the mean, every input of the right shape, and another call's output."""
    yield torch.zeros_like(expected)
    yield torch.ones_like(expected)
    if expected.is_floating_point() and expected.numel():
        yield torch.full_like(expected, float(expected.double().mean()))
    for value in inputs:
        if value.shape == expected.shape:
            yield value.to(expected.dtype)
    if stale is not None and stale.shape == expected.shape:
        yield stale


def null_from(expected: Values, inputs: Values, stale: Values | None = None) -> int:
    """Return the smallest t at which null answers pass on every output of a subgraph, or ``NEVER``."""
    worst = LADDER[0] - 1
    for index, output in enumerate(expected):
        before = stale[index] if stale is not None else None
        worst = max(worst, least(null_answers(output, inputs, before), output))
    return worst


def least(answers: Iterable[torch.Tensor], expected: torch.Tensor) -> int:
    """Return the smallest t of the ladder at which one of the answers passes, or ``NEVER``.

    An answer that passes at t passes at every t above. A sample's smallest t is sought by halves, and is a lower
    bound of that of all elements. Each answer is compared only below the smallest t so far.
    """
    level, part = LADDER[-1] + 1, _sample(expected)
    for answer in answers:
        below = range(LADDER[0], level)
        start = bisect.bisect_left(below, True, key=functools.partial(_close, _sample(answer), part))
        level = next((t for t in below[start:] if _close(answer, expected, t)), level)
    return level if level in LADDER else NEVER
