"""The judge of one process: takes the subgraphs of tasks through its sandboxes, in order and within a budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task, larger
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.names import CANDIDATE
from pytest_passbench.judge.attempts import Attempts
from pytest_passbench.judge.case import Case, smallest_first
from pytest_passbench.judge.case_judge import CaseJudge
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.graph_matches import GraphMatch, Matching
from pytest_passbench.judge.held_out import FurtherSizes
from pytest_passbench.judge.machine.process import ProcessLimits, give_back
from pytest_passbench.judge.measure.allowance import DEFAULT, QUICK
from pytest_passbench.judge.trial import Trial
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.find import TaskRef
from pytest_passbench.suite.limits import check_memory
from pytest_passbench.suite.taskfile import task_hash

AGAIN_SHARE = 0.75  # of a candidate's time that must be left to measure again, which takes longer than the first time


class Session:
    """A judge of tasks for candidates, and a context manager; its sandboxes end with it.

    ``expected`` is the number of subgraphs that it will be asked for, as far as its caller knows: a budget is spread
    over them. If it is ``thorough``, the machine's noise (eager against eager) is measured too. If it also
    ``repeats``, subgraphs whose verdict noise kept open are measured again.
    """

    def __init__(self, settings: Settings, seed: bytes, worker: int = 0) -> None:
        """``worker`` tells parallel judges apart, from 0. Raises UserError if this machine has no sandbox."""
        self.settings, self._seed = settings, seed
        self.expected, self.thorough, self.repeats = 0, True, True
        self.equipment = Equipment(settings, worker)
        self.case_judge = CaseJudge(self.equipment)
        self._attempts = Attempts(self.equipment)
        self._further_sizes = FurtherSizes(self.equipment, self._attempts)
        self._matching = Matching(settings.policy, settings.device, self.equipment.readers, self._candidates_sandbox)
        self._limits = ProcessLimits()
        self._turns: Counter[tuple[str, str, str]] = Counter()  # how often each case was asked for

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every sandbox, and give the caller's process its number of torch threads back."""
        self._matching.close()
        self.equipment.close()

    def begin(self, seed: bytes) -> None:
        """Begin a new run, with its own budget and with ``seed`` as its secret, in the sandboxes of the run before.

        Unless :attr:`repeats` is set, subgraphs are measured in less time.
        These stay: the sandboxes without any process of a candidate's, eager's built programs, the baselines'
        results, and what is known of the machine's noise. Whatever a candidate's code has touched is ended or
        removed. Sandboxes that are missing start in the background.
        """
        self._seed, self.expected = seed, 0
        self._turns.clear()
        self.case_judge.begin(DEFAULT if self.repeats else QUICK)
        self.equipment.begin()
        self.start()

    def start(self) -> None:
        """Start the sandboxes that are missing, in the background. From now on, eager's programs are kept."""
        self.equipment.programs.enabled = not is_cuda(self.settings.device)  # a device's template becomes its runner
        self._choose_arms()
        self.equipment.readers.arm()
        self.equipment.arms()

    def _choose_arms(self) -> None:
        """Decide whether eager has a twin. For one subgraph alone, a twin costs more time than it is worth."""
        lasting = self.equipment.programs.enabled or self.case_judge.budget.expected > 1
        self.equipment.twin = self.thorough and lasting

    def _candidates_sandbox(self) -> Arm:
        return self.equipment.sandboxes.arms([CANDIDATE])[CANDIDATE]

    def environment(self) -> dict[str, Any]:
        """Return where the run takes place, JSON-ready (docs/results.md)."""
        return self.equipment.environment()

    def noise(self) -> dict[str, Any]:
        """Return what eager against eager showed of this machine so far, JSON-ready (docs/results.md)."""
        return self.case_judge.noise.to_json()

    def touches(self, ref: TaskRef, candidate: Candidate) -> bool:
        """Return True if a pass matches, or if a mistake prevents an answer. Raises UserError for a broken task."""
        try:
            return any(match.name for match in self.matches(ref, candidate))
        except ArmFailure:
            return True

    def matches(self, ref: TaskRef, candidate: Candidate) -> Iterator[GraphMatch]:
        """Yield each graph of the task with the first pass that matches it, or with the nearest miss.

        Raises UserError for a broken task, ArmFailure if a mistake in the candidate prevents an answer.
        """
        return self._matching.of(ref, candidate)

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """Yield a record per subgraph, as soon as it is judged.

        Raises UserError for a broken task, and if the judge's own limits were lowered meanwhile.
        The smallest subgraph of each dtype comes first. If Triton's interpreter runs it, its record names the larger
        ones of that dtype, and they are left out.

        If noise kept a verdict open, or the candidate differs from a reference, programs built anew are measured at
        the end of the task. The record is then yielded once more, and the later one counts.
        """
        self._matching.close()  # its processes would count as strays in the candidate's sandbox
        check_graphs(task)
        hashed = task_hash(task)  # for all cases, since it takes milliseconds
        cases = [self._case(task, subgraph, candidate, hashed) for subgraph in smallest_first(task)]
        for case in cases:
            check_memory(case.subgraph, task.path)
        budget, baselines = self.case_judge.budget, self.case_judge.baselines
        budget.begin(len(cases), self.expected)
        self._choose_arms()
        unsettled: list[Trial] = []
        left_out: set[str] = set()
        for case in cases:
            if case.subgraph.id in left_out:
                budget.skip()
                continue
            record, trial = self._first(case)
            self._limits.check()
            if trial is not None and self._is_repeated(trial):
                unsettled.append(trial)
            left_out.update(record.left_out)
            baselines.keep(case, record)
            yield record
        yield from self._repeat(unsettled)
        unsettled.clear()
        give_back()  # a task's tensors are gone, and nothing is timed now

    def _repeat(self, trials: Sequence[Trial]) -> Iterator[Record]:
        """Measure cases again with programs built anew, while there is time, and yield their new records."""
        for trial in trials:
            if self.case_judge.budget.spare(sum(trial.record.durations.values())):
                case = trial.case
                record, _ = self._attempts.judge(case, partial(self.case_judge.remeasure, trial))
                self._limits.check()
                if record.judged:  # else the first record stays
                    self._further_sizes.judge(case, record, self.case_judge.noise, "held out again")
                    self.case_judge.baselines.keep(case, record)
                    yield record

    def _case(self, task: Task, subgraph: Subgraph, candidate: Candidate, hashed: str) -> Case:
        key = (task.id, subgraph.id, candidate.name)
        self._turns[key] += 1
        return Case(task, subgraph, candidate, self.settings.pipeline, self._seed, self._turns[key] - 1, hashed)

    def _first(self, case: Case) -> tuple[Record, Trial | None]:
        """Judge a case for the first time, and note its cost. Return its record, and its trial if there was one."""
        judging, budget = partial(self.case_judge.first, case), self.case_judge.budget
        record, trial = self._attempts.judge(case, judging) if case.fault is None else judging(False)
        if trial is None:
            budget.skip()
            return record, None
        self._further_sizes.judge(case, record, self.case_judge.noise)
        pairs = 0 if trial.measured is None else len(trial.measured.pairs)
        budget.done(record.durations, pairs, len(trial.orders))
        if trial.interpreted:
            record.left_out = larger(case.task, case.subgraph)
        return record, trial

    def _is_repeated(self, trial: Trial) -> bool:
        """Return True if a second measurement may settle the verdict, and the candidate has time left for it."""
        ran, deadline = trial.record.arm.status == RAN, trial.bench.deadline
        enough = deadline.left() > AGAIN_SHARE * deadline.limit
        return self.thorough and self.repeats and trial.unsettled and ran and enough
