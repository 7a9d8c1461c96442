"""A runner of jobs: one forked process each, so that a crash or an endless capture costs one job only."""

from __future__ import annotations

import multiprocessing as mp
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_passbench.core.progress import ProgressLines


@dataclass(frozen=True)
class Job:
    """A unit of work. It is done if the file ``target`` exists."""

    name: str
    target: Path
    work: Callable[[], object]

    @property
    def failure(self) -> Path:
        """The file with the reason of a failed attempt. Such a job is not tried again until the file is removed."""
        return self.target.with_suffix(".failed")


def run_jobs(jobs: Sequence[Job], processes: int, timeout: float) -> list[str]:
    """Run the jobs that are not done, ``processes`` at a time, for at most ``timeout`` seconds each.

    Return the names of the jobs that failed. Progress is shown on stderr.
    """
    todo = [job for job in jobs if not job.target.exists() and not job.failure.exists()]
    running: dict[mp.process.BaseProcess, tuple[Job, float]] = {}
    done, context, progress = 0, mp.get_context("fork"), ProgressLines("forge")
    while todo or running:
        while todo and len(running) < processes:
            job = todo.pop(0)
            if job.target.exists():  # another run over the same folder has made it meanwhile
                continue
            process: mp.process.BaseProcess = context.Process(target=_attempt, args=(job,), daemon=True)
            process.start()
            running[process] = (job, time.monotonic() + timeout)
        for process in [p for p in running if not p.is_alive() or time.monotonic() > running[p][1]]:
            job, _ = running.pop(process)
            _finish(process, job, timeout)
            done += 1
            say = progress.update if job.target.exists() else progress.note
            say(f"[{done}/{done + len(todo) + len(running)}] {job.name}{_outcome(job)}")
        time.sleep(0.02)
    failed = [job.name for job in jobs if not job.target.exists()]
    if done:
        reasons = f"; the reasons of {len(failed)} failures lie in {jobs[0].target.parent}/*.failed" if failed else ""
        progress.note(f"{done} jobs ended{reasons}")
    return failed


def _attempt(job: Job) -> None:
    job.target.parent.mkdir(parents=True, exist_ok=True)
    try:
        job.work()
    except BaseException as error:  # the reason is kept for the user, and the next job goes on
        lines = traceback.format_exception_only(error)
        job.failure.write_text("".join(lines)[:4000], encoding="utf-8")


def _finish(process: mp.process.BaseProcess, job: Job, timeout: float) -> None:
    if process.is_alive():
        process.kill()
        job.failure.write_text(f"took longer than {timeout} s\n", encoding="utf-8")
    process.join()
    if not job.target.exists() and not job.failure.exists():
        job.failure.write_text(f"died with exit code {process.exitcode}\n", encoding="utf-8")


def _outcome(job: Job) -> str:
    if job.target.exists():
        return ""
    return ": " + job.failure.read_text(encoding="utf-8").strip().splitlines()[0][:150]
