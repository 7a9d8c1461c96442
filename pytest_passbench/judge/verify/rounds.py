"""The rounds of a pair that the judge looks at, drawn so that a kernel learns nothing from those that are over."""

from __future__ import annotations

import random

LATE_SHARE = 1 / 3  # of a stretch of later rounds as long as the first, on average


class DrawnRounds:
    """Rounds drawn by chance, one at least in each pair.

    A kernel can tell that a round was looked at: by the time between its blocks, by its inputs, or by pages that only
    the judge touches. So this must not make the rounds that follow safer. After a drawn round the next one is drawn
    as the first one was, over as many rounds as each pair has, whether or not the pair has so many left. A kernel
    that saw a round drawn is thus where it was when the pair began: the next m of n rounds hold one with chance m/n.
    While none is drawn, the chance of the next only rises. A pair has e - 1 = 1.7 on average (1.4 of 4 rounds).

    Rounds beyond the first ones, which only some pairs have, are drawn each by itself.
    """

    def __init__(self, rng: random.Random, rounds: int) -> None:
        """Set up for pairs of ``rounds`` rounds or more."""
        self._rng, self._rounds, self._next = rng, rounds, 0

    def comes_after(self, before: int) -> bool:
        """Return True if a round that ended, after ``before`` others of its pair, is drawn. Ask in order."""
        if before == 0:
            self._next = self._rng.randrange(self._rounds)
        if before >= self._rounds:
            return self._rng.random() * self._rounds < LATE_SHARE
        drawn = before == self._next
        if drawn:
            self._next += self._rng.randint(1, self._rounds)
        return drawn
