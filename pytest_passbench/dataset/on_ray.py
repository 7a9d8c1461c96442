"""The jobs of a build on a Ray cluster: the architectures are captured by the cluster's processes, one on each core.

Files are written here alone. So a machine that is lost costs the architectures that it worked on, which are tried
again on another one.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pytest_passbench.core.escape import line
from pytest_passbench.core.files import write_text
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.ray_cluster import connect
from pytest_passbench.dataset.architectures import Architecture
from pytest_passbench.dataset.extract import extract
from pytest_passbench.forge.jobs import Job, keep_freed_memory, limit_memory
from pytest_passbench.forge.windows import RunRanges

MAX_LOSSES = 3
"""An architecture fails if so many processes ended over it."""
POLL_SECONDS = 1.0
DoneBefore = Callable[[Architecture], tuple[set[str], RunRanges]]
"""What an architecture need not do at the moment: the ids that it need not give, and the fusible ranges."""


@dataclass
class _RemoteCapture:
    """An architecture that a process of the cluster works on."""

    architecture: Architecture
    job: Job
    deadline: float
    losses: int = 0


class RayJobs:
    """Runs jobs on a cluster. ``address`` is as ``ray.init`` takes it; empty joins RAY_ADDRESS, or starts one here.

    Raises UserError if Ray is missing or no cluster answers.
    """

    def __init__(self, address: str, timeout: float, progress: ProgressLines, ended: Callable[[Job], str]) -> None:
        self._connection = connect(address or None, f"--ray={address}" if address else "--ray")
        self._ray, self._timeout, self._progress, self._ended = self._connection.ray, timeout, progress, ended
        self._extract = self._ray.remote(num_cpus=1, max_retries=0, max_calls=1)(_extracted)
        self._running: dict[Any, _RemoteCapture] = {}
        self.failed: list[str] = []
        self._done = 0

    def run(self, jobs: Iterator[tuple[Architecture, Job]], done_before: DoneBefore, budget: float) -> list[str]:
        """Run the jobs that are open. Return the names of those that failed. None begins after ``budget`` seconds."""
        begin, exhausted = time.monotonic(), False
        try:
            while not exhausted or self._running:
                while not exhausted and len(self._running) < self._cores():
                    pair = next(jobs, None) if time.monotonic() - begin < budget else None
                    exhausted = pair is None
                    if pair is not None and pair[1].open:
                        self._begin(_RemoteCapture(*pair, 0.0), done_before)
                self._collect(done_before)
        finally:
            for future in self._running:
                self._ray.cancel(future, force=True)
            self._connection.close()
        return self.failed

    def _cores(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _begin(self, task: _RemoteCapture, done_before: DoneBefore) -> None:
        task.deadline = time.monotonic() + self._timeout
        self._running[self._extract.remote(task.architecture, *done_before(task.architecture))] = task

    def _collect(self, done_before: DoneBefore) -> None:
        done, _ = (
            self._ray.wait(list(self._running), num_returns=1, timeout=POLL_SECONDS) if self._running else ([], [])
        )
        for future in done:
            task = self._running.pop(future)
            try:
                text = self._ray.get(future)
            except self._ray.exceptions.RayTaskError as error:  # the architecture's own
                self._fail(task, line(str(error.cause)))
            except self._ray.exceptions.RayError as error:  # the process or its machine is gone
                task.losses += 1
                if task.losses < MAX_LOSSES:
                    self._progress.note(f"{task.job.name}: its process was lost, another one begins anew")
                    self._begin(task, done_before)
                else:
                    self._fail(task, f"died {task.losses} times: {line(str(error)).partition('.')[0]}")
            else:
                self._write(task, text)
        for future, task in list(self._running.items()):
            if time.monotonic() > task.deadline:
                self._ray.cancel(future, force=True)
                del self._running[future]
                self._fail(task, f"took longer than {self._timeout} s")

    def _write(self, task: _RemoteCapture, text: str) -> None:
        write_text(task.job.target, text)
        self._done += 1
        self._progress.update(f"[{self._done}] {task.job.name}{self._ended(task.job)}")

    def _fail(self, task: _RemoteCapture, reason: str) -> None:
        task.job.failure.write_text(f"{reason}\n", encoding="utf-8")
        self._done += 1
        self.failed.append(task.job.name)
        self._progress.note(f"[{self._done}] {task.job.name}: {reason[:150]}")


def _extracted(architecture: Architecture, known: set[str], ranges: RunRanges) -> str:
    """Return the JSON of an architecture's rows. It runs in a process of the cluster."""
    import logging
    import warnings

    import torch

    torch.set_num_threads(1)
    limit_memory(os.cpu_count() or 1)
    keep_freed_memory()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    return json.dumps(asdict(extract(architecture, known, ranges)))
