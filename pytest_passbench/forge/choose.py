"""Step 4: which operator sequences become tasks. Greedy for rare operator bigrams, with room for every family."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_passbench.forge.clean import HEAVY
from pytest_passbench.forge.rules import IDENTITIES
from pytest_passbench.forge.windows import Window

Ops = tuple[str, ...]
LAYOUT = IDENTITIES | {"transpose", "permute", "unsqueeze", "chunk", "split", "t", "movedim", "unbind", "size",
                       "swapaxes", "narrow", "select", "arange", "zeros", "ones", "full", "tensor",
                       "stack"}  # fmt: skip
"""Operators that move or make values without computing with them."""

MAKERS = {"arange", "zeros", "ones", "full", "tensor", "linspace", "as_tensor", "new_ones", "new_zeros", "eye",
          "full_like", "zeros_like", "ones_like", "empty", "meshgrid", "stack"}  # fmt: skip
"""A sequence that begins with one of these begins with work that could be done once and kept."""
HEAVY_NAMES = {name.strip("_") for name in HEAVY}


@dataclass
class Choice:
    """One operator sequence and the windows that have it."""

    ops: Ops
    windows: list[Window] = field(default_factory=list)
    modality: str = ""

    @property
    def cases(self) -> set[str]:
        """The architectures that have it."""
        return {one.case for one in self.windows}

    @property
    def core(self) -> Ops:
        """The operators that compute."""
        return tuple(op for op in self.ops if op not in LAYOUT)


def candidates(windows: Iterable[Window], modality: Mapping[str, str]) -> list[Choice]:
    """The sequences with at least two operators, one of which computes, and at most 33."""
    found: dict[Ops, Choice] = {}
    for one in windows:
        if 2 <= len(one.ops) <= 33:
            found.setdefault(one.ops, Choice(one.ops)).windows.append(one)
    for candidate in found.values():
        votes = Counter(modality[one.case] for one in candidate.windows)
        candidate.modality = votes.most_common(1)[0][0]
    return [c for c in found.values() if is_worth(c)]


def is_worth(one: Choice) -> bool:
    """Whether enough of it computes, on inputs, and enough of that is left to a pass."""
    if one.ops[0] in MAKERS:
        return False
    light = [op for op in one.core if op not in HEAVY_NAMES]
    return len(one.core) * 3 >= len(one.ops) and len(light) >= 1 and len(light) * 4 >= len(one.ops)


LENGTHS = ((2, 3, 0.26), (4, 5, 0.28), (6, 8, 0.22), (9, 12, 0.12), (13, 20, 0.08), (21, 33, 0.04))
"""Shares of tasks by their number of operators: median 5, up to 33, as in the published suite."""
PER_CASE = 5
"""At most so many tasks that come from one architecture alone."""


def select(found: Sequence[Choice], count: int, always: Sequence[Ops] = ()) -> list[Choice]:
    """``count`` candidates (fewer if there are no more): ``always`` first, then by what is new and rare in each."""
    state = _State(found, count)
    known = {candidate.ops: candidate for candidate in found}
    for ops in always:
        if ops in known:
            state.take(known[ops])
    while len(state.chosen) < count:
        open_ones = [c for c in found if state.admits(c)]
        if not open_ones:
            break
        state.take(max(open_ones, key=lambda c: (state.gain(c), len(c.cases), c.ops)))
    return state.chosen


class _State:
    """What has been chosen so far, and what that leaves worth choosing."""

    def __init__(self, found: Sequence[Choice], count: int) -> None:
        self.count = count
        self.chosen: list[Choice] = []
        self.taken: set[Ops] = set()
        self.cores: Counter[Ops] = Counter()
        self.bigrams: Counter[tuple[str, str]] = Counter()
        self.operators: Counter[str] = Counter()
        self.lengths: Counter[tuple[int, int, float]] = Counter()
        self.cases: Counter[str] = Counter()
        self.modalities: Counter[str] = Counter()
        owners: dict[tuple[str, str], set[str]] = defaultdict(set)
        for candidate in found:
            for bigram in _bigrams(candidate.ops):
                owners[bigram] |= candidate.cases
        self.owners = {bigram: len(cases) for bigram, cases in owners.items()}

    def admits(self, one: Choice) -> bool:
        """Whether the quotas leave room for ``one``, and nothing chosen computes the same."""
        bucket = _bucket(one.ops)
        if one.ops in self.taken or self.cores[one.core] >= 2 or self.lengths[bucket] >= bucket[2] * self.count + 1:
            return False
        return len(one.cases) > 2 or min(self.cases[case] for case in one.cases) < PER_CASE

    def gain(self, one: Choice) -> float:
        """New bigrams and operators, rarer ones more; families seen often already count less."""
        new: float = sum(1.0 / (1 + 3 * self.bigrams[b]) * (1 + 1.0 / self.owners[b]) for b in _bigrams(one.ops))
        operators = sum(2.0 for op in set(one.ops) if not self.operators[op])
        crowd = 1.0 + 4.0 * self.modalities[one.modality] / max(1, self.count)
        fresh = sum(0.4 for case in one.cases if not self.cases[case])
        heavy: float = 1.0 - 0.6 * sum(op in HEAVY_NAMES for op in one.ops) / len(one.ops)
        worth: float = new / math.sqrt(len(one.ops)) + operators + min(fresh, 2.0)
        return heavy * (worth / crowd + 0.3 * min(len(one.cases), 6))

    def take(self, one: Choice) -> None:
        """Choose ``one``."""
        self.chosen.append(one)
        self.taken.add(one.ops)
        self.cores[one.core] += 1
        self.bigrams.update(_bigrams(one.ops))
        self.operators.update(set(one.ops))
        self.lengths[_bucket(one.ops)] += 1
        self.cases.update(one.cases)
        self.modalities[one.modality] += 1


def _bigrams(ops: Ops) -> list[tuple[str, str]]:
    return list(zip(("^", *ops), (*ops, "$"), strict=True))


def _bucket(ops: Ops) -> tuple[int, int, float]:
    return next(b for b in LENGTHS if b[0] <= len(ops) <= b[1])
