"""Faults made on purpose in a real run, and what is left of the run afterwards.

As a program it is the caller of a run: ``python faulted_runs.py FAULT,... FOLDER [--busy] [OPTION...]`` starts the
run in a folder that :func:`prepare` made, and prints an :class:`Outcome` of each fault as JSON. A process that the
run leaves without a parent becomes a child of this program. So none is missed.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pytest_passbench.judge.arms import processes

TASKS = 4
TOLERANCE = -5  # the default of a run
LONGEST = 120.0  # seconds to wait for anything
SETTLING = 60.0  # seconds to wait until processes and files are gone
SHM = Path("/dev/shm")
ABANDONED = "passbench-scratch-"  # how a judge's folders begin; the next judge removes those of a killed one
PR_SET_CHILD_SUBREAPER = 36
OPTIONS = (
    *("--passbench", "--candidate=cand", "--passbench-pipeline=direct", "-o", "passbench_policy=open"),
    *("--passbench-audit=off", "--passbench-budget=4", "tasks"),
)
BUSY = "while True: pass"


@dataclass
class Outcome:
    """The outcome of a fault. Seconds count from the fault.

    ``before`` and ``kept`` are the numbers of records on disk when the fault came and at the end. ``next`` is when
    the run had another record, ``returned`` when the caller had the run's output (0 if other faults followed).
    ``gone`` is when nothing was left: of the run if the fault ends it, else of the processes that were hit. ``left``
    names what was left at the end.
    """

    fault: str
    code: int = 0
    before: int = 0
    kept: int = 0
    next: float | None = None
    returned: float = 0.0
    gone: float = 0.0
    left: list[str] = field(default_factory=list)
    statuses: dict[str, str] = field(default_factory=dict)
    output: str = ""


@dataclass(frozen=True)
class Fault:
    """``victim`` finds the process to hit below the run's first one; ``ends`` says whether the run ends by it."""

    victim: Callable[[int], int | None]
    signals: tuple[signal.Signals, ...] = (signal.SIGKILL,)
    ends: bool = False
    workers: int = 0


def _itself(run: int) -> int | None:
    return run


def _worker(run: int) -> int | None:
    """Return the first worker of xdist that judges, which has zygotes below it."""
    return next((pid for pid in _children(run) if _zygotes(pid)), None)


def _zygotes(run: int) -> dict[str, int]:
    """Return the zygotes below a process, by the names of their arms."""
    found: dict[str, int] = {}
    for pid in processes.descendants(run):
        words = _words(pid)
        if words and words[0] != "bwrap" and len(words[-2:]) == 2 and words[-2].isdigit() and len(words[-2]) == 8:
            above = _words(processes.parent_if_any(pid))
            if words[-1] != (above or [""])[-1] or Path(above[0]).name == "bwrap":
                found[words[-1].strip()] = pid
    return found


def _words(pid: int) -> list[str]:
    """Return a process's command line, [] if there is no such process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return []


def _children(pid: int) -> list[int]:
    return [child for child in processes.descendants(pid) if processes.parent_if_any(child) == pid]


def _reader(run: int) -> int | None:
    return _zygotes(run).get("reader")


def _compiler(run: int) -> int | None:
    """Return the compiler proper (cc1plus) of a kernel that is being built."""
    return next((pid for pid in processes.descendants(run) if Path((_words(pid) or [""])[0]).name == "cc1plus"), None)


def _measured(arm: str, generation: int) -> Callable[[int], int | None]:
    """Return what finds a process of an arm with a measured runner: 0 is the outer process, 3 the runner itself."""

    def find(run: int) -> int | None:
        zygote = _zygotes(run).get(arm)
        if zygote is None:
            return None
        for template in _children(zygote):
            for runner in _children(template):
                return (processes.parent_if_any(zygote), zygote, template, runner)[generation]
        return None

    return find


BWRAP, ZYGOTE, TEMPLATE, RUNNER = range(4)


TERM, HUP, INT = (signal.SIGTERM,), (signal.SIGHUP,), (signal.SIGINT, signal.SIGINT)
STOP = (signal.SIGSTOP,)
FAULTS = {
    "judge": Fault(_itself, ends=True),
    "worker": Fault(_worker, workers=2),
    "controller": Fault(_itself, ends=True, workers=2),
    "SIGTERM": Fault(_itself, TERM, ends=True),
    "SIGHUP": Fault(_itself, HUP, ends=True),
    "Ctrl+C twice": Fault(_itself, INT, ends=True),
    "SIGTERM with -n": Fault(_itself, TERM, ends=True, workers=2),
    "SIGHUP with -n": Fault(_itself, HUP, ends=True, workers=2),
    "Ctrl+C twice with -n": Fault(_itself, INT, ends=True, workers=2),
    "compiler": Fault(_compiler),
    "eager's runner": Fault(_measured("eager", RUNNER)),
    "candidate's runner": Fault(_measured("candidate", RUNNER)),
    "candidate's template": Fault(_measured("candidate", TEMPLATE)),
    "eager's zygote": Fault(_measured("eager", ZYGOTE)),
    "candidate's zygote": Fault(_measured("candidate", ZYGOTE)),
    "reader's zygote": Fault(_reader),
    "candidate's bwrap": Fault(_measured("candidate", BWRAP)),
    "eager's zygote stopped": Fault(_measured("eager", ZYGOTE), STOP),
    "reader's zygote stopped": Fault(_reader, STOP),
}


def prepare(folder: Path, tasks: int = TASKS) -> None:
    """Write tasks and a candidate. Its kernels are compiled in the run: each differs from all others."""
    from shared.workspace import GELU_ADD_KERNEL, Workspace, make_cpp_pass

    bench = Workspace(folder)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "tmp").mkdir()
    for number in range(tasks):
        name = f"task-{number}"
        bench.task(name, shapes=((64, 256), (64, 256)))
        text = f"// {secrets.token_hex(8)}\n{GELU_ADD_KERNEL}"
        bench.candidate({"p": make_cpp_pass(text)}, task=name)


def strike(faults: Sequence[str], folder: Path, *options: str) -> list[Outcome]:
    """Run the tasks of a prepared folder, with these faults in the middle, in a process of its own.

    Each fault strikes another task. One that ends the run must be the only one.
    """
    command = [sys.executable, __file__, ",".join(faults), str(folder), *options]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{', '.join(faults)}: {ran.stdout}{ran.stderr}")
    return [Outcome(**found) for found in json.loads(ran.stdout)]


def main() -> None:
    """Start the run, make the faults and print the outcomes."""
    # A shell's background job ignores SIGINT, and nohup SIGHUP. A run would inherit that.
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    names, folder = sys.argv[1].split(","), Path(sys.argv[2])
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, *(ctypes.c_ulong(number) for number in (1, 0, 0, 0)))
    outcomes = _struck(names, folder, 2 if "--busy" in sys.argv else 0)
    print(json.dumps([asdict(outcome) for outcome in outcomes]))


@contextlib.contextmanager
def _busy(count: int) -> Iterator[set[int]]:
    """Keep ``count`` cores busy beside the run. Give the ids of the processes that do."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield {loop.pid for loop in loops}
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _struck(names: Sequence[str], folder: Path, loops: int) -> list[Outcome]:
    """Start a run, make the faults one after another from its first record on, and wait for its end."""
    outcomes, before = [Outcome(name) for name in names], _places(folder)
    run = Run(folder, max(FAULTS[name].workers for name in names))
    wait(lambda: run.records() or run.over, LONGEST)
    for outcome in outcomes:
        begin = _hit(outcome, run, before, loops)
    wait(lambda: run.over, 5 * LONGEST)
    wait(lambda: not _leaving(run, before), SETTLING)
    for outcome in outcomes:
        outcome.left, outcome.code, outcome.output = _left(run, before), run.process.returncode, run.output
        outcome.statuses = run.statuses()
        outcome.kept = len(outcome.statuses) or run.records()
    outcomes[-1].returned = run.ended - begin
    return outcomes


def _hit(outcome: Outcome, run: Run, before: set[str], loops: int) -> float:
    """Make a fault beside busy loops; wait until the hit processes are gone and the run goes on. Return the start."""
    fault = FAULTS[outcome.fault]
    with _busy(loops) as busy:
        victim = wait(lambda: fault.victim(run.pid) or run.over, LONGEST)
        if run.over or not isinstance(victim, int):
            raise RuntimeError(f"{outcome.fault}: nobody to hit: {run.output}")
        hit = {victim, *processes.descendants(victim)}
        outcome.before = run.records()
        begin = time.monotonic()
        for number in fault.signals:
            os.kill(victim, number)
            time.sleep(0.05 if len(fault.signals) > 1 else 0)
        if fault.ends:
            wait(lambda: run.over and not _leaving(run, before, busy), SETTLING)
        else:
            wait(lambda: not any(map(processes.alive, hit)), SETTLING)
        outcome.gone = time.monotonic() - begin
    if not fault.ends:
        wait(lambda: run.records() > outcome.before or run.over, LONGEST)
        outcome.next = time.monotonic() - begin if run.records() > outcome.before else None
    return begin


def _leaving(run: Run, before: set[str], others: Collection[int] = ()) -> list[str]:
    """Return what is left and may still go. A killed judge's own folders stay until the next judge removes them."""
    return [place for place in _left(run, before, others) if f"/{ABANDONED}" not in place]


def _left(run: Run, before: set[str], others: Collection[int] = ()) -> list[str]:
    """Return the processes, files and mounts that exist now and did not exist before the run."""
    run.bury()
    there = [pid for pid in processes.descendants(os.getpid()) if pid not in others and pid != run.pid]
    return [f"process {pid} {_words(pid)[-3:]}" for pid in there] + sorted(_places(run.folder) - before)


def _places(folder: Path) -> set[str]:
    """Return temporary files of the run, shared memory and mounts.

    The machine's locks do not count, since they stay; nor do the folders that pytest keeps, nor semaphores, since a
    judge has none.
    """
    made = [path for path in (folder / "tmp").iterdir() if not path.name.startswith("pytest-of-")]
    files = {str(path) for path in made if path.suffix != ".lock"}
    shared = {str(path) for path in SHM.iterdir() if not path.name.startswith("sem.")}
    mounts = {f"mount {line.split()[4]}" for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    return files | shared | mounts


def wait(found: Callable[[], Any], limit: float) -> Any:
    """Call ``found`` until its result is true, for at most ``limit`` seconds. Return the last result."""
    deadline = time.monotonic() + limit
    while not (result := found()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return result


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a run, with a folder of its own for temporary files."""
    return {**os.environ, "TMPDIR": str(folder / "tmp")}


def statuses(run: dict[str, Any]) -> dict[str, str]:
    """Return each task's status in a run's results: "correct", or else its arm's ("ran" for a wrong answer)."""
    arms = {record["task"]: record["arm"] for record in run["records"]}
    right = {task for task, arm in arms.items() if arm["status"] == "ran" and max(arm["correct_from"]) <= TOLERANCE}
    return {task: "correct" if task in right else arm["status"] for task, arm in arms.items()}


class Run:
    """A run of pytest, whose output is read to its end as ``subprocess.run(capture_output=True)`` does."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        own = [option for option in sys.argv[3:] if option != "--busy"]
        command = [sys.executable, "-m", "pytest", *OPTIONS, *([f"-n{workers}"] if workers else []), *own]
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.pid = self.process.pid
        self.over, self.ended, self.output = False, 0.0, ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        self.output = "".join(self.process.communicate())
        self.ended = time.monotonic()
        self.over = True

    def records(self) -> int:
        """Return the number of records in the journals."""
        paths = self.folder.glob("reports/*/journal*.jsonl")
        return sum(max(0, path.read_bytes().count(b"\n") - 1) for path in paths)

    def statuses(self) -> dict[str, str]:
        """Return each task's status in the results, {} if there are no results."""
        paths = self.folder.glob("reports/*/results.json")
        return {task: status for path in paths for task, status in statuses(json.loads(path.read_text())).items()}

    def bury(self) -> None:
        """Reap the orphans that have ended."""
        for pid in _children(os.getpid()):
            if pid != self.pid and not processes.alive(pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


if __name__ == "__main__":
    main()
