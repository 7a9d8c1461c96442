"""The making of a suite in steps that can be stopped and started again: what a step has written is not done anew.

``capture`` (a file per architecture), ``windows`` (fusible runs per architecture, typical n-grams of all),
``select`` (which operator sequences), ``curate`` (a task file per sequence), ``write`` (the suite).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.task import Task
from pytest_passbench.forge import corpus_file, windows
from pytest_passbench.forge.canonical import digest
from pytest_passbench.forge.choose import Choice, Ops, candidates, select
from pytest_passbench.forge.corpus import Graph, capture_case
from pytest_passbench.forge.curate import choose, draw
from pytest_passbench.forge.group import make_task, path_of, task_id
from pytest_passbench.forge.models import Case
from pytest_passbench.forge.pool import Job, run_jobs
from pytest_passbench.suite.published import write_sample
from pytest_passbench.suite.taskfile import read_task, write_task

LITE_SUBGRAPHS = 5
QUOTAS = ((0.50, 9), (0.90, 17), (1.0, 40))
MOST_WINDOWS = 40
"""Subgraphs per task: up to this share of the tasks, so many at most; tasks with more material get more."""


@dataclass(frozen=True)
class Recipe:
    """Where a run keeps its work, and how it works: ``processes`` at a time, ``timeout`` seconds for each job."""

    work: Path
    processes: int = 1
    timeout: float = 200.0

    def folder(self, name: str) -> Path:
        """The files of one step."""
        return self.work / name


@dataclass(frozen=True)
class Wanted:
    """One task to make: its operators, tag and greatest number of subgraphs."""

    ops: Ops
    tag: str
    quota: int


def capture_step(plan: Recipe, cases: Sequence[Case]) -> list[str]:
    """Capture each case into a file; returns the names of those that failed (the reason lies beside)."""
    folder = plan.folder("captures")
    jobs = [Job(c.name, folder / f"{c.name.replace('/', '__')}.json", functools.partial(_capture, c, folder))
            for c in cases]
    return run_jobs(jobs, plan.processes, plan.timeout)


def _capture(case: Case, folder: Path) -> None:
    graphs = capture_case(case)
    corpus_file.save(graphs, folder / f"{case.name.replace('/', '__')}.json")


def load_corpus(plan: Recipe) -> dict[str, list[Graph]]:
    """Every captured case's graphs by its name."""
    loaded = (corpus_file.load(path) for path in sorted(plan.folder("captures").glob("*.json")))
    return {graphs[0].case: graphs for graphs in loaded if graphs}


def windows_step(plan: Recipe) -> list[str]:
    """Find the fusible runs of every capture, and the typical n-grams of all together."""
    folder = plan.folder("fusible")
    jobs = [Job(path.stem, folder / path.name, functools.partial(_fusible, path, folder / path.name))
            for path in sorted(plan.folder("captures").glob("*.json"), key=lambda path: digest([path.name]))]
    failed = run_jobs(jobs, plan.processes, plan.timeout)
    typical = plan.work / "typical.json"
    if not typical.exists():
        windows.save_windows(windows.typical_windows(load_corpus(plan)), typical)
    return failed


def _fusible(source: Path, target: Path) -> None:
    windows.save_windows(windows.fusible(corpus_file.load(source)), target)


def load_windows(plan: Recipe) -> list[windows.Window]:
    """What the windows step found."""
    files = [*sorted(plan.folder("fusible").glob("*.json")), plan.work / "typical.json"]
    return [one for path in files if path.exists() for one in windows.load_windows(path)]


def select_step(plan: Recipe, count: int, train: int, lite: Sequence[Ops]) -> list[Wanted]:
    """Choose ``count`` sequences for the suite and ``train`` others; kept in ``selected.json``."""
    target = plan.work / "selected.json"
    if not target.exists():
        corpus = load_corpus(plan)
        modality = {case: graphs[0].modality for case, graphs in corpus.items()}
        explicit = [w for graphs in corpus.values() for w in windows.matching(graphs, set(lite), 1)]
        found = candidates([*explicit, *load_windows(plan)], modality)
        chosen = select(found, count + train, lite)
        target.write_text(json.dumps([dataclasses.astuple(one) for one in _wanted(chosen, count, lite)]), "utf-8")
    return [Wanted(tuple(ops), tag, quota) for ops, tag, quota in json.loads(target.read_text("utf-8"))]


def _wanted(chosen: Sequence[Choice], count: int, lite: Sequence[Ops]) -> Iterable[Wanted]:
    ranked = sorted(chosen[:count], key=lambda one: len(one.cases))
    for place, one in enumerate(ranked):
        quota = next(size for share, size in QUOTAS if place < share * len(ranked))
        is_lite = one.ops in lite
        yield Wanted(one.ops, "lite" if is_lite else "", LITE_SUBGRAPHS if is_lite else quota)
    for one in chosen[count:]:
        yield Wanted(one.ops, "train", 6)


def curate_step(plan: Recipe, wanted: Sequence[Wanted]) -> list[str]:
    """Make a task file of every wanted sequence that yields three subgraphs or more that pass the rules."""
    corpus = load_corpus(plan)
    ops = {one.ops for one in wanted}
    found: dict[Ops, list[windows.Window]] = {}
    for graphs in corpus.values():
        for one in windows.matching(graphs, ops):
            found.setdefault(one.ops, []).append(one)
    folder = plan.folder("curated")
    jobs = [Job(task_id(w.ops), folder / f"{task_id(w.ops)}.task.yaml",
                functools.partial(_curate, w, found.get(w.ops, []), corpus, folder)) for w in wanted]
    return run_jobs(jobs, plan.processes, plan.timeout)


def _curate(wanted: Wanted, found: Sequence[windows.Window], corpus: dict[str, list[Graph]], folder: Path) -> None:
    chosen = choose(draw(_few(found), corpus), wanted.quota)
    if len(chosen) < 3:
        raise ValueError(f"only {len(chosen)} subgraphs of {len(found)} places pass the rules")
    task = make_task(chosen, [wanted.tag] if wanted.tag else [])
    write_task(task, folder / f"{task.id}.task.yaml")


def cover_step(plan: Recipe, tries: int = 4) -> list[Wanted]:
    """For operators of the corpus that no curated task has yet: short sequences about them, ``tries`` each."""
    have = {op for task in curated_tasks(plan) for op in task.header.ops}
    done = {path.name.partition(".")[0] for path in plan.folder("curated").iterdir()}
    corpus = load_corpus(plan)
    modality = {case: graphs[0].modality for case, graphs in corpus.items()}
    names = {name for graphs in corpus.values() for place in windows.first_size(graphs[:1])
             for name in windows.names(graphs[place])}  # fmt: skip
    found = [w for graphs in corpus.values() for w in windows.around(graphs, names - have)]
    made: dict[str, Wanted] = {}
    counts: Counter[str] = Counter()
    for one in sorted(candidates(found, modality), key=lambda c: (-len(c.cases), len(c.ops), c.ops)):
        new = [op for op in one.ops if op not in have and counts[op] < tries]
        if new and task_id(one.ops) not in done:
            counts.update(new)
            made[task_id(one.ops)] = Wanted(one.ops, "", QUOTAS[0][1])
    return list(made.values())


def _few(found: Sequence[windows.Window]) -> list[windows.Window]:
    """At most ``MOST_WINDOWS`` of the places, every architecture's first ones first."""
    rank: Counter[str] = Counter()
    order = []
    for one in found:
        order.append((rank[one.case], digest([one.case]), one))
        rank[one.case] += 1
    return [one for _, _, one in sorted(order, key=lambda item: item[:2])][:MOST_WINDOWS]


def write_step(tasks: Iterable[Task], out: Path, layout: str) -> list[Path]:
    """The tasks below ``out``: task files, or folders in the published layout."""
    written = []
    for task in tasks:
        folder = Path("train") if "train" in task.header.tags else Path(task.header.modality)
        path = out / (folder / task.id if layout == "published" else folder / path_of(task.header).name)
        if layout == "published":
            write_sample(task, path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_task(task, path)
        written.append(path)
    return written


def curated_tasks(plan: Recipe) -> list[Task]:
    """The task files of the curate step."""
    return [read_task(path) for path in sorted(plan.folder("curated").glob("*.task.yaml"))]


def clear(plan: Recipe, step: str) -> None:
    """Forget what a step has written, so that it is done anew."""
    for path in (plan.folder(step), plan.work / f"{step}.json"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
