"""The steps that make this project's own suite, which no user's model needs.

They can be stopped and started again: finished files are not made anew.

``capture`` makes a file per architecture. ``windows`` finds the fusible runs of each architecture, and the
typical n-grams of all. ``select`` chooses the operator sequences. ``curate`` makes a task file per sequence. Some of
these tasks make the suite, and the others are for training. Graphs and windows lie in files of JSON, which nothing
executes. :func:`verify` compares committed tasks with those of a fresh capture.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Task, TensorSpec
from pytest_passbench.forge import windows
from pytest_passbench.forge.capture import Captured
from pytest_passbench.forge.corpus import Corpus, Graph, capture_case
from pytest_passbench.forge.curate import curated_instances, draw, make_task, task_id
from pytest_passbench.forge.decompose import MODEL_NAME
from pytest_passbench.forge.instances import DTYPES
from pytest_passbench.forge.jobs import Job, run_jobs
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.forge.normal_form import canonical_source, digest
from pytest_passbench.forge.sequence_choice import SequenceChoice, about_new, candidates, select
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.opnames import op_name
from pytest_passbench.suite.printing import GraphPrinter
from pytest_passbench.suite.taskfile import read_task, write_task

MAX_STATEMENTS = 50_000
"""The most statements of a captured graph. Those of a whole model are many more than a task may have."""
LITE = tuple(
    tuple(line.split())
    for line in """
dropout add layer_norm
add relu
to pow mean add rsqrt mul to mul
add to pow mean add rsqrt mul to mul
silu mul
relu square
div tanh mul add softmax to dropout
mul pow mul add mul tanh add mul
pow mean add rsqrt mul mul
add add softmax
batch_norm silu
batch_norm relu
add view softmax
mul add layer_norm
add permute layer_norm
mul softmax dropout
mul sigmoid mul
add softplus
group_norm silu
mean add div mul mul add
""".strip().splitlines()
)
"""The operator sequences of the lite tasks."""
MAX_LITE_SUBGRAPHS, MAX_TRAIN_SUBGRAPHS, MIN_SUBGRAPHS = 5, 6, 3
QUOTAS = ((0.50, 9), (0.90, 17), (1.0, 40))
"""(share, subgraphs): the most subgraphs of a task in the first ``share`` of the tasks, few architectures first."""
SHORT = ((1, 1), (0, 2), (2, 1), (1, 2), (0, 3), (2, 3), (3, 2), (4, 4))
"""The short runs that are tried around an operator that no task has: how many before it, and from it on."""


def save_graphs(graphs: Sequence[Graph], path: Path) -> int:
    """Write the graphs that can be printed as source text, and return their number."""
    documents = [document for graph in graphs if (document := _document(graph)) is not None]
    write_text(path, json.dumps(documents))
    return len(documents)


def load_graphs(path: Path) -> list[Graph]:
    """Return the graphs of a file that :func:`save_graphs` wrote. Node names are ``in_0``, ``tmp_0``, ..."""
    return [_graph_of(document, path) for document in json.loads(path.read_text(encoding="utf-8"))]


def _document(graph: Graph) -> dict[str, Any] | None:
    printer = GraphPrinter()
    try:
        source = printer.text(graph.graph.nodes)
    except UserError:
        return None
    names = {node.name: name for node, name in printer.names.items()}
    return {
        "case": graph.case,
        "modality": graph.modality,
        "note": graph.note,
        "variant": astuple(graph.variant),
        "index": graph.index,
        "source": source,
        "values": {names[k]: astuple(v)[1:7] for k, v in graph.captured.values.items() if k in names},  # shape to max
        "low": {names[k]: v for k, v in graph.low.items() if k in names},
        "follows": sorted(names[k] for k in graph.follows if k in names),
        "original": {new: old for old, new in names.items() if new.startswith("in_")},
    }


def _graph_of(document: dict[str, Any], path: Path) -> Graph:
    source, values, original = (document.pop(key) for key in ("source", "values", "original"))
    module = build_graph(source, str(path), statements=MAX_STATEMENTS)
    for node in module.graph.find_nodes(op="placeholder"):
        node.meta[MODEL_NAME] = original[node.name]
    stats = {name: TensorSpec(name, tuple(shape), *others) for name, (shape, *others) in values.items()}
    changes = {"variant": Variant(*document["variant"]), "follows": frozenset(document["follows"])}
    return Graph(captured=Captured(module, stats), **{**document, **changes})


def save_windows(windows: Sequence[windows.Window], path: Path) -> None:
    """Write the windows as JSON."""
    write_text(path, json.dumps([astuple(item) for item in windows]))


def load_windows(path: Path) -> list[windows.Window]:
    """Return the windows that :func:`save_windows` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [
        windows.Window(case, place, start, end, tuple(ops), *rest) for case, place, start, end, ops, *rest in rows
    ]


@dataclass(frozen=True)
class TaskOutline:
    """A task to make: its operators, its tag, and its greatest number of subgraphs."""

    ops: windows.Ops
    tag: str
    quota: int


@dataclass(frozen=True)
class Recipe:
    """The folder of a run's work. ``processes`` jobs run at a time, for ``timeout`` seconds at most each."""

    work: Path
    processes: int = 1
    timeout: float = 200.0

    def tasks(self, steps: Collection[str], cases: Sequence[ModelCase], count: int, train: int) -> list[Task]:
        """Do these steps. Return ``count`` tasks for the suite, and the others that were made, tagged ``train``."""
        if "capture" in steps:
            self.make("captures", ".json", [(case.name, functools.partial(_capture, case)) for case in cases])
        if "windows" in steps:
            paths = sorted((self.work / "captures").glob("*.json"), key=lambda path: digest([path.name]))
            self.make("fusible", ".json", [(path.stem, functools.partial(_fusible, path)) for path in paths])
            if not self.typical.exists():
                save_windows(windows.typical_windows(self.corpus), self.typical)
        if not {"select", "curate", "write"}.intersection(steps):
            return []
        outlines = self.selection(count * 3 // 2, train)  # about a third of them fail the rules
        if "curate" in steps:
            self.curate(outlines)
            self.curate(self.uncovered())
        suite, rest = split(self.curated(), count) if "write" in steps else ([], [])
        return [*suite, *rest]

    def make(self, folder: str, suffix: str, works: Iterable[tuple[str, Callable[[Path], object]]]) -> None:
        """Run a job for each name, which makes a file. If it fails, a file with the reason lies beside the others."""
        jobs = []
        for name, work in works:
            target = self.work / folder / f"{name.replace('/', '__')}{suffix}"
            jobs.append(Job(name, target, functools.partial(work, target)))
        run_jobs(jobs, self.processes, self.timeout, ProgressLines("forge"))

    @property
    def typical(self) -> Path:
        """The file of the typical n-grams."""
        return self.work / "typical.json"

    @cached_property
    def corpus(self) -> Corpus:
        """The graphs of every case that was captured."""
        captures = map(load_graphs, sorted((self.work / "captures").glob("*.json")))
        return {graphs[0].case: graphs for graphs in captures if graphs}

    def candidates(self, drawn: Iterable[windows.Window]) -> list[SequenceChoice]:
        """Return the sequences of these windows that are worth a task."""
        return candidates(drawn, {case: graphs[0].modality for case, graphs in self.corpus.items()})

    def selection(self, count: int, train: int) -> list[TaskOutline]:
        """Return ``count`` sequences for the suite and ``train`` others. The choice is kept in ``selected.json``."""
        target = self.work / "selected.json"
        if not target.exists():
            files = [*sorted((self.work / "fusible").glob("*.json")), self.typical]
            explicit = [w for graphs in self.corpus.values() for w in windows.matching(graphs, set(LITE), 1)]
            drawn = [*explicit, *(w for path in files if path.exists() for w in load_windows(path))]
            choices = select(self.candidates(drawn), count + train, LITE)
            write_text(target, json.dumps(list(map(astuple, _outlines(choices, count)))))
        return [TaskOutline(tuple(ops), tag, quota) for ops, tag, quota in json.loads(target.read_text("utf-8"))]

    def curate(self, outlines: Iterable[TaskOutline]) -> None:
        """Make a task file of every sequence that has at least three subgraphs that pass the rules."""
        works = [(task_id(outline.ops), functools.partial(_curate, outline, self.corpus)) for outline in outlines]
        self.make("curated", ".task.yaml", works)

    def curated(self) -> list[Task]:
        """Return the tasks of the curate step."""
        return [read_task(path) for path in sorted((self.work / "curated").glob("*.task.yaml"))]

    def uncovered(self) -> list[TaskOutline]:
        """Return short sequences around the operators, at each model's first size, that no curated task has yet."""
        covered = {op for task in self.curated() for op in task.header.ops}
        done = {path.name.partition(".")[0] for path in (self.work / "curated").iterdir()}
        places = ((graphs, place) for graphs in self.corpus.values() for place in windows.first_size(graphs))
        new = {name for graphs, place in places for name in windows.names(graphs[place])} - covered
        drawn = [w for graphs in self.corpus.values()
                 for w in windows.about(graphs, lambda node: op_name(node) in new, SHORT, "rare")]  # fmt: skip
        choices = sorted(self.candidates(drawn), key=lambda c: (-len(c.cases), len(c.ops), c.ops))
        untried = (choice for choice in choices if task_id(choice.ops) not in done)
        return [TaskOutline(c.ops, "", QUOTAS[0][1]) for c in about_new(untried, covered, lambda c: c.ops)]


def _capture(case: ModelCase, target: Path) -> None:
    save_graphs(capture_case(case), target)


def _fusible(source: Path, target: Path) -> None:
    save_windows(windows.fusible(load_graphs(source)), target)


def _outlines(choices: Sequence[SequenceChoice], count: int) -> Iterator[TaskOutline]:
    ranked = sorted(choices[:count], key=lambda choice: len(choice.cases))
    for place, choice in enumerate(ranked):
        quota = next(size for share, size in QUOTAS if place < share * len(ranked))
        is_lite = choice.ops in LITE
        yield TaskOutline(choice.ops, "lite" if is_lite else "", MAX_LITE_SUBGRAPHS if is_lite else quota)
    for choice in choices[count:]:
        yield TaskOutline(choice.ops, "train", MAX_TRAIN_SUBGRAPHS)


def _curate(outline: TaskOutline, corpus: Corpus, target: Path) -> None:
    result = curated_instances(outline.ops, corpus, outline.quota)
    if len(result.instances) < MIN_SUBGRAPHS:
        refused = f"; refused: {result.refusals[0]}" if result.refusals else ""
        raise ValueError(f"only {len(result.instances)} subgraphs of {result.places} places pass the rules{refused}")
    write_task(make_task(result.instances, [outline.tag] if outline.tag else []), target)


def split(tasks: Sequence[Task], count: int) -> tuple[list[Task], list[Task]]:
    """Return ``count`` tasks for the suite, and the rest, tagged ``train``. The lite tasks belong to the suite.

    The least valuable tasks leave first, except the only task with some operator. No two tasks share an operator
    sequence, so the two splits have none in common.
    """
    holders = Counter(op for task in tasks for op in set(task.header.ops))
    suite_tasks, left = list(tasks), []
    for task in sorted(tasks, key=value):
        alone = any(holders[op] == 1 for op in task.header.ops)
        if len(suite_tasks) > count and not alone and "lite" not in task.header.tags:
            suite_tasks.remove(task)
            left.append(task)
            holders.subtract(set(task.header.ops))
    return [_tagged(task, "") for task in suite_tasks], [_tagged(task, "train") for task in left]


def value(task: Task) -> float:
    """Return the value of a task: it grows with its subgraphs (up to 14), its operators (up to 5) and all dtypes."""
    complete = {s.dtype for s in task.subgraphs} >= set(DTYPES)
    return min(len(task.subgraphs), 14) + 4.0 * complete + 3.0 * min(len(task.header.ops), 5)


def _tagged(task: Task, tag: str) -> Task:
    if "lite" in task.header.tags:
        return task
    tags = (tag,) if tag else ()
    return dataclasses.replace(task, header=dataclasses.replace(task.header, tags=tags))


@dataclass(frozen=True)
class Verified:
    """The result for one architecture: how many committed subgraphs were made again, and the names of the others."""

    case: str
    same: int
    missing: tuple[str, ...]


def verify(case: ModelCase, tasks: Sequence[Task]) -> Verified:
    """Capture ``case`` anew, cut the operators of every task that names it, and compare the hashes."""
    case_tasks = [task for task in tasks if case.name in task.header.sources]
    graphs = capture_case(case)
    drawn = list(windows.matching(graphs, {task.header.ops for task in case_tasks}))
    keys = {instance.key for instance in draw(drawn, {case.name: graphs})}
    reproduced = []
    for task in case_tasks:
        case_subgraphs = {s.id for s in task.subgraphs if s.source.startswith(f"{case.name} (")}
        reproduced += [(key, f"{task.id}/{name}") for key, name in identities(task) if name in case_subgraphs]
    missing = tuple(name for key, name in reproduced if key not in keys)
    return Verified(case.name, len(reproduced) - len(missing), missing)


def identities(task: Task) -> Iterator[tuple[str, str]]:
    """Yield a hash per subgraph, which no renaming of values or inputs changes, with the subgraph's id."""
    canonical = functools.cache(lambda key: canonical_source(build_graph(task.graphs[key], str(task.path))))
    for subgraph in task.subgraphs:
        shapes = [f"{spec.shape}{spec.dtype}" for spec in subgraph.inputs]
        yield digest([canonical(subgraph.graph), *shapes]), subgraph.id
