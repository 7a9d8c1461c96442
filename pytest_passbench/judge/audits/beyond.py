"""Calls on inputs outside the recorded range: a program that is right only inside it is wrong.

A wrong answer is not a violation, but it counts as inaccurate. An answer is wrong if it is NaN or infinite and
eager's is not, or if it is further off than rounding explains. Elements for which eager itself has no finite answer
are ignored.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pytest_passbench.core.agreement import pieces, surely_within
from pytest_passbench.core.ladder import NEVER, T_FROZEN, tolerances
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.beyond import Range, other_last_bits
from pytest_passbench.judge.verify.checker import DrawnRounds
from pytest_passbench.judge.verify.compare import Comparison
from pytest_passbench.judge.verify.outputs import Output, read_call
from pytest_passbench.judge.verify.standing import Standing
from pytest_passbench.timing.looks import FIRST_LOOK

MAX_SECONDS = 0.008  # for all ranges once. If they take longer, some are left out by chance, but none of large values
MAX_ELEMENTS = 1 << 16  # of an output that are compared, evenly spaced from a random place on
MEDIAN_ELEMENTS = 1 << 12  # of these, for the usual size of an element
MIN_SAMPLE = 64  # of these, elements that are not zero. If there are fewer, all elements are looked at
ROUNDING_LEVELS = 2  # levels of t that rounding may add to a tolerance that was met on ordinary inputs
DOUBT_FACTOR = 32  # times the change of eager's own answer when last bits of the inputs change
#: The most answers of eager's to inputs with other last bits. A single one often shows too little: after an attention
#: with weights of nearly 0 and 1, it changes few of the elements that rounding decides.
NEAR_ANSWERS = 8
MAX_SHARE = 0.25  # of the dtype's greatest number: above it, rounding decides between finite and infinite


class BeyondRounds:
    """The rounds after which calls beyond the range are made, each with its share of the ranges.

    A kernel can know the number of its pair, by its process id or the time since the program was built. So every pair
    has such a round, and a kernel that saw one cannot know when the next one comes (:class:`DrawnRounds`). The first
    ``FIRST_LOOK`` such rounds ask about all ranges, and so do each as many that follow.
    """

    def __init__(self, rng: random.Random, rounds: int, ranges: Sequence[Range]) -> None:
        """Draw the rounds. A pair has ``rounds`` rounds or more."""
        self._rng, self._ranges, self._rounds = rng, ranges, DrawnRounds(rng, rounds)
        self._shares: list[list[Range]] = []
        self.unasked = list(ranges)

    def after(self, before: int) -> list[Range]:
        """Return the ranges to ask about after a round. ``before`` is the number of earlier rounds of its pair."""
        if not self._rounds.comes_after(before) or not self._ranges:
            return []
        if not self._shares:
            dealt = self._rng.sample(self._ranges, len(self._ranges))
            dealt *= -(-FIRST_LOOK // len(dealt))  # no share is empty
            self._shares = [dealt[place::FIRST_LOOK] for place in range(FIRST_LOOK)]
            self._rng.shuffle(self._shares)  # some have one range more
        share = self._shares.pop()
        self.unasked = [beyond for beyond in self.unasked if beyond not in share]
        return share


@dataclass
class Beyond:
    """The calls on inputs outside the recorded range. Their results are added to ``standing``.

    Blocks have ``calls`` calls, as the timed ones. The calls in question are at drawn places among ordinary ones. So
    no kernel can recognise them by the place of their inputs.
    """

    bench: Bench
    standing: Standing
    calls: int
    thorough: bool = False

    def __post_init__(self) -> None:
        self._rng = self.bench.secret.stream("audit")
        self._spent = 0.0  # seconds, without the candidate's: else a slow candidate would be called less

    def run(self, runners: Mapping[str, Runner], ranges: Sequence[Range]) -> None:
        """Call both arms on these ranges: on large values always, on others while there is time.

        The time limit is their share of :data:`MAX_SECONDS`. If ``thorough`` is set, all are called. Raises ArmFailed
        if the candidate fails. A failure of eager ends the range, or all of them if eager's process failed.
        """
        limit = MAX_SECONDS * len(ranges) / len(self.bench.inputs.ranges())
        ordered = sorted(self._rng.sample(ranges, len(ranges)), key=lambda beyond: not beyond.doubtful)
        groups = [ordered[begin : begin + self.calls] for begin in range(0, len(ordered), self.calls)]
        while groups and not self.standing.wrong:
            group = groups.pop(0)
            if not self.thorough and self._spent > limit:
                group = [beyond for beyond in group if beyond.doubtful]
            try:
                with blaming(EAGER):
                    self._ask(group, runners)
            except ArmFailed as failed:
                if failed.arm == CANDIDATE:
                    raise
                if failed.failure.status != "runtime_fail":
                    return
                if len(group) > 1:
                    groups = [*([beyond] for beyond in group), *groups]

    def _ask(self, group: Sequence[Range], runners: Mapping[str, Runner]) -> None:
        """Call both arms in a block with a call for each range of a group."""
        if not group:
            return
        begin = time.monotonic()
        if len(group) < self.calls:
            self.bench.inputs.write(self.bench.inputs.draw(self.calls), self.bench.pages)
        places = self._rng.sample(range(self.calls), len(group))
        inputs, pairs = self.bench.inputs, zip(group, places, strict=True)
        questions = [_Question(inputs, beyond, place, self._rng.getrandbits(64)) for beyond, place in pairs]
        for question in questions:
            for index, value in enumerate(question.values()):
                self.bench.pages.put(index, question.place, value)
        expected = self._answers(runners[EAGER], places)
        self._spent += time.monotonic() - begin
        with blaming(CANDIDATE):
            runners[CANDIDATE].block(self.calls)
            answers = [
                read_call(runners[CANDIDATE], place, right) for place, right in zip(places, expected, strict=True)
            ]
        for beyond, question, right, answer in zip(group, questions, expected, answers, strict=True):
            self._compare(beyond, question, right, answer, runners[EAGER])

    def _compare(
        self, beyond: Range, question: _Question, expected: list[Output], answers: list[Output], eager: Runner
    ) -> None:
        few_changed = beyond.altered is not None  # a sample of the elements may have none of the changed ones
        place, levels = None if few_changed else self._rng.random(), self.standing.correct_from
        near: list[list[Output]] = []
        while True:
            verdict = judged(expected, near, answers, self.bench.tolerance, beyond.name, levels, place)
            explicable = verdict.broken and verdict.status != "type_mismatch" and beyond.doubtful
            if not explicable or len(near) == NEAR_ANSWERS:
                break
            near.append(self._near(question, eager))
        self.standing.add(verdict)

    def _near(self, question: _Question, eager: Runner) -> list[Output]:
        """Return eager's answer to inputs with other last bits."""
        for index, value in enumerate(question.values()):
            near = other_last_bits(value, self._rng) if index in question.inputs.movable else value
            self.bench.pages.put(index, question.place, near)
        return self._answers(eager, [question.place])[0]

    def _answers(self, eager: Runner, places: Sequence[int]) -> list[list[Output]]:
        with self.bench.deadline.paused():
            eager.block(self.calls)
            return [read_call(eager, place) for place in places]


class _Question:
    """A call on inputs outside the recorded range, at a ``place`` of its block. ``seed`` draws its special values."""

    def __init__(self, inputs: Inputs, beyond: Range, place: int, seed: int) -> None:
        self.inputs, self.place = inputs.beyond(beyond), place
        self._beyond, self._seed = beyond, seed
        self._batch = self.inputs.draw(1)

    def values(self) -> list[torch.Tensor]:
        """Return its inputs, the same at each call."""
        values, index = self.inputs.call(self._batch, 0), self._beyond.index
        if self._beyond.altered is not None and index is not None:
            values[index] = self._beyond.altered(values[index], random.Random(self._seed))
        return values


def judged(
    expected: list[Output],
    near: Sequence[list[Output]],
    answer: list[Output],
    tolerance: int,
    range_name: str,
    levels: list[int],
    place: float | None = None,
) -> Comparison:
    """Return the comparison of an answer with eager's.

    ``near`` are eager's answers to inputs with other last bits, if there are any. ``levels`` are the smallest t at
    which each output was right so far. ``place``, from 0 to 1, decides which elements of a large output are compared;
    None compares all. ``range_name`` stands in messages.
    """
    verdict = Comparison(correct_from=list(levels))
    for index, (eager, output) in enumerate(zip(expected, answer, strict=False)):
        others = [value for outputs in near if (value := outputs[index].value) is not None]
        if eager.value is None or len(others) < len(near):
            continue
        if not output.form.like(eager.form):
            verdict.status, verdict.correct_from[index], verdict.broken = "type_mismatch", NEVER, True
            verdict.message = f"output {index} is not {eager.form.describe()}, which eager returns {range_name}"
            continue
        if output.value is None:
            continue
        if tolerances(eager.form.dtype, tolerance) == (0.0, 0.0) or eager.value.is_complex():
            continue  # integers: rounding at an edge makes them differ by 1
        wrong = _first_wrong(eager.value, output.value, others, tolerance, place)
        if wrong is None:
            continue
        where, right, value = wrong
        verdict.correct_from[index], verdict.broken = NEVER, True
        verdict.worst = f"output {index}{where}: expected {right:.9g}, got {value:.9g} {range_name}"
        verdict.excess = float("inf")
        if value != value or abs(value) == float("inf"):
            verdict.status = "nan_inf"
            verdict.message = f"output {index}: NaN or Inf where eager has none, {range_name}"
    return verdict


def _first_wrong(
    expected: torch.Tensor, actual: torch.Tensor, near: Sequence[torch.Tensor], tolerance: int, place: float | None
) -> tuple[list[int], float, float] | None:
    """Return the first element that rounding does not explain, if any: index, eager's value, the arm's value."""
    shapes = {value.shape for value in (expected, actual, *near)}
    if len(shapes) > 1 or expected.dtype != actual.dtype or not expected.numel():
        return None
    info, name = torch.finfo(expected.dtype), str(expected.dtype).removeprefix("torch.")
    step = 1 if place is None else -(-expected.numel() // MAX_ELEMENTS)
    first, close = int((place or 0.0) * step), tolerances(name, tolerance)
    flat = [tensor.flatten()[first::step] for tensor in (expected, actual, *near)]
    parts, begin = list(zip(*map(pieces, flat), strict=True)), 0
    surely = [surely_within(right, answer, *close) for right, answer, *_ in parts]
    if all(surely):
        return None
    most = MAX_SHARE * info.max
    relative, _ = tolerances(name, min(tolerance + ROUNDING_LEVELS, T_FROZEN))
    absolute = close[1] + 4 * info.tiny + DOUBT_FACTOR * max(_greatest_change(part, most) for part in parts)
    usual = _usual_size(flat[0], most)
    for part, within in zip(parts, surely, strict=True):
        if not within:
            a, b, *others = (tensor.double() for tensor in part)
            limit = a.abs().clamp_min_(usual).mul_(relative).add_(absolute)
            wrong = _comparable(a, others, most) & ~((a - b).abs() <= limit)
            if bool(wrong.any()):
                index = int(wrong.int().argmax())
                where = np.unravel_index(first + (begin + index) * step, expected.shape)
                return list(map(int, where)), float(a[index]), float(b[index])
        begin += part[0].numel()
    return None


def _comparable(expected: torch.Tensor, near: Sequence[torch.Tensor], most: float) -> torch.Tensor:
    """Return for each element whether all of eager's answers are finite, and this one's size is below ``most``."""
    comparable = expected.abs() < most
    for answer in near:
        comparable &= answer.isfinite()
    return comparable


def _greatest_change(part: Sequence[torch.Tensor], most: float) -> float:
    """Return how far eager's answers to other last bits are from its answer. ``part``: that, the arm's, and these."""
    expected, _, *near = (tensor.double() for tensor in part)
    comparable = _comparable(expected, near, most)
    changes = ((answer - expected).abs().masked_fill_(~comparable, 0.0) for answer in near)
    return max((float(change.amax()) for change in changes), default=0.0)


def _usual_size(expected: torch.Tensor, most: float) -> float:
    """Return the median size of sampled elements between 0 and ``most``; 0 if there are no such elements."""
    for step in (-(-expected.numel() // MEDIAN_ELEMENTS) | 1, 1):  # an odd one meets every column of a matrix
        sizes = expected[::step].double().abs()
        sizes = sizes[(sizes > 0) & (sizes < most)]
        if sizes.numel() >= MIN_SAMPLE:
            break
    return float(sizes.median()) if sizes.numel() else 0.0
