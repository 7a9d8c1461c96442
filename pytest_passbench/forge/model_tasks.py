"""The making of task files from one model: a user's own module, or an architecture from a model hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Task
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import choose, draw, make_task
from pytest_passbench.forge.decompose import calls
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.sequence_choice import Ops, SequenceChoice, candidates, select
from pytest_passbench.forge.user_model import fault_of
from pytest_passbench.forge.windows import (
    Window,
    first_size,
    fusible,
    matching,
    names,
    real_ops,
    typical_windows,
    window,
)
from pytest_passbench.suite.limits import limited_memory

QUOTA = 6
"""The most subgraphs of a task."""
MAX_RUNS = 100
"""The most runs of operators that are tried, if not three for each task asked for are more."""
MAX_RUNS_PER_OPERATOR = 4
"""The most short runs that are tried for an operator that no task has yet."""
MAX_SHORT, MAX_PLACES = 8, 3
"""The most calls of a short run, and the most places of an operator that short runs are taken from."""
MAX_MERGES = 200


@dataclass
class ModelTasks:
    """The tasks of a model, and the runs of operators that were refused: of each, the rule and what it says."""

    requested: int
    tasks: list[Task] = field(default_factory=list)
    refused: dict[Ops, tuple[str, str]] = field(default_factory=dict)

    @property
    def tried(self) -> int:
        """The number of runs of operators that were tried."""
        return len(self.tasks) + len(self.refused)

    def by_rule(self) -> list[tuple[str, int, str]]:
        """Return each rule that refused runs, how many these are, and an example; the most frequent rule first."""
        counts = Counter(rule for rule, _ in self.refused.values())
        examples: dict[str, str] = {}
        for ops, (rule, text) in self.refused.items():
            examples.setdefault(rule, f"{' '.join(ops)}: {text}")
        return [(rule, count, examples[rule]) for rule, count in counts.most_common()]


def make(case: ModelCase, count: int, progress: ProgressLines, remedy: str | None = None) -> ModelTasks:
    """Return up to ``count`` tasks of ``case``: of its fusible runs and repeated n-grams, the most valuable first.

    Short runs about operators that these leave out come after them. Raises UserError, with ``remedy``, if the model
    cannot be captured.
    """
    progress.stage(f"capturing {case.name}")
    graphs, result = _captured(case, remedy), ModelTasks(count)
    if graphs:
        variants = {graph.variant for graph in graphs}
        for left in (variant for variant in case.variants if variant not in variants):
            what = f"batch {left.batch}, size {left.size} is left out"
            progress.note(f"{what}: the model fails there, or computes something else")
        _RunSearch(case, graphs, result, progress).run()
    return result


def _captured(case: ModelCase, remedy: str | None) -> list[Graph]:
    with limited_memory():
        try:
            return capture_case(case)
        except UserError:
            raise
        except Exception as error:  # the model's own
            raise fault_of(case, error, remedy) from error


class _RunSearch:
    """The runs of a model's graphs, tried one after another until enough tasks are made."""

    def __init__(self, case: ModelCase, graphs: Sequence[Graph], result: ModelTasks, progress: ProgressLines) -> None:
        self.case, self.graphs, self.result, self.progress = case, graphs, result, progress
        whole = (real_ops(graphs[place], 0, len(calls(graphs[place].graph))) for place in first_size(graphs))
        self.names = {name for ops in whole for name in ops}
        self.attempts: Counter[str] = Counter()
        self.tried: set[Ops] = set()

    def run(self) -> None:
        """Try the fusible and the repeated runs, then short ones: first about operators that no task has yet."""
        self.progress.stage(
            f"looking for runs in {counted(len(self.graphs), 'graph')} with {counted(len(self.names), 'operator')}"
        )
        self._try(self._ranked([*fusible(self.graphs), *self._typical()]))
        if not self._ended():
            self.progress.stage("looking for short runs about operators that no task has yet")
            windows = list(short(self.graphs, self.names))
            self._try(self._about_new(self._ranked(windows)))
            self._try(self._ranked(windows))

    def _typical(self) -> list[Window]:
        return typical_windows({self.case.name: list(self.graphs)}, MAX_MERGES)

    def _ranked(self, windows: Iterable[Window]) -> list[SequenceChoice]:
        all_windows = list(windows)
        worth = candidates(all_windows, {self.case.name: self.case.modality})
        open_ones = [choice for choice in worth if choice.ops not in self.tried]
        return select(open_ones, max(MAX_RUNS, 3 * self.result.requested), quotas=False)

    def _about_new(self, ranked: Sequence[SequenceChoice]) -> Iterator[SequenceChoice]:
        for choice in ranked:
            new = set(choice.core) - {op for task in self.result.tasks for op in task.header.ops}
            if any(self.attempts[op] < MAX_RUNS_PER_OPERATOR for op in new):
                self.attempts.update(new)
                yield choice

    def _try(self, choices: Iterable[SequenceChoice]) -> None:
        for choice in choices:
            if self._ended():
                break
            self.progress.update(
                f"{counted(self.result.tried, 'run')} tried, {len(self.result.tasks)} of {self.result.requested} "
                f"tasks made; next: {' '.join(choice.ops)}"
            )
            self._curate(choice.ops)

    def _curate(self, ops: Ops) -> None:
        pool = draw(list(matching(self.graphs, {ops})), {self.case.name: self.graphs})
        instances = choose(pool, QUOTA)
        self.tried.add(ops)
        if instances.instances:
            self.result.tasks.append(make_task(instances.instances))
        else:
            self.result.refused[ops] = most_frequent(instances.refusals)

    def _ended(self) -> bool:
        return len(self.result.tasks) >= self.result.requested or self.result.tried >= max(
            MAX_RUNS, 3 * self.result.requested
        )


def short(graphs: Sequence[Graph], operators: Collection[str]) -> Iterator[Window]:
    """Yield every window of 2 to :data:`MAX_SHORT` calls about the first places of each of ``operators``."""
    counts: Counter[str] = Counter()
    for place in first_size(graphs):
        named = names(graphs[place])
        for spot, name in enumerate(named):
            if name not in operators or counts[name] == MAX_PLACES:
                continue
            counts[name] += 1
            for start in range(max(0, spot - MAX_SHORT + 1), spot + 1):
                for end in range(max(spot + 1, start + 2), min(start + MAX_SHORT, len(named)) + 1):
                    yield from window(graphs, place, start, end, "short")


def most_frequent(refusals: Sequence[str]) -> tuple[str, str]:
    """Return the rule that refused most of a run's instances, and what it said first."""
    if not refusals:
        return "inputs", "an input has a dtype that no task file has"
    parts = [(rule, text.strip()) for rule, _, text in (refusal.partition(":") for refusal in refusals)]
    rule = Counter(rule for rule, _ in parts).most_common(1)[0][0]
    return next(refusal for refusal in parts if refusal[0] == rule)
