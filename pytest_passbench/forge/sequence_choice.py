"""The greedy choice of the operator sequences that become tasks: rare operator bigrams and all modalities count."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_passbench.core.grouping import grouped
from pytest_passbench.forge.clean import HEAVY
from pytest_passbench.forge.rules import IDENTITIES
from pytest_passbench.forge.windows import MAX_OPERATORS, Ops, Window

LAYOUT = IDENTITIES | {"transpose", "permute", "unsqueeze", "chunk", "split", "t", "movedim", "unbind", "size",
                       "swapaxes", "narrow", "select", "arange", "zeros", "ones", "full", "tensor",
                       "stack"}  # fmt: skip
"""Operators that move or make values without computing with them."""

MAKERS = {"arange", "zeros", "ones", "full", "tensor", "linspace", "as_tensor", "new_ones", "new_zeros", "eye",
          "full_like", "zeros_like", "ones_like", "empty", "meshgrid", "stack"}  # fmt: skip
"""A sequence that begins with one of these begins with work that a pass could do once and keep."""
HEAVY_NAMES = {name.strip("_") for name in HEAVY}
MAX_TRIES = 4
"""The most sequences that are tried for an operator that no task has yet."""


@dataclass
class SequenceChoice:
    """An operator sequence, and the windows that have it."""

    ops: Ops
    windows: list[Window] = field(default_factory=list)
    modality: str = ""

    @property
    def cases(self) -> set[str]:
        """The architectures that have it."""
        return {window.case for window in self.windows}

    @property
    def is_convolutional(self) -> bool:
        """True if it has a convolution."""
        return any(op.startswith("conv") for op in self.ops)

    @property
    def has_outputs(self) -> bool:
        """True if most of its windows have two outputs or more."""
        return 2 * sum(window.outputs > 1 for window in self.windows) > len(self.windows)

    @property
    def core(self) -> Ops:
        """The operators that compute."""
        return tuple(op for op in self.ops if op not in LAYOUT)


def candidates(windows: Iterable[Window], modality: Mapping[str, str]) -> list[SequenceChoice]:
    """Return the sequences of 2 to :data:`MAX_OPERATORS` operators that are worth a task (:func:`is_worth`).

    ``modality`` maps architectures to their modality.
    """
    choices = []
    fitting = (window for window in windows if 2 <= len(window.ops) <= MAX_OPERATORS)
    for ops, alike in grouped(fitting, lambda window: window.ops).items():
        votes = Counter(modality[window.case] for window in alike)
        choices.append(SequenceChoice(ops, alike, votes.most_common(1)[0][0]))
    return [c for c in choices if is_worth(c)]


def is_worth(choice: SequenceChoice) -> bool:
    """Return True if a sequence is worth a task.

    At least a third of its operators must compute. At least a quarter must compute without being heavy
    (:data:`pytest_passbench.forge.clean.HEAVY`), since a pass can improve only these. The first must not be one
    of :data:`MAKERS`.
    """
    if choice.ops[0] in MAKERS:
        return False
    light = [op for op in choice.core if op not in HEAVY_NAMES]
    return len(choice.core) * 3 >= len(choice.ops) and len(light) >= 1 and len(light) * 4 >= len(choice.ops)


def about_new(
    choices: Iterable[SequenceChoice], covered: Collection[str], operators: Callable[[SequenceChoice], Ops]
) -> Iterator[SequenceChoice]:
    """Yield the sequences with an operator that no task covers yet, at most :data:`MAX_TRIES` for each such operator.

    ``operators`` returns the operators of a sequence that count. ``covered`` may grow while the sequences are drawn.
    """
    tries: Counter[str] = Counter()
    for choice in choices:
        new = {op for op in operators(choice) if op not in covered and tries[op] < MAX_TRIES}
        if new:
            tries.update(new)
            yield choice


LENGTHS = ((2, 3, 0.26), (4, 5, 0.28), (6, 8, 0.22), (9, 12, 0.12), (13, 20, 0.08), (21, 33, 0.04))
"""Shares of tasks by number of operators (least, most, share): median 5, up to 33, as in the published suite."""
MAX_TASKS_PER_CASE = 5
"""A sequence of one or two architectures is taken only while one of them has fewer tasks than this."""
MAX_ALONE = 0.5
"""The greatest share of tasks from one architecture alone."""
CONVOLUTIONAL, OUTPUTS = 0.3, 0.45
"""The shares of tasks with a convolution, and with two outputs or more, up to which such tasks are preferred. In the
published suite, 32 % of the subgraphs have a convolution. Some sequences fail the rules, hence the margin.
"""
WANTED_OPERATORS = frozenset(("multi_head_attention_forward", "hardsigmoid", "prelu", "triu", "tile", "full", "min",
                              "abs"))  # fmt: skip
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
WANTED_PAIRS = frozenset([("conv2d", "view"), ("conv2d", "sigmoid"), ("embedding", "add"), ("linear", "view"),
                          *((op, "masked_fill") for op in COMPARISONS)])  # fmt: skip
"""Operators and pairs of the published tasks that few of our architectures have."""


def select(
    choices: Sequence[SequenceChoice], count: int, always: Sequence[Ops] = (), quotas: bool = True
) -> list[SequenceChoice]:
    """Return ``count`` candidates, if there are as many: ``always`` first, then those with the largest gain.

    ``quotas`` bound the shares of lengths (:data:`LENGTHS`) and of single architectures
    (:data:`MAX_TASKS_PER_CASE`); they make no sense for one model.
    """
    state = _SequenceSelection(choices, count, quotas)
    choice_of = {candidate.ops: candidate for candidate in choices}
    for ops in always:
        if ops in choice_of:
            state.take(choice_of[ops])
    while len(state.selection) < count:
        open_ones = [c for c in choices if state.admits(c)]
        if not open_ones:
            break
        state.take(max(open_ones, key=lambda c: (state.gain(c), len(c.cases), c.ops)))
    return state.selection


class _SequenceSelection:
    """The sequences chosen so far, and counts from which the gain of another one is computed."""

    def __init__(self, choices: Sequence[SequenceChoice], count: int, quotas: bool) -> None:
        self.count, self.quotas = count, quotas
        self.selection: list[SequenceChoice] = []
        self.selected_ops: set[Ops] = set()
        self.cores: Counter[Ops] = Counter()
        self.bigrams: Counter[tuple[str, str]] = Counter()
        self.operators: Counter[str] = Counter()
        self.lengths: Counter[tuple[int, int, float]] = Counter()
        self.cases: Counter[str] = Counter()
        self.modalities: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        owners = {(pair, case) for choice in choices for case in choice.cases for pair in _bigrams(choice.ops)}
        self.owners = Counter(pair for pair, _case in owners)

    def admits(self, choice: SequenceChoice) -> bool:
        """Return True if the quotas leave room for ``choice``, and at most one chosen sequence has the same core."""
        bucket = _bucket(choice.ops)
        if choice.ops in self.selected_ops or self.cores[choice.core] >= 2:
            return False
        if not self.quotas:
            return True
        if self.lengths[bucket] >= bucket[2] * self.count + 1:
            return False
        if len(choice.cases) == 1 and self.kinds["alone"] >= MAX_ALONE * self.count:
            return False
        return len(choice.cases) > 2 or min(self.cases[case] for case in choice.cases) < MAX_TASKS_PER_CASE

    def gain(self, choice: SequenceChoice) -> float:
        """Return the value of ``choice``: new bigrams and operators, rare ones more; in crowded modalities less."""
        new: float = sum(1.0 / (1 + 3 * self.bigrams[b]) * (1 + 1.0 / self.owners[b]) for b in _bigrams(choice.ops))
        operators = sum(2.0 for op in set(choice.ops) if not self.operators[op])
        crowd = 1.0 + 4.0 * self.modalities[choice.modality] / max(1, self.count)
        fresh = sum(0.4 for case in choice.cases if not self.cases[case])
        heavy: float = 1.0 - 0.6 * sum(op in HEAVY_NAMES for op in choice.ops) / len(choice.ops)
        worth: float = new / math.sqrt(len(choice.ops)) + operators + min(fresh, 2.0)
        return heavy * (worth / crowd + 0.3 * min(len(choice.cases), 6)) + self.preference(choice)

    def preference(self, choice: SequenceChoice) -> float:
        """Return the additional value of features of the published tasks that too few chosen sequences have."""
        rare = sum(2.0 for op in WANTED_OPERATORS.intersection(choice.ops) if self.operators[op] < 3)
        rare += sum(1.5 for pair in WANTED_PAIRS.intersection(pairwise(choice.ops)) if self.bigrams[pair] < 3)
        convolutional = choice.is_convolutional and self.kinds["convolutional"] < CONVOLUTIONAL * self.count
        outputs = choice.has_outputs and self.kinds["outputs"] < OUTPUTS * self.count
        return rare + 1.5 * convolutional + 1.0 * outputs

    def take(self, choice: SequenceChoice) -> None:
        """Choose ``choice``."""
        self.selection.append(choice)
        self.selected_ops.add(choice.ops)
        self.cores[choice.core] += 1
        self.bigrams.update(_bigrams(choice.ops))
        self.operators.update(set(choice.ops))
        self.lengths[_bucket(choice.ops)] += 1
        self.cases.update(choice.cases)
        self.modalities[choice.modality] += 1
        is_one_of = {
            "alone": len(choice.cases) == 1,
            "convolutional": choice.is_convolutional,
            "outputs": choice.has_outputs,
        }
        self.kinds.update(name for name, holds in is_one_of.items() if holds)


def _bigrams(ops: Ops) -> list[tuple[str, str]]:
    return list(zip(("^", *ops), (*ops, "$"), strict=True))


def _bucket(ops: Ops) -> tuple[int, int, float]:
    return next(b for b in LENGTHS if b[0] <= len(ops) <= b[1])
