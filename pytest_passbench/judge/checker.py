"""Verification of calls drawn after their block, gathered over a subgraph's rounds."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from ..score.ladder import NEVER
from .arm import Runner
from .clock import EAGER, blaming
from .inputs import Batch, Inputs
from .outputs import Output, read_call
from .verify import Verdict, compare, null_from

NULL_CALLS = 2


@dataclass
class Standing:
    """How an arm stands after the calls verified so far."""

    status: str = "correct"
    message: str = ""
    correct_from: list[int] = field(default_factory=list)
    worst: str = ""
    excess: float = 0.0
    calls: int = 0

    def add(self, verdict: Verdict) -> None:
        """Take a further call's verdict in: the worst counts."""
        self.calls += 1
        before = self.correct_from or [min(verdict.correct_from, default=NEVER)] * len(verdict.correct_from)
        self.correct_from = [max(a, b) for a, b in zip(before, verdict.correct_from, strict=True)]
        if verdict.status != "correct" and self.status == "correct":
            self.status, self.message = verdict.status, verdict.message
        if verdict.worst and verdict.excess >= self.excess:
            self.worst, self.excess = verdict.worst, verdict.excess


class Checker:
    """Compares every arm's outputs with eager's for calls drawn once the round is over."""

    def __init__(self, inputs: Inputs, mutated: Sequence[int], tolerance: int, rng: random.Random) -> None:
        self._inputs, self._mutated, self._tolerance, self._rng = inputs, tuple(mutated), tolerance, rng
        self.standings: dict[str, Standing] = {}
        self.null_from = NEVER
        self.dtypes: list[str] = []
        self.share = 1.0
        self._null_calls = 0

    def after_round(self, runners: Mapping[str, Runner], batch: Batch, calls: int) -> None:
        """Verify one call of the round just finished, or none: ``share`` of the rounds are verified."""
        if self._rng.random() < self.share:
            self.check(runners, batch, self._rng.randrange(calls))

    def check(self, runners: Mapping[str, Runner], batch: Batch, call: int) -> None:
        """Compare call number ``call``. Raises ArmFailed where an arm's outputs can't be read."""
        expected = self._read(EAGER, runners[EAGER], call)
        self.dtypes = [output.form.dtype or "int64" for output in expected]
        self._note_null(expected, batch, call)
        for arm, runner in runners.items():
            if arm != EAGER:
                found = self._read(arm, runner, call)
                verdict = compare(expected, found, self._tolerance, self._names(len(expected)))
                self.standings.setdefault(arm, Standing()).add(verdict)

    @staticmethod
    def _read(arm: str, runner: Runner, call: int) -> list[Output]:
        with blaming(arm):
            return read_call(runner, call)

    def _names(self, count: int) -> list[str]:
        outputs = count - len(self._mutated)
        changed = [f"input {self._inputs.name(index)} (changed in place)" for index in self._mutated]
        return [f"output {index}" for index in range(outputs)] + changed

    def _note_null(self, expected: list[Output], batch: Batch, call: int) -> None:
        if self._null_calls >= NULL_CALLS:
            return
        level = null_from(expected, self._input_values(batch, call))
        self.null_from = level if self._null_calls == 0 else max(self.null_from, level)
        self._null_calls += 1

    def _input_values(self, batch: Batch, call: int) -> list[torch.Tensor]:
        return [self._inputs.values(index, window) for index, window in enumerate(batch[call])]
