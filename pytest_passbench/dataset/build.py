"""The build of a data set: one job an architecture, whose rows lie in a file of their own, and shards of all of them.

A build can be stopped and started again. Files that are there are not made anew, and a row keeps its id, which is
the hash of its text.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.dataset.architectures import Architecture
from pytest_passbench.dataset.extract import extract
from pytest_passbench.dataset.on_ray import RayJobs
from pytest_passbench.dataset.rows import CaseRows, GraphRow
from pytest_passbench.forge.jobs import Job, run_jobs
from pytest_passbench.forge.windows import RunRanges

WORK = "work"
"""The folder of a data set that has a file for each architecture."""
COMPILER = (
    "torch._dynamo",
    "torch._inductor.graph",
    "torch._inductor.scheduler",
    "torch.fx.experimental.proxy_tensor",
)
"""What each architecture needs of torch's compiler. Importing it once saves each forked process two CPU seconds."""
CHECKED = 12
"""The latest architectures of a library whose yield decides whether the library is gone on with."""
MIN_YIELD = 0.05
"""A library ends if its latest architectures gave fewer new strict forms than so many a CPU second."""


@dataclass(frozen=True)
class BuildSettings:
    """How to build: ``processes`` at a time, ``timeout`` seconds for an architecture, ``budget`` seconds in all."""

    out: Path
    processes: int
    timeout: float
    budget: float

    @property
    def work(self) -> Path:
        """The folder with a file for each architecture."""
        return self.out / WORK

    def target(self, architecture: Architecture) -> Path:
        """Return the file of an architecture's rows."""
        return self.work / f"{architecture.case.name.replace('/', '__')}.json"


@dataclass
class Progress:
    """What the build has so far: rows' ids, strict forms and fusible ranges, and each library's latest yields."""

    ids: set[str] = field(default_factory=set)
    forms: set[str] = field(default_factory=set)
    ranges: RunRanges = field(default_factory=dict)
    architectures: Counter[str] = field(default_factory=Counter)
    yields: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, case: CaseRows) -> int:
        """Add an architecture's rows. Return the number of strict forms that are new."""
        before = len(self.forms)
        self.ids.update(row.id for row in case.rows)
        self.forms.update(row.form for row in case.rows)
        self.ranges.update(case.ranges)
        self.architectures[case.library] += 1
        new = len(self.forms) - before
        self.yields.setdefault(case.library, []).append((new, case.seconds))
        return new

    def is_exhausted(self, library: str) -> bool:
        """Return True if the library's latest architectures gave too few new forms for their CPU time."""
        latest = self.yields.get(library, [])[-CHECKED:]
        seconds = sum(spent for _, spent in latest)
        return len(latest) == CHECKED and sum(new for new, _ in latest) < MIN_YIELD * seconds


def build(
    groups: dict[str, list[Architecture]], settings: BuildSettings, progress: ProgressLines, ray: str | None = None
) -> list[str]:
    """Run the jobs that are open, libraries in turn. Return the names of the architectures that failed.

    With ``ray``, the address of a Ray cluster, its processes run them (:class:`RayJobs`); empty means any cluster.

    Raises UserError if the folder cannot be written, or holds a file that is no part of a build.
    """
    try:
        settings.work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=settings.out,
                        remedy="name a folder that you may write to: --out=DIR") from error  # fmt: skip
    for module in COMPILER:
        importlib.import_module(module)
    state = Progress()
    for case in cases(settings.work):
        state.add(case)

    def ended(job: Job) -> str:
        case = load(job.target)
        new = state.add(case)
        return (
            f": {new} new forms of {len(case.rows)} graphs in {case.seconds:.0f} s; {len(state.forms):,} forms, "
            f"{len(state.ids):,} graphs, {sum(state.architectures.values()):,} architectures"
        )

    architectures = _libraries_in_turn(groups, settings, state)
    if ray is not None:
        pairs = ((item, _job(item, settings, state)) for item in architectures)
        cluster = RayJobs(ray, settings.timeout, progress, ended)
        return cluster.run(pairs, lambda: (state.ids, state.ranges), settings.budget)
    jobs = (_job(architecture, settings, state) for architecture in architectures)
    return run_jobs(jobs, settings.processes, settings.timeout, progress, budget=settings.budget, ended=ended)


def _libraries_in_turn(
    groups: dict[str, list[Architecture]], settings: BuildSettings, state: Progress
) -> Iterator[Architecture]:
    """Yield the open architectures, one of each library that is not exhausted, again and again."""
    waiting = {name: iter(group) for name, group in groups.items()}
    while waiting:
        for name in list(waiting):
            architecture = None if state.is_exhausted(name) else _next_open(waiting[name], settings)
            if architecture is None:
                del waiting[name]
            else:
                yield architecture


def _next_open(architectures: Iterator[Architecture], settings: BuildSettings) -> Architecture | None:
    return next((item for item in architectures if _job(item, settings, Progress()).open), None)


def _job(architecture: Architecture, settings: BuildSettings, state: Progress) -> Job:
    target = settings.target(architecture)
    return Job(architecture.case.name, target, functools.partial(_work, architecture, target, state))


def _work(architecture: Architecture, target: Path, state: Progress) -> None:
    """Write an architecture's rows. It runs in a forked process, which has the state of the moment."""
    case = extract(architecture, state.ids, state.ranges)
    half = target.with_suffix(".part")
    half.write_text(json.dumps(case.to_data()), encoding="utf-8")
    half.replace(target)


def load(path: Path) -> CaseRows:
    """Return the rows of an architecture's file. Raises UserError if it is none."""
    try:
        return CaseRows.from_data(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError("is no file of a build", where=path, remedy="remove it: it is made anew") from error


def cases(work: Path) -> Iterator[CaseRows]:
    """Yield the rows of each architecture, in the order of the files' names."""
    for path in sorted(work.glob("*.json")):
        yield load(path)


def merged(groups: Iterable[CaseRows]) -> list[GraphRow]:
    """Return every row once, by id. The first architecture that has a row's text gives it; all give families."""
    rows: dict[str, GraphRow] = {}
    families: dict[str, set[str]] = {}
    for case in groups:
        for key in case.ids:
            families.setdefault(key, set()).add(case.family)
        for row in case.rows:
            first = rows.setdefault(row.id, row)
            if first is not row:
                first.instances += [item for item in row.instances if item not in first.instances]
    for key, row in rows.items():  # an id without a row was refused
        row.families = sorted(families[key])
    return [rows[key] for key in sorted(rows)]


def failures(work: Path) -> Counter[str]:
    """Return how many architectures failed, by the kind of the error."""
    causes: Counter[str] = Counter()
    for path in work.glob("*.failed"):
        first = (path.read_text(encoding="utf-8").strip().splitlines() or ["no reason"])[0]
        causes[first.partition(":")[0][:60]] += 1
    return causes
