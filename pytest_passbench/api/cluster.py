"""The backend of many machines: a Ray cluster with one judge per GPU, or per group of cores.

A judge is an actor. It gets one task at a time, for all candidates of the call, and answers with the task's records.
If a node is lost, other judges get the tasks of its judges. Machines may join a cluster at any time.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import socket
import tarfile
import time
from collections import Counter, deque
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pytest_passbench.api.backend import EvaluatorCall, Report, report_on_machine, start_judge
from pytest_passbench.candidate import files
from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.harness import harness_hash
from pytest_passbench.core.progress import ProgressLines
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.run.judging import judge_all

if TYPE_CHECKING:
    from pytest_passbench.judge.session import Session

INSTALL = "pip install 'pytest-passbench[ray]'"
OF_LOST_NODES = "Raylet is terminated|has been marked dead"
"""The log lines that Ray must not print: 45 lines about each node that is lost. Ray reads this pattern from an
environment variable when it is imported. The code that awaits the node's answer reports the loss in one line."""
REACH_SECONDS = 10.0  # for a cluster's head to answer
MAX_LOSSES = 3  # judges lost with one task until the task counts as the cause; also judges lost at one place's start
LOOK_SECONDS = 5.0  # between two looks for machines that have joined
NODES_TIMEOUT_SECONDS = 120.0  # to wait for a machine with room for a judge


@dataclass(frozen=True)
class Packed:
    """A candidate as it is sent: its name, its folder on the caller's machine, its files as tar, and their digest."""

    name: str
    home: str
    files: bytes
    content_hash: str


class Remote:
    """The actor: a judge on some machine of the cluster. ``index`` tells apart those of one machine."""

    def __init__(self, settings: Settings, thorough: bool, index: int) -> None:
        self._arguments = settings, thorough, index
        self._judge: Session | None = None
        self._call, self._candidates, self._homes = b"", list[Candidate](), dict[str, str]()
        self._scratch: Scratch | None = None

    def start(self, harness: str) -> UserError | None:
        """Start the sandboxes. Return the error if this machine can't judge for a caller with this ``harness``."""
        if harness_hash() != harness:
            what, remedy = "has another version of pytest-passbench", "install the same one"
            return UserError(what, where=platform.node(), remedy=remedy)
        try:
            self._judge = start_judge(*self._arguments)
        except UserError as error:
            return error
        return None

    def judge(self, seed: bytes, expected: int, packed: list[Packed], task: Task) -> list[Report] | UserError:
        """Return the reports on a task. A new ``seed`` begins a new call."""
        judge = self._judge
        assert judge is not None
        try:
            if seed != self._call:
                judge.begin(seed)
                judge.expected = expected
                self._call, self._candidates = seed, self._unpacked(packed)
            records = map(self._at_home, judge_all(judge, [task], self._candidates, judge.settings))
            return [*records, report_on_machine(judge, f"{platform.node()}/{self._arguments[2]}")]
        except UserError as error:
            return error

    def _unpacked(self, packed: list[Packed]) -> list[Candidate]:
        if self._scratch is not None:
            self._scratch.close()
        self._scratch = Scratch()
        self._homes, candidates = {}, []
        for number, item in enumerate(packed):
            folder = self._scratch.path / str(number) / item.name
            folder.mkdir(parents=True)
            with tarfile.open(fileobj=BytesIO(item.files)) as files:
                files.extractall(folder, filter="data")
            candidates.append(Candidate.open(folder))
            if candidates[-1].content_hash != item.content_hash:
                what = "the files that arrived differ from those sent"
                raise UserError(what, where=item.home, remedy="start the run again")
            self._homes[str(folder)] = item.home
        return candidates

    def _at_home(self, record: Record) -> Record:
        """Return a record in which paths of the candidate are those of the caller's machine."""
        text = json.dumps(record.to_json())
        for here, home in self._homes.items():
            text = text.replace(json.dumps(here)[1:-1], json.dumps(home)[1:-1])
        return Record.from_data(json.loads(text))


@dataclass
class _JudgeActor:
    """An actor on a node, and its present work. ``host`` is the node's name for people."""

    actor: Any
    node: str
    host: str
    index: int
    ready: Any  # the future of its start
    job: Any = None  # the future of its task, None while it has none
    task: Task | None = None


@dataclass
class _CallProgress:
    """A call in progress: the tasks that no judge has yet, how often each was lost, and the lost starts.

    Starts are counted by node and by the judge's index there.
    """

    call: EvaluatorCall
    waiting: deque[Task]
    packed: Any
    losses: Counter[str] = field(default_factory=Counter)
    unstarted: Counter[tuple[str, int]] = field(default_factory=Counter)

    def lost(self, task: Task, how: str) -> None:
        """Put a lost judge's task back. ``how`` says how it was lost. Raises UserError if that happens too often."""
        self.losses[task.id] += 1
        if self.losses[task.id] >= MAX_LOSSES:
            remedy = "judge it on one machine, without Ray, to see why"
            raise UserError(f"{MAX_LOSSES} judges were lost with this task: {how}", where=task.path, remedy=remedy)
        self.waiting.appendleft(task)

    def not_started(self, judge: _JudgeActor, how: str) -> None:
        """Note that a judge was lost at its start. Raises UserError if too many were lost in the same place.

        Their replacements would be lost without end, for example on a machine without this package.
        """
        self.unstarted[judge.node, judge.index] += 1
        if self.unstarted[judge.node, judge.index] >= MAX_LOSSES:
            remedy = f"{INSTALL} on each machine, in the same version"
            raise UserError(f"no judge starts on a machine: {how}", where=f"ray, {judge.host}", remedy=remedy)


class Cluster:
    """Judges on a Ray cluster. ``address`` is as ``ray.init`` takes it; None joins the cluster of RAY_ADDRESS.

    Without such a cluster, one is started on this machine. Raises UserError if Ray is missing or cannot be reached.
    """

    def __init__(self, settings: Settings, thorough: bool, address: str | None = None) -> None:
        self._ray, self._joined = connected(address)
        self._settings, self._thorough = settings, thorough
        self._progress = ProgressLines("ray")
        self._judges: list[_JudgeActor] = []
        self._looked = 0.0
        self._grow()

    def judge(self, call: EvaluatorCall) -> Generator[Report]:
        """Yield the reports of a call, task by task as they are judged."""
        try:
            yield from self._reports(call)
        except BaseException:  # the judges' present tasks are of no use, and would delay the next call
            self._stop()
            raise

    def _reports(self, call: EvaluatorCall) -> Generator[Report]:
        tasks = sorted(call.tasks, key=lambda task: -len(task.subgraphs))  # no long one is left for the end
        work = _CallProgress(call, deque(tasks), self._ray.put(_pack(call)))
        since, waits = time.monotonic(), False
        while work.waiting or any(judge.job is not None for judge in self._judges):
            self._grow()
            self._hand_out(work)
            futures = [judge.ready if judge.job is None else judge.job for judge in self._judges]
            busy = [future for future in futures if future is not None]
            if not busy:
                needs = _amounts(_needs(self._settings))
                what = f"no machine of the cluster has room for a judge, which takes {needs}"
                if time.monotonic() - since > NODES_TIMEOUT_SECONDS:
                    raise UserError(f"{what} ({self._machines()})", where="ray", remedy="add such a machine")
                if not waits:
                    waits = True
                    self._progress.note(f"{what} ({self._machines()}); waits {NODES_TIMEOUT_SECONDS:g} s for one")
                time.sleep(LOOK_SECONDS / 10)
                continue
            since = time.monotonic()
            done, _ = self._ray.wait(busy, num_returns=1, timeout=LOOK_SECONDS)
            for future in done:
                yield from self._finished(future, work)

    def _hand_out(self, work: _CallProgress) -> None:
        for judge in self._judges:
            if judge.ready is None and judge.job is None and work.waiting:
                judge.task = work.waiting.popleft()
                call = work.call
                share = -(-call.subgraphs // len(self._judges))  # a judge divides its time budget by this
                judge.job = judge.actor.judge.remote(call.seed, share, work.packed, judge.task)

    def _finished(self, future: Any, work: _CallProgress) -> list[Report]:
        """Return the reports of a task that is done. The task of a lost judge is put back."""
        judge = next(judge for judge in self._judges if future in (judge.ready, judge.job))
        try:
            reports = self._ray.get(future)
        except self._ray.exceptions.RayError as error:
            self._judges.remove(judge)
            self._looked = 0.0
            with suppress(Exception):
                self._ray.kill(judge.actor)
            how = line(str(error).strip().rpartition("\n")[2])  # above it is a traceback
            if judge.task is not None and judge.job is not None:
                work.lost(judge.task, how)
            else:
                work.not_started(judge, how)
            self._progress.note(f"a judge on {judge.host} was lost; another one starts in its place: {how}")
            return []
        if isinstance(reports, UserError):
            raise reports
        if future == judge.ready:
            judge.ready = None
            return []
        judge.job = judge.task = None
        return list(reports)

    def _machines(self) -> str:
        """Return the cluster's machines and their resources, for people."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        words = (f"{node['NodeManagerHostname']} has {_amounts(node['Resources'])}" for node in nodes)
        return ", ".join(words) or "it has none"

    def _grow(self) -> None:
        """Start judges where there are none: on machines that have joined, or in place of lost ones."""
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        needs = _needs(self._settings)
        remote = self._ray.remote(Remote)
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        for node in self._ray.nodes():
            name = node["NodeID"]
            if not node["Alive"]:
                continue
            indices = {judge.index for judge in self._judges if judge.node == name}
            for index in range(min(int(node["Resources"].get(kind, 0) // amount) for kind, amount in needs.items())):
                if index in indices:
                    continue
                options = {f"num_{kind.lower()}s": amount for kind, amount in needs.items()}
                options |= {"scheduling_strategy": strategy(node_id=name, soft=False), "max_restarts": 0}
                actor = remote.options(**options).remote(self._settings, self._thorough, index)
                ready = actor.start.remote(harness_hash())
                self._judges.append(_JudgeActor(actor, name, node["NodeManagerHostname"], index, ready))

    def _stop(self) -> None:
        """End all judges at once. Their sandboxes end with them."""
        for judge in self._judges:
            with suppress(Exception):
                self._ray.kill(judge.actor)
        self._judges, self._looked = [], 0.0

    def close(self) -> None:
        """End all judges, and leave the cluster if this process has joined it for them."""
        self._stop()
        if self._joined:
            self._ray.shutdown()


def connected(address: str | None) -> tuple[Any, bool]:
    """Return the module ``ray``, connected to a cluster, and True if this process was not connected before.

    ``address`` is as in :class:`Cluster`. Raises UserError if Ray is missing or no cluster answers.
    """
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", OF_LOST_NODES)
    where = f"ray, {address}" if address else "ray"
    try:
        import ray
    except ImportError:
        raise UserError("Ray is not installed", where=where, remedy=INSTALL) from None
    if ray.is_initialized():
        return ray, False
    try:
        _reach(address or os.environ.get("RAY_ADDRESS", ""))
        dashboard = False if address is None else None
        ray.init(address=address, log_to_driver=False, include_dashboard=dashboard, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        remedy = "start one with `ray start --head`, or leave the address out"
        raise UserError(f"no Ray cluster answers: {line(str(error))}", where=where, remedy=remedy) from None
    return ray, True


def _reach(address: str) -> None:
    """Raise OSError if nothing listens at an address with a port. Ray would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()


def _pack(call: EvaluatorCall) -> list[Packed]:
    packed = []
    for candidate in call.candidates:
        file = BytesIO()
        digest = files.pack(candidate.path, file)
        packed.append(Packed(candidate.name, str(candidate.path), file.getvalue(), digest))
    return packed


def _needs(settings: Settings) -> dict[str, int]:
    """Return what an actor takes: a GPU and a core, or the cores of its arms and one for the judge."""
    return {"GPU": 1, "CPU": 1} if is_cuda(settings.device) else {"CPU": settings.threads + 1}


def _amounts(resources: Mapping[str, float]) -> str:
    """Return the cores and GPUs among a machine's resources, for people."""
    return ", ".join(f"{resources[name]:g} {name}" for name in ("CPU", "GPU") if resources.get(name)) or "none"
