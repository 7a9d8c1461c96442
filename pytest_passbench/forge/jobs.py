"""Jobs that each make a file, in forked processes: a crash or an endless capture costs one job only.

They can be stopped and started again: finished files are not made anew.
"""

from __future__ import annotations

import ctypes
import gc
import math
import multiprocessing as mp
import resource
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.suite.limits import machine_bytes
from pytest_passbench.walls.harden import die_with_parent

POLL_SECONDS = 0.02
FAILED = ".failed"
"""The suffix of a file with the reason of a failed job."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of malloc.h
MIN_DATA_BYTES = 2 << 30
"""The least bytes that a job may allocate. Its share of the machine's memory is mostly larger."""


@dataclass(frozen=True)
class Job:
    """A unit of work. It is done if the file ``target`` exists."""

    name: str
    target: Path
    work: Callable[[], object]

    @property
    def failure(self) -> Path:
        """The file with the reason of a failed attempt. Such a job is not tried again until the file is removed."""
        return self.target.with_suffix(FAILED)

    @property
    def open(self) -> bool:
        """True if the job was neither done nor tried."""
        return not self.target.exists() and not self.failure.exists()

    def fail(self, reason: str) -> None:
        """Keep the reason of a failed attempt, unless the file was made or an earlier reason is kept."""
        if self.open:
            self.failure.write_text(reason, encoding="utf-8")


def run_jobs(
    jobs: Iterable[Job],
    processes: int,
    timeout: float,
    progress: ProgressLines,
    *,
    budget: float = math.inf,
    ended: Callable[[Job], str] = lambda _job: "",
) -> list[str]:
    """Run the jobs that are open, ``processes`` at a time, for at most ``timeout`` seconds each.

    Return the names of the jobs that failed. ``jobs`` may be an iterator: a job is taken from it when a process is
    free. None is begun later than ``budget`` seconds after the start. ``ended`` is called after each job that made
    its file; its text is added to the line of progress.
    """
    gc.freeze()  # a process's collections would otherwise go through the libraries' objects: 13 % of its time
    waiting, begin = iter(jobs), time.monotonic()
    running: dict[mp.process.BaseProcess, tuple[Job, float]] = {}  # with the time at which the process is late
    done, exhausted, failed = 0, False, list[Job]()
    while running or not exhausted:
        while not exhausted and len(running) < processes:
            job = next(waiting, None) if time.monotonic() - begin < budget else None
            exhausted = job is None
            if job is not None and job.open:
                running[_started(job, processes)] = (job, time.monotonic() + timeout)
        for process in [p for p in running if not p.is_alive() or time.monotonic() > running[p][1]]:
            job, _ = running.pop(process)
            _finish(process, job, timeout)
            done += 1
            if job.target.exists():
                progress.update(f"[{done}] {job.name}{ended(job)}")
            else:
                failed.append(job)
                progress.note(f"[{done}] {job.name}: {reason(job.failure)}")
        time.sleep(POLL_SECONDS)
    gc.unfreeze()
    if done:
        progress.note(f"{done} jobs ended{_place_of_reasons(failed)}")
    return [job.name for job in failed]


def _started(job: Job, processes: int) -> mp.process.BaseProcess:
    process = mp.get_context("fork").Process(target=_attempt, args=(job, processes), daemon=True)
    process.start()
    return process


def _place_of_reasons(failed: Sequence[Job]) -> str:
    if not failed:
        return ""
    return f"; the reasons of {len(failed)} failures lie in {failed[-1].failure.parent}/*{FAILED}"


def limit_memory(processes: int) -> None:
    """Limit this process to 1 / (``processes`` + 1) of the machine's memory.

    Beyond it an allocation fails. Without a limit, the system might end another process for it.
    """
    data_bytes = max(MIN_DATA_BYTES, machine_bytes() // (processes + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (data_bytes, data_bytes))


def keep_freed_memory() -> None:
    """Make this process keep the memory that it frees, if the C library can.

    A graph is run several times on large tensors. Returning their pages to the system, and asking for new ones, takes
    a quarter of the time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            mallopt(option, 2**31 - 1)


def _attempt(job: Job, processes: int) -> None:
    die_with_parent()
    limit_memory(processes)
    keep_freed_memory()
    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        job.work()
    except BaseException as error:  # the reason is kept for the user, and the next job goes on
        job.fail("".join(traceback.format_exception_only(error))[:4000])


def _finish(process: mp.process.BaseProcess, job: Job, timeout: float) -> None:
    is_late = process.is_alive()
    if is_late:
        process.kill()
    process.join()
    job.fail(f"took longer than {timeout} s\n" if is_late else f"died with exit code {process.exitcode}\n")


def reason(failure: Path) -> str:
    """Return the first line of a failed job's file, at most 150 characters."""
    lines = failure.read_text(encoding="utf-8").strip().splitlines()
    return (lines[0] if lines else "no reason was given")[:150]
