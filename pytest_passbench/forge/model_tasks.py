"""The making of task files from one model: a user's own module, or an architecture from a model hub."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from torch.fx import Node

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Task
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import curated_instances, make_task
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.sequence_choice import SequenceChoice, about_new, candidates, select
from pytest_passbench.forge.user_model import as_user_error
from pytest_passbench.forge.windows import Ops, Window, about, first_size, fusible, typical_windows
from pytest_passbench.suite.opnames import op_name, operator_sequence

QUOTA = 6
"""The most subgraphs of a task."""
MAX_RUNS = 100
"""The most runs of operators that are tried, or three for each requested task if those are more."""
MAX_PLACES = 3
"""The most places of an operator that short runs are taken from."""
SHORT = tuple((before, after) for before in range(7, -1, -1) for after in range(max(1, 2 - before), 9 - before))
"""The short runs around an operator, of 2 to 8 calls: how many before it, and how many from it on."""
MAX_MERGES = 200


@dataclass
class ModelTasks:
    """The tasks of a model, and the runs of operators that were refused, each with the rule and its complaint."""

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

    Short runs around operators that these leave out come after them. Raises UserError, with ``remedy``, if the model
    cannot be captured.
    """
    progress.stage(f"capturing {case.name}")
    result = ModelTasks(count)
    with as_user_error(case, remedy):
        graphs = capture_case(case)
    if graphs:
        variants = {graph.variant for graph in graphs}
        for left in (variant for variant in case.variants if variant not in variants):
            what = f"batch {left.batch}, size {left.size} is left out"
            progress.note(f"{what}: the model fails there, or computes something else")
        _RunSearch(case, graphs, result, progress).run()
    return result


class _RunSearch:
    """The runs of a model's graphs, tried one after another until enough tasks are made."""

    def __init__(self, case: ModelCase, graphs: Sequence[Graph], result: ModelTasks, progress: ProgressLines) -> None:
        self.case, self.graphs, self.result, self.progress = case, graphs, result, progress
        self.corpus = {case.name: graphs}
        self.max_runs = max(MAX_RUNS, 3 * result.requested)
        self.names = {name for place in first_size(graphs) for name in operator_sequence(graphs[place].graph.nodes)}
        self.covered: set[str] = set()
        self.tried: set[Ops] = set()

    def run(self) -> None:
        """Try the fusible and the repeated runs, then short ones, first around operators that no task has yet."""
        self.progress.stage(
            f"looking for runs in {counted(len(self.graphs), 'graph')} with {counted(len(self.names), 'operator')}"
        )
        self._try(self._ranked([*fusible(self.graphs), *typical_windows(self.corpus, MAX_MERGES)]))
        if not self._ended():
            self.progress.stage("looking for short runs about operators that no task has yet")
            windows = self._short()
            self._try(about_new(self._ranked(windows), self.covered, lambda choice: choice.core))
            self._try(self._ranked(windows))

    def _short(self) -> list[Window]:
        places: Counter[str] = Counter()

        def is_early(node: Node) -> bool:
            places[op_name(node)] += 1
            return op_name(node) in self.names and places[op_name(node)] <= MAX_PLACES

        return list(about(self.graphs, is_early, SHORT, "short"))

    def _ranked(self, windows: Iterable[Window]) -> list[SequenceChoice]:
        choices = candidates(windows, {self.case.name: self.case.modality})
        return select([c for c in choices if c.ops not in self.tried], self.max_runs, quotas=False)

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
        curated = curated_instances(ops, self.corpus, QUOTA)
        self.tried.add(ops)
        if curated.instances:
            self.result.tasks.append(make_task(curated.instances))
            self.covered.update(ops)
        else:
            self.result.refused[ops] = most_frequent(curated.refusals)

    def _ended(self) -> bool:
        return len(self.result.tasks) >= self.result.requested or self.result.tried >= self.max_runs


def most_frequent(refusals: Sequence[str]) -> tuple[str, str]:
    """Return the rule that refused most of a run's instances, and its first complaint."""
    if not refusals:
        what = "an input of the run is float16, bfloat16 or complex"
        return "inputs", f"{what}: give the model in float32, its other dtypes are made of it"
    parts = [(rule, text.strip()) for rule, _, text in (refusal.partition(":") for refusal in refusals)]
    rule = Counter(rule for rule, _ in parts).most_common(1)[0][0]
    return next(refusal for refusal in parts if refusal[0] == rule)
