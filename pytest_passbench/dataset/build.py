"""The build of a data set: one job an architecture, whose rows lie in a file of their own, and shards of all of them.

A build can be stopped and started again. Existing files are not made anew, and a row keeps its id, which is the hash
of its text. The shards, and the table of the architectures that were tried, hold all data of a build. So a build can
go on from a data set that came without its captures.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.files import write_text, writing
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.dataset import shards
from pytest_passbench.dataset.architectures import Architecture
from pytest_passbench.dataset.extract import extract
from pytest_passbench.dataset.rows import CaseRows, GraphRow
from pytest_passbench.forge.capture import capture
from pytest_passbench.forge.jobs import FAILED, Job, reason, run_jobs
from pytest_passbench.forge.windows import RunRanges

CAPTURES = "captures"
"""The folder in a data set with a file for each architecture."""
COMPILER = (
    "torch._dynamo",
    "torch._inductor.graph",
    "torch._inductor.scheduler",
    "torch.fx.experimental.proxy_tensor",
)
"""The modules of torch's compiler that each architecture needs."""
CHECKED = 48
"""How many of a library's latest architectures decide, by their new graphs, whether the build goes on with it.

Those of one family may follow each other, so with fewer it could end too early.
"""
MIN_YIELD = 0.05
"""The build ends a library if its latest architectures gave fewer new strict forms per CPU second than this."""
TABLE = "architectures.parquet"


@dataclass(frozen=True)
class BuildSettings:
    """Settings of a build: ``processes`` at a time, ``timeout`` seconds for each, and ``budget`` seconds in all."""

    out: Path
    processes: int
    timeout: float
    budget: float

    @property
    def captures(self) -> Path:
        """The folder with a file for each architecture."""
        return self.out / CAPTURES

    def target(self, architecture: Architecture) -> Path:
        """Return the file of an architecture's rows."""
        return self.captures / f"{architecture.case.name.replace('/', '__')}.json"


@dataclass
class Progress:
    """Progress of a build. ``givers`` has the first rank by id, ``yields`` new forms and CPU seconds by library."""

    givers: dict[str, tuple[int, str]] = field(default_factory=dict)
    forms: set[str] = field(default_factory=set)
    ranges: RunRanges = field(default_factory=dict)
    yields: dict[str, list[tuple[int, float]]] = field(default_factory=dict)

    def add(self, case: CaseRows) -> int:
        """Add an architecture's rows. Return the number of strict forms that are new."""
        before = len(self.forms)
        for row in case.rows:
            self.givers[row.id] = min(case.rank, self.givers.get(row.id, case.rank))
        self.forms.update(row.form for row in case.rows)
        self.ranges.update(case.ranges)
        new = len(self.forms) - before
        self.yields.setdefault(case.library, []).append((new, case.seconds))
        return new

    def done_before(self, architecture: Architecture) -> tuple[set[str], RunRanges]:
        """Return what an architecture need not compute: ids that architectures before it gave, and fusible ranges.

        An architecture after it by rank may have ended first; its ids are not among them. So a build by several
        processes has the same rows as a build by one.
        """
        return {key for key, rank in self.givers.items() if rank < architecture.rank}, self.ranges

    def is_exhausted(self, library: str) -> bool:
        """Return True if the library's latest architectures gave too few new forms for their CPU time."""
        latest = self.yields.get(library, [])[-CHECKED:]
        seconds = sum(spent for _, spent in latest)
        return len(latest) == CHECKED and sum(new for new, _ in latest) < MIN_YIELD * seconds


def build(groups: dict[str, list[Architecture]], settings: BuildSettings, progress: ProgressLines) -> list[str]:
    """Run the jobs that are open, libraries in turn. Return the names of the architectures that failed.

    Raises UserError if the folder cannot be written, or holds a file that is no part of a build.
    """
    with writing(settings.out, "name a folder that you may write to: --out=DIR"):
        settings.captures.mkdir(parents=True, exist_ok=True)
    _warm_up()
    state = Progress()
    for _, case in cases(settings.captures):
        state.add(case)

    def ended(job: Job) -> str:
        case = load(job.target)
        new = state.add(case)
        return (
            f": {new} new forms of {len(case.rows)} graphs in {case.seconds:.0f} s; {len(state.forms):,} forms, "
            f"{len(state.givers):,} graphs, {sum(map(len, state.yields.values())):,} architectures"
        )

    jobs = _libraries_in_turn(groups, settings, state)
    return run_jobs(jobs, settings.processes, settings.timeout, progress, budget=settings.budget, ended=ended)


def _warm_up() -> None:
    """Import torch's compiler and trace a small model once. It saves each forked process two to three CPU seconds."""
    for module in COMPILER:
        importlib.import_module(module)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    capture(layer, (torch.zeros(1, 4, 8),))


def _libraries_in_turn(
    groups: dict[str, list[Architecture]], settings: BuildSettings, state: Progress
) -> Iterator[Job]:
    """Yield the jobs that are open, one of each library that is not exhausted, again and again."""
    waiting = {name: _open_jobs(group, settings, state) for name, group in groups.items()}
    while waiting:
        for name in list(waiting):
            job = None if state.is_exhausted(name) else next(waiting[name], None)
            if job is None:
                del waiting[name]
            else:
                yield job


def _open_jobs(architectures: Iterable[Architecture], settings: BuildSettings, state: Progress) -> Iterator[Job]:
    for architecture in architectures:
        target = settings.target(architecture)
        job = Job(architecture.case.name, target, functools.partial(_work, architecture, target, state))
        if job.open:
            yield job


def _work(architecture: Architecture, target: Path, state: Progress) -> None:
    """Write an architecture's rows. It runs in a forked process, which has the state at the time of the fork."""
    case = extract(architecture, *state.done_before(architecture))
    write_text(target, json.dumps(asdict(case)))


def load(path: Path) -> CaseRows:
    """Return the rows of an architecture's file. Raises UserError if it is no such file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return CaseRows(**{**data, "rows": [GraphRow(**row) for row in data["rows"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError("is no file of a build", where=path, remedy="remove it: it is made anew") from error


def cases(captures: Path) -> Iterator[tuple[Path, CaseRows]]:
    """Yield the file and the rows of each architecture, in the order in which they were captured."""
    for path in sorted(captures.glob("*.json"), key=lambda path: (path.stat().st_mtime_ns, path.name)):
        yield path, load(path)


def merged(groups: Iterable[CaseRows]) -> list[GraphRow]:
    """Return every row once, in the order of the ids.

    If several architectures have a row, the first by rank gives it, in whichever order they were captured. Its
    families are those of all of them.
    """
    rows: dict[str, GraphRow] = {}
    families: dict[str, set[str]] = {}
    for case in sorted(groups, key=lambda case: case.rank):
        for key in case.ids:
            families.setdefault(key, set()).add(case.family)
        for row in case.rows:
            rows.setdefault(row.id, row)
    for key, row in rows.items():  # an id without a row was refused
        row.families = sorted(families[key])
    return [rows[key] for key in sorted(rows)]


def failures(captures: Path) -> Counter[str]:
    """Return how many architectures failed, by the kind of the error."""
    return Counter(reason(path).partition(":")[0][:60] for path in captures.glob(f"*{FAILED}"))


def write_table(captures: Path, out: Path) -> None:
    """Write the table of architectures in ``captures``: first those that were captured, in order, then the failed."""
    files = [(path, case, "") for path, case in cases(captures)]
    for path in sorted(captures.glob(f"*{FAILED}")):
        name = path.stem.replace("__", "/", 1)
        files.append((path, CaseRows(name, name.partition("/")[0], "", 0), path.read_text(encoding="utf-8")))
    pyarrow = shards.arrow()
    table = pyarrow.Table.from_pylist([
        {"file": path.stem, "architecture": case.architecture, "library": case.library, "family": case.family,
         "position": case.position, "seconds": case.seconds, "graphs": case.ids,
         "refused": json.dumps(case.refused, sort_keys=True), "failure": failure}
        for path, case, failure in files
    ])  # fmt: skip
    pyarrow.parquet.write_table(table, out / TABLE, compression="zstd", compression_level=12)


def restore_captures(out: Path, captures: Path) -> int:
    """Write the captures of a data set that has none, from its table and its shards. Return their number.

    Return 0 if there are captures, or if there is no table. Raises UserError if a file is not one of a data set.
    """
    if captures.exists() or not (out / TABLE).exists():
        return 0
    pyarrow, rows = shards.arrow(), defaultdict[str, list[GraphRow]](list)
    try:
        records = pyarrow.parquet.read_table(out / TABLE).to_pylist()
        files = [(record["file"], record["failure"], _case(record)) for record in records]
    except (OSError, pyarrow.ArrowException, KeyError, TypeError, ValueError) as error:
        raise UserError("is no table of architectures", where=out / TABLE,
                        remedy="remove it: the build then begins anew") from error  # fmt: skip
    for row in shards.read(out):
        rows[row.architecture].append(row)
    part = captures.with_name(f"{captures.name}.part")  # a build takes the captures that it finds for all of them
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for place, (name, failure, case) in enumerate(files):
        path = part / f"{name}{FAILED if failure else '.json'}"
        case.rows = rows[case.architecture]
        write_text(path, failure or json.dumps(asdict(case)))
        os.utime(path, ns=(place, place))  # a build reads its captures in the order of their times
    part.rename(captures)
    return len(files)


def _case(record: dict[str, Any]) -> CaseRows:
    plain = {name: record[name] for name in ("architecture", "library", "family", "position", "seconds")}
    return CaseRows(**plain, ids=list(record["graphs"]), refused=json.loads(record["refused"]))
