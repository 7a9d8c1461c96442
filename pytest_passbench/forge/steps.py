"""The steps that make a suite. They can be stopped and started again: finished files are not made anew.

``capture`` makes a file per architecture. ``windows`` finds the fusible runs of each architecture, and the
typical n-grams of all. ``select`` chooses the operator sequences. ``curate`` makes a task file per sequence.
``write`` makes the suite.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.task import Task
from pytest_passbench.forge import corpus, windows
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import choose, draw, make_task, path_of, task_id
from pytest_passbench.forge.jobs import Job, run_jobs
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.normal_form import digest
from pytest_passbench.forge.sequence_choice import Ops, SequenceChoice, candidates, select
from pytest_passbench.suite.published import write_sample
from pytest_passbench.suite.taskfile import read_task, write_task

MAX_LITE_SUBGRAPHS = 5
QUOTAS = ((0.50, 9), (0.90, 17), (1.0, 40))
"""(share, subgraphs): the most subgraphs of tasks up to that share; tasks of more architectures come later."""
MAX_WINDOWS = 40
"""The most places of a sequence from which subgraphs are drawn."""
MAX_TRIES = 4
"""The most sequences that are tried for an operator that no task has yet."""


@dataclass(frozen=True)
class Recipe:
    """The folder of a run's work, and its way of working: ``processes`` at a time, ``timeout`` seconds for each
    job.
    """

    work: Path
    processes: int = 1
    timeout: float = 200.0

    def folder(self, name: str) -> Path:
        """Return the folder of one step's files."""
        return self.work / name


@dataclass(frozen=True)
class TaskOutline:
    """A task to make: its operators, its tag, and its greatest number of subgraphs."""

    ops: Ops
    tag: str
    quota: int


def capture_step(recipe: Recipe, cases: Sequence[ModelCase]) -> list[str]:
    """Capture each case into a file. Return the names of those that failed; the reasons lie beside the files."""
    folder = recipe.folder("captures")
    jobs = [
        Job(c.name, folder / f"{c.name.replace('/', '__')}.json", functools.partial(_capture, c, folder))
        for c in cases
    ]
    return run_jobs(jobs, recipe.processes, recipe.timeout, ProgressLines("forge"))


def _capture(case: ModelCase, folder: Path) -> None:
    graphs = capture_case(case)
    corpus.save(graphs, folder / f"{case.name.replace('/', '__')}.json")


def load_corpus(recipe: Recipe) -> dict[str, list[Graph]]:
    """Return every captured case's graphs, by its name."""
    loaded = (corpus.load(path) for path in sorted(recipe.folder("captures").glob("*.json")))
    return {graphs[0].case: graphs for graphs in loaded if graphs}


def windows_step(recipe: Recipe) -> list[str]:
    """Find the fusible runs of every capture, and the typical n-grams of all together. Return the jobs that
    failed.
    """
    folder = recipe.folder("fusible")
    jobs = [
        Job(path.stem, folder / path.name, functools.partial(_fusible, path, folder / path.name))
        for path in sorted(recipe.folder("captures").glob("*.json"), key=lambda path: digest([path.name]))
    ]
    failed = run_jobs(jobs, recipe.processes, recipe.timeout, ProgressLines("forge"))
    typical = recipe.work / "typical.json"
    if not typical.exists():
        windows.save_windows(windows.typical_windows(load_corpus(recipe)), typical)
    return failed


def _fusible(source: Path, target: Path) -> None:
    windows.save_windows(windows.fusible(corpus.load(source)), target)


def load_windows(recipe: Recipe) -> list[windows.Window]:
    """Return the windows that the windows step found."""
    files = [*sorted(recipe.folder("fusible").glob("*.json")), recipe.work / "typical.json"]
    return [window for path in files if path.exists() for window in windows.load_windows(path)]


def select_step(recipe: Recipe, count: int, train: int, lite: Sequence[Ops]) -> list[TaskOutline]:
    """Return ``count`` sequences for the suite and ``train`` others. The choice is kept in ``selected.json``."""
    target = recipe.work / "selected.json"
    if not target.exists():
        corpus = load_corpus(recipe)
        modality = {case: graphs[0].modality for case, graphs in corpus.items()}
        explicit = [w for graphs in corpus.values() for w in windows.matching(graphs, set(lite), 1)]
        choices = candidates([*explicit, *load_windows(recipe)], modality)
        selection = select(choices, count + train, lite)
        target.write_text(
            json.dumps([dataclasses.astuple(plan) for plan in _planned(selection, count, lite)]), "utf-8"
        )
    return [TaskOutline(tuple(ops), tag, quota) for ops, tag, quota in json.loads(target.read_text("utf-8"))]


def _planned(selection: Sequence[SequenceChoice], count: int, lite: Sequence[Ops]) -> Iterable[TaskOutline]:
    ranked = sorted(selection[:count], key=lambda choice: len(choice.cases))
    for place, choice in enumerate(ranked):
        quota = next(size for share, size in QUOTAS if place < share * len(ranked))
        is_lite = choice.ops in lite
        yield TaskOutline(choice.ops, "lite" if is_lite else "", MAX_LITE_SUBGRAPHS if is_lite else quota)
    for choice in selection[count:]:
        yield TaskOutline(choice.ops, "train", 6)


def curate_step(recipe: Recipe, plans: Sequence[TaskOutline]) -> list[str]:
    """Make a task file of every wanted sequence that has at least three subgraphs that pass the rules.

    Return the names of the jobs that failed.
    """
    corpus = load_corpus(recipe)
    ops = {plan.ops for plan in plans}
    windows_of: dict[Ops, list[windows.Window]] = {}
    for graphs in corpus.values():
        for plan in windows.matching(graphs, ops):
            windows_of.setdefault(plan.ops, []).append(plan)
    folder = recipe.folder("curated")
    jobs = [
        Job(
            task_id(w.ops),
            folder / f"{task_id(w.ops)}.task.yaml",
            functools.partial(_curate, w, windows_of.get(w.ops, []), corpus, folder),
        )
        for w in plans
    ]
    return run_jobs(jobs, recipe.processes, recipe.timeout, ProgressLines("forge"))


def _curate(plan: TaskOutline, group: Sequence[windows.Window], corpus: dict[str, list[Graph]], folder: Path) -> None:
    instances = choose(draw(_few(group), corpus), plan.quota)
    if len(instances.instances) < 3:
        refused = f"; refused: {instances.refusals[0]}" if instances.refusals else ""
        raise ValueError(f"only {len(instances.instances)} subgraphs of {len(group)} places pass the rules{refused}")
    task = make_task(instances.instances, [plan.tag] if plan.tag else [])
    write_task(task, folder / f"{task.id}.task.yaml")


def cover_step(recipe: Recipe) -> list[TaskOutline]:
    """Return short sequences about the operators of the corpus that no curated task has yet.

    They are at most ``MAX_TRIES`` for each operator.
    """
    covered = {op for task in curated_tasks(recipe) for op in task.header.ops}
    done = {path.name.partition(".")[0] for path in recipe.folder("curated").iterdir()}
    corpus = load_corpus(recipe)
    modality = {case: graphs[0].modality for case, graphs in corpus.items()}
    names = {name for graphs in corpus.values() for place in windows.first_size(graphs[:1])
             for name in windows.names(graphs[place])}  # fmt: skip
    around = [w for graphs in corpus.values() for w in windows.around(graphs, names - covered)]
    plans: dict[str, TaskOutline] = {}
    counts: Counter[str] = Counter()
    for choice in sorted(candidates(around, modality), key=lambda c: (-len(c.cases), len(c.ops), c.ops)):
        new = [op for op in choice.ops if op not in covered and counts[op] < MAX_TRIES]
        if new and task_id(choice.ops) not in done:
            counts.update(new)
            plans[task_id(choice.ops)] = TaskOutline(choice.ops, "", QUOTAS[0][1])
    return list(plans.values())


def _few(group: Sequence[windows.Window]) -> list[windows.Window]:
    """Return at most ``MAX_WINDOWS`` of the places; the first ones of every architecture come first."""
    rank: Counter[str] = Counter()
    order = []
    for window in group:
        order.append((rank[window.case], digest([window.case]), window))
        rank[window.case] += 1
    return [window for _, _, window in sorted(order, key=lambda item: item[:2])][:MAX_WINDOWS]


def write_step(tasks: Iterable[Task], out: Path, layout: str) -> list[Path]:
    """Write the tasks below ``out``, as task files or as folders in the published layout, and return their paths."""
    written = []
    for task in tasks:
        folder = Path("train") if "train" in task.header.tags else Path(task.header.modality)
        path = out / (folder / task.id if layout == "published" else folder / path_of(task.header).name)
        try:
            if layout == "published":
                write_sample(task, path)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                write_task(task, path)
        except OSError as error:
            raise UserError(f"cannot be written: {error.strerror}", where=path,
                            remedy="name a folder that you may write to: --out=DIR") from error  # fmt: skip
        written.append(path)
    return written


def curated_tasks(recipe: Recipe) -> list[Task]:
    """Return the tasks of the curate step."""
    return [read_task(path) for path in sorted(recipe.folder("curated").glob("*.task.yaml"))]
