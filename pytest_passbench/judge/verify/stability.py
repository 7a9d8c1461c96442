"""The stability of an arm's answers: right in some calls and far off in others is no rounding.

A few elements of an honest kernel may flip between calls, where rounding decides a comparison. So a call counts as
far off only if a good part of an output is. In float16 an intermediate value may overflow by chance, so NaN and
infinities of float16 do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from pytest_passbench.judge.verify.outputs import Output

ROUNDING_LEVELS = 2  # levels of t by which an honest kernel may miss a tolerance that it met in other calls
#: Units of the dtype's precision by which it may also miss, relative to the element or to the output's median. For
#: example, the rounding of a logit in bfloat16 changes a probability by a seventh.
ROUNDING_UNITS = 32
FAR_SHARE = 1 / 16  # of an output's elements that are far off in a call that counts as such


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
        for index, (level, ours, theirs) in enumerate(zip(levels, expected, outputs, strict=False)):
            if level <= t:
                self.right.add(index)
            elif level > t + ROUNDING_LEVELS and far_share(ours.value, theirs.value) > FAR_SHARE:
                self.far.add(index)


def far_share(expected: torch.Tensor | None, answer: torch.Tensor | None) -> float:
    """Return the share of elements that rounding does not explain. It is 0 for tensors that cannot be compared."""
    if expected is None or answer is None or expected.shape != answer.shape or expected.dtype != answer.dtype:
        return 0.0
    if expected.numel() == 0 or expected.is_complex():
        return 0.0
    if not expected.is_floating_point():
        return float((expected != answer).double().mean())
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
