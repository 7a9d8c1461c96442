"""Running under pytest-xdist: devices and tasks to workers, longest tasks first. ``active`` takes in results."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xdist.scheduler import LoadScheduling

from pytest_passbench.plugin.nodeid import split
from pytest_passbench.walls import harden

if TYPE_CHECKING:
    import pytest
    from xdist.workermanage import WorkerController


def visible_devices() -> list[str]:
    """Return the CUDA devices that this process may use, by the names that CUDA_VISIBLE_DEVICES takes.

    The caller's own mask is respected. No driver is asked, since importing torch here would slow every start.
    """
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is not None:
        return [name.strip() for name in mask.split(",") if name.strip()]
    numbers = [path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")]
    return sorted((name for name in numbers if name.isdigit()), key=int)


def workers(device: str, threads: int) -> int:
    """Return how many workers ``-n auto`` starts: one per CUDA device, or per judge and its arms' threads."""
    if device == "cuda":
        return max(1, len(visible_devices()))
    cores = len(os.sched_getaffinity(0))
    return max(1, cores // (threads + 1)) if device == "cpu" else 1


def assign_devices(specs: Sequence[Any], device: str) -> None:
    """Assign one CUDA device to every worker, in turn, if the run is on ``cuda`` without a number.

    It is set before anything is imported in the worker, and kept when xdist replaces a crashed one.
    """
    devices = visible_devices()
    if device == "cuda" and devices:
        for index, spec in enumerate(specs):
            spec.env["CUDA_VISIBLE_DEVICES"] = devices[index % len(devices)]


def end_with(controller: int) -> None:
    """Have the kernel kill this worker as soon as the controller is gone, and its sandboxes with it.

    Otherwise execnet lets it judge on for up to 15 seconds, and the pipes of the run's caller stay open meanwhile.
    A worker on another machine, or behind another gateway, is no child of the controller: it is left alone.
    """
    if os.getppid() == controller:
        harden.die_with_parent()
        if os.getppid() != controller:  # it has ended in between
            os.kill(os.getpid(), signal.SIGKILL)


def local_pid(gateway: Any, controller: int) -> int | None:
    """Return the process id of a worker behind a new gateway; None if it is no child of the controller."""
    channel = gateway.remote_exec("import os\nchannel.send([os.getpid(), os.getppid()])")
    pid, parent = channel.receive()
    channel.waitclose()
    return int(pid) if parent == controller else None


def interrupt(pids: Iterable[int]) -> None:
    """Interrupt local workers as Ctrl+C does: by themselves they would judge on for seconds."""
    from pytest_passbench.judge.arms import processes

    for pid in pids:
        if processes.parent_if_any(pid) == os.getpid():  # not one that has ended
            os.kill(pid, signal.SIGINT)


class LongestFirst(LoadScheduling):
    """A scheduler that hands out one item at a time, the most costly first: no long task is left for the end.

    Each worker holds the item it runs and one more, which xdist's workers need in order to start. The order
    depends on the costs and the node ids alone. With ``together`` a worker gets the items of a task one after the
    other, as long as other tasks are left for the others: it measures the task's baselines once for all candidates.
    """

    def __init__(self, config: pytest.Config, log: Any, costs: dict[str, int], together: bool = False) -> None:
        super().__init__(config, log)
        self.collection: list[str] | None = None
        self._costs, self._together = costs, together
        self._begun: dict[str, WorkerController] = {}  # the worker that got a task's first item

    def schedule(self) -> None:
        """Start handing out, or go on with workers that came later. Called by xdist's controller."""
        if self.collection is None:
            if not self._check_nodes_have_same_collection():
                return
            collected: list[str] = next(iter(self.node2collection.values()))
            self.collection = collected
            keys = [(-self._costs.get(nodeid, 0), nodeid) for nodeid in collected]
            self.pending[:] = sorted(range(len(collected)), key=keys.__getitem__)
        for _ in range(2):
            for node in self.nodes:
                self._hand_out(node)
        for node in self.nodes:
            self.check_schedule(node)

    def check_schedule(self, node: WorkerController, duration: float = 0) -> None:  # noqa: ARG002
        """Give a worker more items; if none are left, tell it to end after those it has."""
        if node.shutting_down:
            return
        while self.pending and len(self.node2pending[node]) < 2:
            self._hand_out(node)
        if not self.pending:
            node.shutdown()

    def _hand_out(self, node: WorkerController) -> None:
        # A worker that was told to end gets no more items. Those of a killed worker go to the one that replaces it.
        if self.pending and not node.shutting_down and len(self.node2pending[node]) < 2:
            index = self._next(node)
            self.pending.remove(index)
            self.node2pending[node].append(index)
            node.send_runtest_some([index])

    def _next(self, node: WorkerController) -> int:
        """Return the pending item for a worker: of a task that it has begun, else of a new task, else any."""
        waiting: list[int] = self.pending
        if not self._together:
            return waiting[0]
        assert self.collection is not None
        tasks = {index: split(self.collection[index])[0] for index in waiting}
        begun = [index for index, task in tasks.items() if self._begun.get(task) is node]
        fresh = [index for index, task in tasks.items() if task not in self._begun]
        first = [*begun, *fresh, *waiting][0]
        self._begun.setdefault(tasks[first], node)
        return first
