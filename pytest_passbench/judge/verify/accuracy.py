"""The accuracy of a program over the calls that were also made in float64 (docs/accuracy.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_passbench.core.criterion import worst
from pytest_passbench.core.reference import OutputErrors

MAX_WORSE = 2  # levels of the ladder by which a call may be worse than those that were compared with float64


@dataclass
class Accuracy:
    """The accuracy of a program's outputs, over the calls that were also made in float64. The worst call counts.

    ``levels`` has for each output the largest ladder level of those calls.
    """

    errors: list[float] = field(default_factory=list)
    greatest_ratios: list[float] = field(default_factory=list)
    mean_ratios: list[float] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)
    _within: bool = True
    _lost: bool = False

    def add(self, call: Sequence[OutputErrors], levels: Sequence[int] = ()) -> None:
        """Add a call's errors and its ladder levels, one per output."""
        if self._lost:
            return
        self.levels = [max(pair) for pair in zip(self.levels, levels, strict=True)] if self.levels else [*levels]
        self.errors = worst(self.errors, [one.greatest for one in call])
        self.greatest_ratios = worst(self.greatest_ratios, [one.greatest_ratio for one in call])
        self.mean_ratios = worst(self.mean_ratios, [one.mean_ratio for one in call])
        self._within = self._within and all(one.within for one in call)

    def is_doubtful(self, levels: Sequence[int], null_from: int) -> bool:
        """Return True if the calls with references say nothing of a call with these ladder levels.

        So it is if an output's level is more than :data:`MAX_WORSE` worse than in any of them. It is so too if the
        level is worse at all, and a null answer has it as well (``null_from``).
        """
        if not self.levels:
            return False  # nothing was referenced, so nothing is concluded
        worse = [level - before for level, before in zip(levels, self.levels, strict=True)]
        return max(worse, default=0) > MAX_WORSE or (max(worse, default=0) > 0 and max(levels) >= null_from)

    def lose(self) -> None:
        """Drop all ratios for good: a doubtful call has no reference, so nothing is known of the accuracy."""
        self.errors, self.greatest_ratios, self.mean_ratios, self.levels, self._lost = [], [], [], [], True

    @property
    def accurate(self) -> bool:
        """True if the program is as accurate as eager. An answer without a reference is not."""
        return bool(self.greatest_ratios) and self._within
