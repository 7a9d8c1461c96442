"""What the benchmarks share: subgraphs to measure, programs to compare, and a store of sessions.

A session is one subgraph measured once by the project's own judge, in its sandboxes, with its clock and its rules.
Every session is a line of a JSON Lines file, so a benchmark can be stopped at any time and goes on where it was.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any, Self

from pytest_passbench.candidate.layout import PassDir
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms.arm import ArmSettings
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, TWIN
from pytest_passbench.judge.case_judge import CaseJudge
from pytest_passbench.judge.equipment import Equipment, Sandboxes
from pytest_passbench.judge.session import Session
from pytest_passbench.protocol import Order
from pytest_passbench.suite.find import discover, installed_tasks

REPORTS = Path(__file__).resolve().parent.parent / "reports" / "benchmarks"
SHORTEST, LONGEST = 5.0, 50_000.0  # microseconds of eager


@dataclass(frozen=True)
class Case:
    """One subgraph to measure. ``eager_us`` is eager's time in microseconds, measured when the task was made."""

    task: Task
    subgraph: Subgraph
    eager_us: float

    @property
    def name(self) -> str:
        """The task and the subgraph: a name that is unique among the cases."""
        return f"{self.task.id}/{self.subgraph.id}"


def cases(shortest: float = SHORTEST, longest: float = LONGEST, folder: Path | None = None) -> list[Case]:
    """Return the subgraphs of ``folder`` or installed ones, with an eager time between these (us), shortest first."""
    found = []
    for ref in discover(folder or installed_tasks()):
        task = ref.load()
        for subgraph in task.subgraphs:
            eager = float(subgraph.meta.get("eager_us", 0.0))
            if shortest <= eager <= longest:
                found.append(Case(task, subgraph, eager))
    return sorted(found, key=lambda case: (case.eager_us, case.name))


def spread(chosen: Sequence[Case], count: int) -> list[Case]:
    """Return at most ``count`` of the cases, spread evenly over their order."""
    if len(chosen) <= count:
        return list(chosen)
    return [chosen[round(i * (len(chosen) - 1) / (count - 1))] for i in range(count)]


class TwinSandboxes(Sandboxes):
    """Sandboxes that start an arm of eager, also by name, in the candidate's place."""

    def _for_arm(self, name: str, pipeline: str, *_more: Any, **_named: Any) -> ArmSettings:
        return super()._for_arm(EAGER if name == CANDIDATE else name, pipeline)


class TwinJudge(CaseJudge):
    """A judge that gives every arm eager's program, or what ``sources`` returns for the arm and that program."""

    def __init__(self, equipment: Equipment, sources: Callable[[str, str], str]) -> None:
        super().__init__(equipment)
        self._sources = sources

    def orders(self, case: Any, arms: Any, passes: Any) -> dict[str, Order]:
        orders = super().orders(case, arms, passes)
        orders.pop(TWIN, None)  # the candidate's arm is already a twin of eager's
        return {
            arm: replace(order, arm=EAGER, source=self._sources(arm, order.source)) for arm, order in orders.items()
        }


class Twins(Session):
    """A session that judges eager against eager; ``sources`` may exchange the program of either arm for another."""

    def __init__(self, settings: Settings, sources: Callable[[str, str], str] | None = None) -> None:
        super().__init__(settings, os.urandom(32))
        self.equipment.readers = NO_READERS
        self.equipment.sandboxes = TwinSandboxes(settings, self.equipment.walls)
        self.case_judge = TwinJudge(self.equipment, sources or (lambda _arm, source: source))

    def __enter__(self) -> Self:
        return self

    def against(self, case: Case) -> list[Record]:
        """Return the records of one subgraph, judged as in any run."""
        return judged(self, case, NOBODY)


def judged(session: Session, case: Case, candidate: Any) -> list[Record]:
    """Return a subgraph's records. If noise left the verdict open, it was measured again: the last one counts."""
    return list(session.judge(replace(case.task, subgraphs=(case.subgraph,)), candidate))


#: Stands for the readers of candidates if there is no candidate.
NO_READERS: Any = SimpleNamespace(
    arm=lambda: SimpleNamespace(ready=lambda: None),
    planner=lambda *_: SimpleNamespace(
        reader=SimpleNamespace(freeze=lambda: None, output=str),
        located=str,
        begin=lambda _out: None,
        late=None,
        asked=(),
    ),
    passes=lambda *_: (),
    forget=lambda: None,
    close=lambda: None,
)
#: Stands for a candidate if there is none.
NOBODY: Any = SimpleNamespace(
    name="eager",
    content_hash="",
    path=Path(),
    folder=lambda _passes: "",
    passes_for=lambda _task: PassDir(Path(), ()),
)


class Store:
    """The sessions of one benchmark variant, one JSON object a line."""

    def __init__(self, name: str, folder: Path = REPORTS) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"

    def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions that are stored."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def add(self, session: dict[str, Any]) -> None:
        """Append a session."""
        with self.path.open("a") as file:
            file.write(json.dumps(session) + "\n")

    def next(self, chosen: Sequence[Case]) -> Iterator[Case]:
        """Yield cases without end, each time one with the fewest sessions."""
        done = Counter(session["case"] for session in self.sessions())
        while True:
            case = min(chosen, key=lambda one: done[one.name])
            done[case.name] += 1
            yield case


def session_of(case: Case, records: Sequence[Record], seconds: float, **more: Any) -> dict[str, Any]:
    """Return what to store of a session. Times are in seconds, or in us by name. ``default``: first measurement."""
    record = records[-1]
    said = {"status": record.arm.status, "note": record.arm.message or record.arm.speed_note}
    return {
        "case": case.name, "at": time.time(), **_measured(record), **said, "seconds": seconds,
        "default": _measured(records[0]), "load": os.getloadavg()[0], **more,
    }  # fmt: skip


def _measured(record: Record) -> dict[str, Any]:
    speed = record.arm.speed
    if speed is None:
        return {"durations": record.durations}
    return {
        "ratio": speed.ratio, "low": speed.low, "high": speed.high, "verdict": speed.verdict,
        "eager_us": speed.eager_us, "other_us": speed.other_us, "pairs": len(speed.pairs),
        "durations": record.durations,
    }  # fmt: skip


def costs(measured: dict[str, Any]) -> dict[str, float]:
    """Return the seconds of a session: all (without the sandboxes' start and waiting for a core), those of building
    its programs, and those of the harness (neither building nor timed blocks)."""
    spent = {phase: taken for phase, taken in measured["durations"].items() if phase not in ("start", "wait")}
    harness = sum(taken for phase, taken in spent.items() if phase not in ("blocks", "build"))
    return {"seconds": sum(spent.values()), "building": spent.get("build", 0.0), "harness": harness}


def medians(measured: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return the medians of the measurements' :func:`costs` and numbers of pairs."""
    spent = [costs(item) for item in measured]
    found = {f"{name}_median": median(one[name] for one in spent) for name in ("seconds", "harness", "building")}
    return {**found, "pairs_median": median(item["pairs"] for item in measured)}


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """Keep so many cores busy within the context, by processes that run an empty loop."""
    line = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(line) for _ in range(cores)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def steal() -> float:
    """Return the seconds that a hypervisor has taken from all cores together ("steal" in /proc/stat)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


def machine() -> dict[str, Any]:
    """Return the environment that the figures were measured in."""
    with Session(Settings(), b"") as session:
        return session.environment()


def write(name: str, summary: dict[str, Any]) -> Path:
    """Write the summary to a JSON file in the folder of reports. Return its path."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    path = REPORTS / f"{name}.json"
    path.write_text(json.dumps(summary, indent=1) + "\n")
    return path
