"""The verification of calls that are drawn after their block, over all rounds of a subgraph.

Any verified call may be compared with float64, since eager in float64 can be called after the probe too.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch

from pytest_passbench.core.criterion import worst
from pytest_passbench.core.float64_errors import ReferenceOutput, references
from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.null_answers import inputs_left_out, mostly_nan
from pytest_passbench.core.record import RAN
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.forks import ArmFailed, blaming
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, FLOAT64, REFERENCE
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.inputs import Batch, Inputs
from pytest_passbench.judge.verify.compare import Comparison, compare, null_from
from pytest_passbench.judge.verify.memory import (
    call_at,
    changed_input,
    overlap,
    overwrite,
    owners,
    shared_by_calls,
    shares_more,
)
from pytest_passbench.judge.verify.outputs import Output, output_table, read_call
from pytest_passbench.judge.verify.standing import Standing, mean_distance
from pytest_passbench.protocol import Layout
from pytest_passbench.timing.measurement import FEWEST_PAIRS

HALVES = (torch.bfloat16, torch.float16)
MAX_SECONDS = 0.001  # expected for all references of a subgraph (outputs in float64) after the probe
EXPECTED_CALLS = 16  # that are verified after the probe
NULL_CALLS = 2  # that null answers are tried on
OVERWRITTEN_CALLS = 3  # after each round, for each candidate. The allocator may use other memory in the next round
LATE_SHARE = 1 / 3  # drawn rounds, on average, in a stretch of later rounds that is as long as the first one
OVERWRITTEN_SHARE = 0.8  # of the verified calls have an output where a line was overwritten after the round before


@dataclass(frozen=True)
class WrongCall:
    """A call whose half-precision answer is not correct at t: its inputs and the candidate's outputs."""

    inputs: Sequence[torch.Tensor]
    answer: Sequence[torch.Tensor]


class LateFloat64:
    """The probe's runner of eager in float64, which stays stopped except for a call now and then.

    A verified call gets a reference by chance. The chance is such that all references take :data:`MAX_SECONDS` on
    average. A call gets one in any case if the checker asks for it.
    """

    def __init__(self, runner: Runner, bench: Bench, seconds: float) -> None:
        """Take over a runner. ``seconds`` is the time of a reference."""
        self._runner: Runner | None = runner
        self._bench = bench
        self._draws = bench.secret.stream("calls in float64")
        self._chance = MAX_SECONDS / (EXPECTED_CALLS * max(seconds, 1e-6))

    def outputs(
        self, values: Sequence[torch.Tensor], always: bool = False, changed: Collection[int] | None = None
    ) -> list[Output] | None:
        """Return the outputs in float64 on these inputs. Return None for most calls, unless ``always`` is set.

        ``changed`` has the indices of the inputs that differ from those of the call before; None stands for all.
        The call overwrites the first slot of the pages, so everything else of a block must be read before. A failure
        ends the runner, and is no arm's failure.
        """
        by_chance = self._draws.random() < self._chance
        if self._runner is None or not (always or by_chance):
            return None
        for index, value in enumerate(values):
            if changed is None or index in changed:
                self._bench.pages.put(index, 0, value)
        try:
            with self._bench.deadline.paused():
                self._runner.block(1)
                return read_call(self._runner, 0)
        except ArmFailure:
            self.close()
            return None

    def close(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._runner = None


def refuse_mostly_nan(expected: Sequence[Output]) -> None:
    """Raise ArmFailed for eager if one of its outputs is mostly NaN."""
    for index, output in enumerate(expected):
        share = None if output.value is None else mostly_nan(output.value)
        if share is not None:
            message = (
                f"output {index} of eager is NaN in {100 * share:.0f} % of its elements on inputs drawn as recorded; "
                "correct the bounds that the task records (min, max) for its inputs"
            )
            raise ArmFailed(EAGER, ArmFailure("runtime_fail", "verify", message))


def accepts_left_out(
    late: LateFloat64, references: Sequence[ReferenceOutput], values: Sequence[torch.Tensor], mutates: bool
) -> bool | None:
    """Return True if an answer without one of the large inputs is as accurate as eager's; None if eager has failed.

    ``references`` are those of the call with these ``values``. ``mutates`` says whether the graph changes inputs. The
    first slot of the pages is overwritten.
    """
    before: int | None = None
    for index, _, others in inputs_left_out(values):
        changed = None if mutates or before is None else (before, index)
        answer, before = late.outputs(others, always=True, changed=changed), index
        if answer is None:
            return None  # the process has ended, so no further call has an answer either
        pairs = zip(references, answer, strict=True)
        if all(reference.accepts(output.value) for reference, output in pairs):
            return True
    return False


class DrawnRounds:
    """Rounds of a pair that the judge looks at, drawn by chance, one at least in each pair.

    A kernel can tell that a round was looked at: by the time between its blocks, by its inputs, or by pages that only
    the judge touches. This must not make the rounds that follow safer for it. So after a drawn round the next one is
    drawn as the first one was, over as many rounds as each pair has, whether or not the pair has so many left. Then
    all is as when the pair began: the next m of n rounds hold a drawn one with chance m/n. While none is drawn, the
    chance of the next only rises. A pair of many rounds has e - 1 = 1.7 drawn ones on average, a pair of 4 has 1.4.

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


class Checker:
    """The checker of a subgraph, which compares outputs with eager's for calls drawn once the round is over."""

    def __init__(
        self,
        inputs: Inputs,
        layout: Layout,
        mutated: Sequence[int],
        tolerance: int,
        rng: random.Random,
        by_engine: Collection[str] = (),
    ) -> None:
        """Set up for a subgraph. ``by_engine`` are the arms whose blocks the engine makes."""
        self._inputs, self._layout, self._mutated = inputs, layout, tuple(mutated)
        self._tolerance, self._rng, self._by_engine = tolerance, rng, by_engine
        self.standings: dict[str, Standing] = {}
        self.eager_errors: list[float] = []
        self.null_from, self.null_accurate = NEVER, True
        #: The first call in which the candidate's answer in half precision was not correct at t.
        self.wrong_call: WrongCall | None = None
        #: True if an answer with an input left out is as accurate as eager's.
        self.accepts_left_out = False
        #: Eager in float64 for some of the calls after the probe, if it runs, and the seconds of the last comparison.
        self.late: LateFloat64 | None = None
        self.reference_seconds = 0.0
        self.dtypes: list[str] = []
        self.share = 1.0  # of the probe's rounds that are verified
        self._rounds: DrawnRounds | None = None
        self._pairs_left = math.inf
        self._null_calls = 0
        self._overwritten: list[tuple[str, int]] = []  # arms and addresses of lines overwritten after the last round
        self._tables: dict[str, bytes] = {}  # by arm, where the outputs of this pair's first block lay
        self._first: tuple[list[ReferenceOutput], list[torch.Tensor]] | None = None

    def expect_pairs(self, rounds: int) -> None:
        """Draw the rounds to verify from now on, when they come in pairs of ``rounds`` or more."""
        self._rounds = DrawnRounds(self._rng, rounds)
        self._pairs_left = self._rng.randint(1, FEWEST_PAIRS)

    def after_round(self, runners: Mapping[str, Runner], batch: Batch, calls: int, before: int) -> None:
        """Verify one call of the round just finished, or none, by chance. Most such calls wrote to overwritten lines.

        Each pair has one at least, whatever it costs (:class:`DrawnRounds`). In one of the first pairs, the first one
        has a reference. ``before`` is the number of earlier rounds of the same pair. Raises ArmFailed.
        """
        self._pairs_left -= before == 0
        overwritten, self._overwritten = [] if before == 0 else self._overwritten, []
        drawn = self._rng.random() < self.share if self._rounds is None else self._rounds.comes_after(before)
        if drawn:
            referenced = self._pairs_left == 0
            if referenced:
                self._pairs_left = math.inf
            call = self._rng.randrange(calls)
            if self._rng.random() < OVERWRITTEN_SHARE:
                for arm, address in overwritten:
                    with blaming(arm):
                        there = call_at(runners[arm], calls, address)
                    call = call if there is None else there
            self.check(runners, batch, call, referenced)
            self._look_at_calls(runners, calls)
        if self._rounds is not None:
            self._look_at_places(runners, calls, before)
            self._overwrite(runners, calls)

    def _overwrite(self, runners: Mapping[str, Runner], calls: int) -> None:
        """Overwrite lines of outputs of the candidates, which the next round has to write again."""
        for arm in (arm for arm in runners if arm in (CANDIDATE, REFERENCE)):
            drawn = self._rng.sample(range(calls), min(calls, OVERWRITTEN_CALLS))
            with blaming(arm):
                lines = overwrite(runners[arm], self._layout, drawn, self._rng)
            self._overwritten += [(arm, address) for address in lines]
        self._rng.shuffle(self._overwritten)

    def _look_at_places(self, runners: Mapping[str, Runner], calls: int, before: int) -> None:
        """Check that outputs lie where they lay in the pair's first block, if the engine makes the calls.

        A program could write what is the same in every answer, such as the zeros beside a diagonal, beforehand, into
        memory for many blocks.
        """
        for arm in (arm for arm in runners if arm in (CANDIDATE, REFERENCE) and arm in self._by_engine):
            with blaming(arm):
                table = output_table(runners[arm], calls)
            if before == 0:
                self._tables[arm] = table
            standing = self.standings[arm]
            if table != self._tables[arm] and standing.status == RAN:
                standing.status = "integrity"
                standing.message = "outputs lie in other memory than in an earlier block; the engine's never do"

    def check(self, runners: Mapping[str, Runner], batch: Batch, call: int, referenced: bool = False) -> None:
        """Compare the outputs of a call, in any case with float64 if it is ``referenced``. Raises ArmFailed."""
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
        with_references = self.late is not None or FLOAT64 in outputs
        levels, distances = dict[str, list[int]](), dict[str, list[float]]()
        for arm, runner in runners.items():
            if arm not in (EAGER, FLOAT64):
                with blaming(arm):
                    verdict = compare(expected, outputs[arm], self._tolerance, self._names(len(expected)))
                    self._look_at_memory(runner, call, sharing, outputs[arm], values, verdict)
                if arm == CANDIDATE and self.wrong_call is None and verdict.worst and not self._mutated:
                    self._note_wrong_call(values, outputs[arm])
                standing = self.standings.setdefault(arm, Standing())
                standing.add(verdict)
                standing.stability.add(verdict.correct_from, expected, outputs[arm], self._tolerance)
                levels[arm] = verdict.correct_from
                pairs = zip(expected, outputs[arm], strict=False) if with_references else ()
                distances[arm] = [mean_distance(eager.value, output.value) for eager, output in pairs]
        exact = outputs.get(FLOAT64) or self._late_outputs(values, levels, distances, referenced)
        if exact is not None:
            self._note_accuracy(exact, outputs, values, levels, distances)

    def _note_wrong_call(self, values: list[torch.Tensor], outputs: Sequence[Output]) -> None:
        answer = [output.value for output in outputs if output.value is not None]
        if len(answer) == len(outputs) and any(value.dtype in HALVES for value in answer):
            self.wrong_call = WrongCall(values, answer)

    def _late_outputs(
        self,
        values: list[torch.Tensor],
        levels: Mapping[str, Sequence[int]],
        distances: Mapping[str, Sequence[float]],
        always: bool,
    ) -> list[Output] | None:
        """Return the outputs in float64 if ``always`` is set, if an arm's answer is worse than before, or by chance.

        Else a program could be exact only in the call that is always compared. An arm whose answer is far worse than
        before loses its accuracy if there are no such outputs (None).
        """
        accuracies = {arm: self.standings[arm].accuracy for arm in levels}
        doubtful = any(item.is_doubtful(levels[arm], distances[arm]) for arm, item in accuracies.items())
        exact = self.late.outputs(values, always=always or doubtful) if self.late is not None else None
        if exact is None:
            for arm, accuracy in accuracies.items():
                if accuracy.is_far_worse(levels[arm], self.null_from):
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
        sharing: list[set[int]],
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
                sharing = overlap(runner, self._layout, calls)
            if sharing is not None:
                with blaming(EAGER):
                    shared = shared_by_calls(runners[EAGER], self._layout, calls)
                with blaming(arm):
                    sharing = overlap(runner, self._layout, calls, shared)
            if sharing is not None:
                standing.status, standing.message = "type_mismatch", str(sharing)

    def _note_null(self, expected: list[Output], values: list[torch.Tensor]) -> None:
        if self._null_calls >= NULL_CALLS or (self._null_calls and self.null_from == NEVER):
            return
        level = null_from(expected, values)
        self.null_from = level if self._null_calls == 0 else max(self.null_from, level)
        self._null_calls += 1

    def use_later(self, late: LateFloat64, bench: Bench) -> None:
        """Take over eager in float64 for the calls after the probe, and try to leave out each large input.

        An answer without one of them is a null answer. Each content of a subgraph is tried once by a judge.
        """
        self.late = late
        if self._first is not None:
            accepts = bench.null_by_omission.get(bench.content)
            if accepts is None:
                accepts = accepts_left_out(late, *self._first, bool(self._mutated))
            if accepts is not None:
                bench.null_by_omission[bench.content] = accepts
            self.accepts_left_out, self._first = bool(accepts), None

    def _note_accuracy(
        self,
        exact: list[Output],
        outputs: Mapping[str, list[Output]],
        values: list[torch.Tensor],
        levels: Mapping[str, Sequence[int]],
        distances: Mapping[str, Sequence[float]],
    ) -> None:
        """Note each arm's errors against float64, if the graph has a float64 form."""
        begin = time.perf_counter()
        call_references = references(*([item.value for item in items] for items in (exact, outputs[EAGER])))
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
                errors = [reference.errors(output.value) for reference, output in pairs]
                standing.accuracy.add(errors, levels[arm], distances[arm])
        self.reference_seconds = time.perf_counter() - begin
