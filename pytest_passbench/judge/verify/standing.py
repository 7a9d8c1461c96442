"""The standing of an arm over its verified calls: its results, its accuracy (docs/accuracy.md), its stability.

A few elements of an honest kernel may flip between calls, where rounding decides a comparison. So a call counts as
far off only if a good part of an output is. In float16 an intermediate value may overflow by chance, so NaN and
infinities of float16 do not count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from pytest_passbench.core.agreement import pieces
from pytest_passbench.core.criterion import worst
from pytest_passbench.core.float64_errors import OutputErrors
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.record import RAN
from pytest_passbench.judge.verify.compare import Comparison
from pytest_passbench.judge.verify.outputs import Output

#: By how much a call's mean distance from eager may exceed those of the calls that were compared with float64. A
#: distance below one unit of precision is all rounding.
MAX_FURTHER, MIN_DISTANCE = 1.5, 1.0
MAX_WORSE = 2  # levels of the ladder by which a call may be worse than those that were compared with float64
ROUNDING_LEVELS = 2  # levels of t by which an honest kernel may miss a tolerance that it met in other calls
#: Units of the dtype's precision by which it may also miss, relative to the element or to the output's median. For
#: example, the rounding of a logit in bfloat16 changes a probability by a seventh.
ROUNDING_UNITS = 32
FAR_SHARE = 1 / 16  # of an output's elements that are far off in a call that counts as such


@dataclass
class Accuracy:
    """The accuracy of a program's outputs, over the calls that were also made in float64. The worst call counts.

    ``levels`` has for each output the largest ladder level of those calls, ``distances`` the largest
    :func:`mean_distance` from eager.
    """

    errors: list[float] = field(default_factory=list)
    greatest_ratios: list[float] = field(default_factory=list)
    mean_ratios: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    distances: list[float] = field(default_factory=list)
    _within: bool = True
    _lost: bool = False

    def add(self, call: Sequence[OutputErrors], levels: Sequence[int] = (), distances: Sequence[float] = ()) -> None:
        """Add a call's errors, its ladder levels and its distances from eager, one per output."""
        if self._lost:
            return
        self.levels = [max(pair) for pair in zip(self.levels, levels, strict=True)] if self.levels else [*levels]
        self.distances = worst(self.distances, distances)
        self.errors = worst(self.errors, [errors.greatest for errors in call])
        self.greatest_ratios = worst(self.greatest_ratios, [errors.greatest_ratio for errors in call])
        self.mean_ratios = worst(self.mean_ratios, [errors.mean_ratio for errors in call])
        self._within = self._within and all(errors.within for errors in call)

    def is_doubtful(self, levels: Sequence[int], distances: Sequence[float] = ()) -> bool:
        """Return True if an output is worse than in all calls with references, by its level or by its mean distance.

        The level alone is not enough: one element that is bad in every call would hide that others are bad in some.
        """
        further = zip(distances, self.distances, strict=False)
        return any(level > before for level, before in zip(levels, self.levels, strict=False)) or any(
            distance > MAX_FURTHER * max(before, MIN_DISTANCE) for distance, before in further
        )

    def is_far_worse(self, levels: Sequence[int], null_from: int) -> bool:
        """Return True if the calls with references say nothing of a call with these ladder levels.

        This holds if an output's level is more than :data:`MAX_WORSE` worse than in any of them. It also holds if an
        output's level is worse at all, and the greatest level is one at which null answers pass (``null_from``).
        """
        if not self.levels:
            return False  # nothing was referenced, so nothing is concluded
        worse = [level - before for level, before in zip(levels, self.levels, strict=True)]
        return max(worse, default=0) > MAX_WORSE or (max(worse, default=0) > 0 and max(levels) >= null_from)

    def lose(self) -> None:
        """Drop all ratios for good: a doubtful call has no reference, so nothing is known of the accuracy."""
        self.errors, self.greatest_ratios, self.mean_ratios, self._lost = [], [], [], True
        self.levels, self.distances = [], []

    @property
    def accurate(self) -> bool:
        """True if the program is as accurate as eager. An answer without a reference is not."""
        return bool(self.greatest_ratios) and self._within


@dataclass
class Stability:
    """The outputs that were within t in a verified call (``right``), and those that were far off in one (``far``)."""

    right: set[int] = field(default_factory=set)
    far: set[int] = field(default_factory=set)

    @property
    def unstable(self) -> list[int]:
        """The outputs that were right in some calls and far off in others."""
        return sorted(self.right & self.far)

    def add(self, levels: Sequence[int], expected: Sequence[Output], outputs: Sequence[Output], t: int) -> None:
        """Add a verified call. ``levels`` has the smallest t at which each output of it is right."""
        for index, (level, eager, output) in enumerate(zip(levels, expected, outputs, strict=False)):
            if level <= t:
                self.right.add(index)
            elif level > t + ROUNDING_LEVELS and far_share(eager.value, output.value) > FAR_SHARE:
                self.far.add(index)


def mean_distance(expected: torch.Tensor | None, answer: torch.Tensor | None) -> float:
    """Return the mean distance of an answer from eager's, in units of precision of eager's mean magnitude.

    It is 0 for tensors that cannot be compared. Elements that are not finite do not count.
    """
    if expected is None or answer is None or expected.shape != answer.shape or not expected.is_floating_point():
        return 0.0
    wide, distance, size = torch.promote_types(expected.dtype, torch.float32), 0.0, 0.0
    for a, b in zip(pieces(expected.reshape(-1)), pieces(answer.reshape(-1)), strict=True):
        eager = a.to(wide)
        distance += _sum_of_sizes(b.to(wide) - eager)
        size += _sum_of_sizes(eager)
    unit = size * torch.finfo(expected.dtype).eps
    return distance / unit if unit else 0.0


def _sum_of_sizes(values: torch.Tensor) -> float:
    """Return the sum of the absolute values of the elements that are finite."""
    total = float(values.abs().sum())
    return total if math.isfinite(total) else float(values.nan_to_num(0.0, 0.0, 0.0).abs_().sum())


def far_share(expected: torch.Tensor | None, answer: torch.Tensor | None) -> float:
    """Return the share of elements that rounding does not explain. It is 0 for tensors that cannot be compared.

    One differing integer does not count: a tie may decide it, as for the index of the greatest element.
    """
    if expected is None or answer is None or expected.shape != answer.shape or expected.dtype != answer.dtype:
        return 0.0
    if expected.numel() == 0 or expected.is_complex():
        return 0.0
    if not expected.is_floating_point():
        return float(max(0, int((expected != answer).sum()) - 1) / expected.numel())
    far = ~explained_by_rounding(expected, answer)
    if expected.dtype is torch.float16:
        far &= answer.isfinite()
    return float(far.double().mean())


def explained_by_rounding(expected: torch.Tensor, answer: torch.Tensor) -> torch.Tensor:
    """Return for each element whether rounding explains the difference. Both tensors are of the same float dtype."""
    a, b = expected.double(), answer.double()
    size = a.masked_fill(~a.isfinite(), 0.0).abs()
    usual = size[size > 0].median().nan_to_num(0.0)  # not the greatest, which may come from a mask
    near = (a - b).abs() <= ROUNDING_UNITS * torch.finfo(expected.dtype).eps * torch.maximum(size, usual)
    return near | (a == b) | (a.isnan() & b.isnan())


@dataclass
class Standing(Comparison):
    """The results of an arm in the calls verified so far: the worst of each call's."""

    accuracy: Accuracy = field(default_factory=Accuracy)
    stability: Stability = field(default_factory=Stability)

    @property
    def wrong(self) -> bool:
        """True if no criterion accepts the answers so far."""
        never = NEVER in self.correct_from and not self.accuracy.accurate
        return self.status != RAN or self.broken or never

    def add(self, verdict: Comparison) -> None:
        """Add the comparison of a further call. The worst result counts."""
        self.broken |= verdict.broken
        before = self.correct_from or verdict.correct_from
        self.correct_from = [max(a, b) for a, b in zip(before, verdict.correct_from, strict=True)]
        if verdict.status != RAN and self.status == RAN:
            self.status, self.message = verdict.status, verdict.message
        if verdict.worst and verdict.excess >= self.excess:
            self.worst, self.excess = verdict.worst, verdict.excess
