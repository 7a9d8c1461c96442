"""The verification of calls that are drawn after their block, over all rounds of a subgraph."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from pytest_passbench.core.criterion import worst
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.record import RAN
from pytest_passbench.core.reference import ReferenceOutput, references
from pytest_passbench.judge.arms.forks import blaming
from pytest_passbench.judge.arms.names import EAGER, FLOAT64
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.inputs import Batch, Inputs
from pytest_passbench.judge.verify.accuracy import Accuracy
from pytest_passbench.judge.verify.aliasing import changed_input, owners, shares_more
from pytest_passbench.judge.verify.compare import Comparison, compare, null_from
from pytest_passbench.judge.verify.late import LateReference
from pytest_passbench.judge.verify.left_out import accepts_left_out
from pytest_passbench.judge.verify.mostly_nan import refuse_mostly_nan
from pytest_passbench.judge.verify.outputs import Output, read_call
from pytest_passbench.judge.verify.overlap import overlap, shared_by_calls
from pytest_passbench.judge.verify.stability import Stability
from pytest_passbench.protocol import Layout

NULL_CALLS = 2  # that null answers are tried on
#: One call of a pair's first rounds is verified in any case. So many more are by chance, or fewer if verifying takes
#: longer than so many seconds. Each further stretch of a pair, as long as the first, adds the least number. An arm
#: can't know which calls they are, so late cheating is seen too.
MIN_VERIFIED, MAX_VERIFIED, MAX_VERIFY_SECONDS = 1 / 3, 1.5, 0.004


@dataclass
class Standing:
    """The results of an arm in the calls verified so far."""

    status: str = RAN
    message: str = ""
    correct_from: list[int] = field(default_factory=list)
    worst: str = ""
    excess: float = 0.0
    calls: int = 0
    broken: bool = False
    accuracy: Accuracy = field(default_factory=Accuracy)
    stability: Stability = field(default_factory=Stability)

    @property
    def wrong(self) -> bool:
        """True if no criterion accepts the answers so far."""
        never = NEVER in self.correct_from and not self.accuracy.accurate
        return self.status != RAN or self.broken or never

    def add(self, verdict: Comparison) -> None:
        """Add the comparison of a further call. The worst result counts."""
        self.calls += 1
        self.broken |= verdict.broken
        before = self.correct_from or [min(verdict.correct_from, default=NEVER)] * len(verdict.correct_from)
        self.correct_from = [max(a, b) for a, b in zip(before, verdict.correct_from, strict=True)]
        if verdict.status != RAN and self.status == RAN:
            self.status, self.message = verdict.status, verdict.message
        if verdict.worst and verdict.excess >= self.excess:
            self.worst, self.excess = verdict.worst, verdict.excess


class Checker:
    """The checker of a subgraph, which compares outputs with eager's for calls drawn once the round is over."""

    def __init__(
        self, inputs: Inputs, layout: Layout, mutated: Sequence[int], tolerance: int, rng: random.Random
    ) -> None:
        self._inputs, self._layout, self._mutated = inputs, layout, tuple(mutated)
        self._tolerance, self._rng = tolerance, rng
        self.standings: dict[str, Standing] = {}
        self.eager_errors: list[float] = []
        self.null_from, self.null_accurate = NEVER, True
        #: An answer with an input left out is as accurate as eager's.
        self.accepts_left_out = False
        #: Eager in float64 for some of the calls after the probe, if there is one; and the seconds of judging by one.
        self.late: LateReference | None = None
        self.reference_seconds = 0.0
        self.dtypes: list[str] = []
        self.share, self._late, self._late_share = 1.0, math.inf, 0.0
        self._certain = -1
        self._null_calls = 0
        self._first: tuple[list[ReferenceOutput], list[torch.Tensor]] | None = None

    def expect_pairs(self, rounds: int, spent: float) -> None:
        """Set how many calls to verify from now on, when rounds come in pairs of ``rounds`` or more.

        ``spent`` are the seconds of verifying so far.
        """
        verified = max((standing.calls for standing in self.standings.values()), default=1)
        calls = min(MAX_VERIFIED, MAX_VERIFY_SECONDS * verified / max(spent, 1e-6))
        self.share = min(1.0, max(0.0, calls - 1) / rounds)
        self._late, self._late_share = rounds, min(1.0, MIN_VERIFIED / rounds)

    def after_round(self, runners: Mapping[str, Runner], batch: Batch, calls: int, before: int) -> None:
        """Verify one call of the round just finished, or none, by chance. All calls are equally likely.

        ``before`` is the number of earlier rounds of the same pair. Raises ArmFailed.
        """
        if before == 0 and self._late < math.inf:
            self._certain = self._rng.randrange(int(self._late))
        by_chance = self._rng.random() < (self.share if before < self._late else self._late_share)
        if by_chance or before == self._certain:
            self.check(runners, batch, self._rng.randrange(calls))
            self._look_at_calls(runners, calls)

    def check(self, runners: Mapping[str, Runner], batch: Batch, call: int) -> None:
        """Compare the outputs of call number ``call``. Raises ArmFailed if an arm's outputs can't be read."""
        expected = self._read(EAGER, runners[EAGER], call)
        outputs = {EAGER: expected}
        for arm in set(runners) - {EAGER}:
            outputs[arm] = self._read(arm, runners[arm], call, () if arm == FLOAT64 else expected)
        values = self._inputs.call(batch, call)
        self.dtypes = [output.form.dtype or "int64" for output in expected]
        if not self.standings:
            refuse_mostly_nan(expected)
        self._note_null(expected, values)
        sharing = owners(runners[EAGER], self._layout, expected, call)
        levels: dict[str, list[int]] = {}
        for arm, runner in runners.items():
            if arm not in (EAGER, FLOAT64):
                with blaming(arm):
                    verdict = compare(expected, outputs[arm], self._tolerance, self._names(len(expected)))
                    self._look_at_memory(runner, call, sharing, outputs[arm], values, verdict)
                standing = self.standings.setdefault(arm, Standing())
                standing.add(verdict)
                standing.stability.add(verdict.correct_from, expected, outputs[arm], self._tolerance)
                levels[arm] = verdict.correct_from
        exact = outputs.get(FLOAT64) or self._late_outputs(values, levels)
        if exact is not None:
            self._note_accuracy(exact, outputs, values, levels)

    def _late_outputs(self, values: list[torch.Tensor], levels: Mapping[str, Sequence[int]]) -> list[Output] | None:
        """Return the outputs in float64 by chance, or because the references so far say nothing of an arm's answer.

        Else a program could be exact only in the call that is always compared with float64.
        """
        accuracies = {arm: self.standings[arm].accuracy for arm in levels}
        doubtful = [item for arm, item in accuracies.items() if item.is_doubtful(levels[arm], self.null_from)]
        exact = self.late.outputs(values, always=bool(doubtful)) if self.late is not None else None
        if exact is None:
            for accuracy in doubtful:
                accuracy.lose()
        return exact

    @staticmethod
    def _read(arm: str, runner: Runner, call: int, like: Sequence[Output] = ()) -> list[Output]:
        with blaming(arm):
            return read_call(runner, call, like)

    def _names(self, count: int) -> list[str]:
        outputs = count - len(self._mutated)
        changed = [f"input {self._inputs.name(index)} (changed in place)" for index in self._mutated]
        return [f"output {index}" for index in range(outputs)] + changed

    def _look_at_memory(
        self,
        runner: Runner,
        call: int,
        sharing: list[int],
        outputs: list[Output],
        values: list[torch.Tensor],
        verdict: Comparison,
    ) -> None:
        """Check sharing and mutation, if the values themselves are right."""
        if verdict.status != RAN:
            return
        changed = changed_input(runner, self._layout, call, values, self._mutated)
        shared = shares_more(sharing, owners(runner, self._layout, outputs, call))
        if changed is not None:
            verdict.status = "integrity"
            verdict.message = f"input {self._inputs.name(changed)} was changed in place; eager leaves it alone"
        elif shared is not None:
            verdict.status = "type_mismatch"
            verdict.message = f"{self._names(len(outputs))[shared]} shares memory that eager's does not share"

    def _look_at_calls(self, runners: Mapping[str, Runner], calls: int) -> None:
        """Check that calls share no memory of outputs, unless eager's do too."""
        for arm, runner in runners.items():
            standing = self.standings.get(arm)
            if standing is None or standing.status != RAN:
                continue
            with blaming(arm):
                found = overlap(runner, self._layout, calls)
            if found is not None:
                with blaming(EAGER):
                    shared = shared_by_calls(runners[EAGER], self._layout, calls)
                with blaming(arm):
                    found = overlap(runner, self._layout, calls, shared)
            if found is not None:
                standing.status, standing.message = "type_mismatch", str(found)

    def _note_null(self, expected: list[Output], values: list[torch.Tensor]) -> None:
        if self._null_calls >= NULL_CALLS or (self._null_calls and self.null_from == NEVER):
            return
        level = null_from(expected, values)
        self.null_from = level if self._null_calls == 0 else max(self.null_from, level)
        self._null_calls += 1

    def use_later(self, late: LateReference) -> None:
        """Take over eager in float64 for the calls after the probe, and try to leave out each large input.

        If an answer without one of them is as accurate as eager's, then a null answer is.
        """
        self.late = late
        if self._first is not None:
            self.accepts_left_out = accepts_left_out(late, *self._first)
            self._first = None

    def _note_accuracy(
        self,
        exact: list[Output],
        outputs: Mapping[str, list[Output]],
        values: list[torch.Tensor],
        levels: Mapping[str, Sequence[int]],
    ) -> None:
        """Note each arm's errors against float64, if the graph has a float64 form."""
        begin = time.perf_counter()
        call_references = references(_values(exact), _values(outputs[EAGER]))
        if call_references is None:
            return
        self.null_accurate = self.null_accurate and all(
            reference.accepts_null(values) for reference in call_references
        )
        self._first = self._first or (call_references, values)
        self.eager_errors = worst(self.eager_errors, [reference.greatest for reference in call_references])
        for arm, standing in self.standings.items():
            if arm in outputs:
                pairs = zip(call_references, outputs[arm], strict=True)
                standing.accuracy.add([reference.errors(output.value) for reference, output in pairs], levels[arm])
        self.reference_seconds = time.perf_counter() - begin


def _values(outputs: Sequence[Output]) -> list[torch.Tensor | None]:
    return [output.value for output in outputs]
