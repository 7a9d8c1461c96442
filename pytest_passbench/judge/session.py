"""A judging session in one process. It starts sandboxes when they are first needed, and judges subgraphs in them."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.seed import Secret
from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.arms.failures import ArmFailure, printable
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, TWIN
from pytest_passbench.judge.audits import layers
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.store import cache_folder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.inputs import Inputs, chosen
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.judge.machine import priority
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.machine.gpu import device_state
from pytest_passbench.judge.measure.allowance import Allowance, Budget
from pytest_passbench.judge.measure.floor import Noise
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.judge.reading.readings import Readings, folder
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.judge.subject import Subject
from pytest_passbench.protocol import READ, Order
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.taskfile import task_hash
from pytest_passbench.timing.looks import LOOKS, Stopping
from pytest_passbench.timing.measurement import Arms

#: The allowance of a subgraph without a budget: the pairs of the first look, cut short on a noisy machine.
DEFAULT = Allowance(pair=0.024, pairs=LOOKS[0])
#: The allowance of a subgraph that noise left open, when it is measured again: longer pairs, since rounds are noisy.
AGAIN = Allowance(seconds=4.0, pairs=LOOKS[-1], precise=0.01)
#: Phases outside of the pairs.
AROUND = ("read", "build", "inputs", "wait", "end", "other", "verify", "audit")


class Session:
    """A session that judges tasks for candidates. It is a context manager, and its sandboxes end with it."""

    def __init__(self, settings: Settings, seed: bytes, worker: int = 0) -> None:
        self.settings, self._seed = settings, seed
        torch.set_num_threads(1)  # the judge has one core to itself; the arms have the others
        self._walls = sandbox.require(settings.sandbox)
        self._cores = Cores.choose(settings.threads, worker)
        self._awake = Awake(self._cores.arms)
        self._arms: dict[str, Arm] = {}
        #: The number of subgraphs that this session will judge, if its caller knows it. A budget is spread over them.
        self.expected = 0
        #: True if the machine's noise (eager against eager) is measured on some of the subgraphs.
        self.floor = True
        self._budget = Budget(settings.budget)
        self._noise = Noise()
        mount = sandbox.CANDIDATE_MOUNT if self._walls.strong else ""
        builder, triton = Builder(self._walls, cache_folder()), TritonBuilder(self._walls, cache_folder())
        self._readings = Readings(settings.policy, builder, triton, self._start_reading, mount)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every sandbox."""
        self._readings.close()
        for arm in self._arms.values():
            arm.close()
        self._arms = {}
        self._awake.close()

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """Yield a record for each subgraph, as soon as it is judged. Raises UserError if the task itself is broken.

        If noise left a verdict open, the subgraph is measured again by new processes at the end of the task. Its
        record is then yielded once more, and the later one counts.
        """
        for key, source in task.graphs.items():  # a graph that is not allowed is named before anything runs
            build_graph(source, str(task.path), line=task.graph_lines.get(key, 1))
        subgraphs = self.selected(task, candidate)
        self._budget.expected = self.expected
        self._budget.begin(len(subgraphs))
        noisy: list[tuple[Subgraph, Subject]] = []
        for subgraph in subgraphs:
            record = self._record(task, subgraph, candidate)
            fault = _fault(candidate.passes_for(task.id)) or self._load_fault(task, candidate, record)
            if fault is not None:
                record.arm = fault
                self._budget.skip()
            else:
                subject = self._judged(task, subgraph, candidate, record)
                self._after(task, candidate, record, subject)
                if subject.noisy and record.arm.status == "correct":
                    noisy.append((subgraph, subject))
            yield record
        for subgraph, subject in noisy:
            if self._budget.spare(sum(subject.record.durations.values())):
                yield self._again(task, subgraph, candidate, subject)

    def _load_fault(self, task: Task, candidate: Candidate, record: Record) -> ArmResult | None:
        """Return the failure to load the passes, or None if they can run."""
        passes = candidate.passes_for(task.id)
        assert passes is not None
        phases = Stopwatch(record.durations)
        with phases("start"):
            reading = self._readings.arm(candidate)
            self._ready_arms()  # they start at the same time
            reading.ready()
        with phases("read"):
            try:
                planner = self._readings.planner(candidate, passes)
            except ArmFailure as failure:
                return ArmResult(failure.status, failure.phase, printable(failure.message))
        if not passes.stems or self._readings.passes(planner, passes):
            return None
        return ArmResult("integrity", "disqualified", "its passes broke a rule on another subgraph of the run")

    def _after(self, task: Task, candidate: Candidate, record: Record, subject: Subject) -> None:
        """Disqualify passes that broke a rule from now on. Replace a reader that gave no valid answer."""
        passes = candidate.passes_for(task.id)
        assert passes is not None
        if record.arm.status == "integrity":
            self._readings.caught(passes, set(subject.culprits) or layers.culprits(record))
        if record.arm.status in ("crash", "timeout", "integrity") and record.arm.phase in ("wrapper", "plan", "load"):
            self._readings.forget()

    def noise(self) -> dict[str, Any]:
        """Return this machine's noise so far, from eager against eager: JSON-ready (docs/results.md)."""
        return self._noise.to_json()

    def _again(self, task: Task, subgraph: Subgraph, candidate: Candidate, first: Subject) -> Record:
        """Continue the measurement of a subgraph, and return a new record. It keeps the earlier findings."""
        record = self._record(task, subgraph, candidate)
        record.findings = list(first.record.findings)
        again = self._judged(task, subgraph, candidate, record, first.measured)
        self._after(task, candidate, record, again)
        for name, arm in [(CANDIDATE, record.arm), *record.baselines.items()]:
            _worse(arm, first.result(name))
            arm.output = arm.output or first.result(name).output  # the reader prints its output once
        record.null_from = max(record.null_from, first.record.null_from)
        for phase, seconds in first.record.durations.items():
            record.durations[phase] = record.durations.get(phase, 0.0) + seconds
        return record

    def selected(self, task: Task, candidate: Candidate) -> tuple[Subgraph, ...]:
        """Return the subgraphs to judge: all, or the smallest one of each dtype if Triton's interpreter is used."""
        if is_cuda(self.settings.device) or not candidate.uses_triton:
            return task.subgraphs
        least: dict[str, Subgraph] = {}
        for subgraph in sorted(task.subgraphs, key=lambda item: item.elements):
            least.setdefault(subgraph.dtype, subgraph)
        return tuple(least.values())

    @staticmethod
    def _record(task: Task, subgraph: Subgraph, candidate: Candidate) -> Record:
        record = Record(task.id, subgraph.id, candidate.name, subgraph.source, subgraph.dtype)
        passes = candidate.passes_for(task.id)
        record.folder = folder(candidate, passes) if passes is not None else ""
        record.task_hash = task_hash(task)
        record.operators = list(task.header.ops)
        return record

    def _judged(
        self, task: Task, subgraph: Subgraph, candidate: Candidate, record: Record, earlier: Arms | None = None
    ) -> Subject:
        """Judge a subgraph. Note its cost and, with a twin, the machine's noise."""
        phases = Stopwatch(record.durations)
        with phases("start"):
            chosen()  # compiled when it is first asked for
            arms = self._ready_arms()
        with phases("other"):
            subject = self._subject(task, subgraph, candidate, record, arms, phases, earlier)
            subject.judge()
            if subject.measured is not None:
                self._noise.add(subject.measured, subgraph.elements)
        self._note_costs(subject, earlier)
        return subject

    def _note_costs(self, subject: Subject, earlier: Arms | None) -> None:
        spent = subject.record.durations
        total = sum(seconds for phase, seconds in spent.items() if phase != "start")
        pairs = subject.measured.pairs if subject.measured is not None else []
        other = sum(seconds for phase, seconds in spent.items() if phase in AROUND)
        if earlier is None:
            self._budget.done(total, spent.get("blocks", 0.0), len(pairs), other)

    def _subject(
        self,
        task: Task,
        subgraph: Subgraph,
        candidate: Candidate,
        record: Record,
        arms: dict[str, Arm],
        phases: Stopwatch,
        earlier: Arms | None,
    ) -> Subject:
        secret = Secret(self._seed, task.id, subgraph.id, candidate.name, "again" if earlier else "")
        passes = candidate.passes_for(task.id)
        assert passes is not None
        with phases("read"):
            planners = self._planners(task, candidate)
        told = self._readings.passes(planners[CANDIDATE], passes)
        orders = self._orders(task, subgraph, told, list(arms))
        if earlier is not None or not self._noise.wants(subgraph.elements):
            orders.pop(TWIN, None)
        layout, allowance = plan_layout(subgraph.inputs), self._allowance(len(orders), earlier)
        with phases("inputs"):
            pages, inputs = Pages(layout), Inputs(subgraph.inputs, secret.key("inputs"))
        bench = Bench(
            layout, pages, inputs, self._cores, self._awake, secret, phases, self.settings.tolerance
        )
        return Subject(
            record=record,
            orders=orders,
            planners=planners,
            arms=arms,
            bench=bench,
            locks=self._locks(),
            stopping=Stopping(self._noise.delta, max_pairs=allowance.pairs, correlation=self._noise.correlation),
            allowance=allowance,
            auditor=Auditor(self.settings, bench, arms[CANDIDATE]),
            earlier=earlier,
        )

    def _locks(self) -> list[str]:
        device = self.settings.device
        cores = [f"core-{core}" for core in self._cores.arms]
        return [*cores, f"device-{device.partition(':')[2] or 0}"] if is_cuda(device) else cores

    def _allowance(self, arms: int, earlier: Arms | None) -> Allowance:
        return (self._budget.allowance(arms) or DEFAULT) if earlier is None else AGAIN

    def _planners(self, task: Task, candidate: Candidate) -> dict[str, Planner]:
        """Return the planner of each arm that has passes. Raises ArmFailure if they can't be loaded."""
        passes = candidate.passes_for(task.id)
        assert passes is not None
        return {CANDIDATE: self._readings.planner(candidate, passes)}

    def _orders(
        self, task: Task, subgraph: Subgraph, passes: tuple[dict[str, Any], ...], arms: list[str]
    ) -> dict[str, Order]:
        source, origin = task.graphs[subgraph.graph], f"{task.path.name}:{subgraph.graph}"
        orders = {name: Order(name, source, origin, self.settings.device) for name in arms}
        if TWIN in orders:
            orders[TWIN] = orders[EAGER]
        orders[CANDIDATE] = Order(CANDIDATE, source, origin, self.settings.device, self.settings.pipeline, passes)
        return orders

    def _ready_arms(self) -> dict[str, Arm]:
        """Return the arms of this run, in sandboxes of their own. Start those that do not run yet, or have ended."""
        # For a single subgraph, a twin's sandbox would cost more than it tells.
        twin = [TWIN] if self.floor and self._budget.expected > 1 else []
        for name in (EAGER, CANDIDATE, *self.settings.baselines, *twin):
            if name in self._arms and not self._arms[name].alive:
                self._arms.pop(name).close()
            if name not in self._arms:
                pipeline = "inductor" if name in self.settings.baselines else self.settings.pipeline
                own = EAGER if name == TWIN else name
                self._arms[name] = Arm(self._arm_settings(own, pipeline, judged=name == CANDIDATE))
        return self._arms

    def _start_reading(self, candidate: Path) -> Arm:
        return Arm(self._arm_settings("reader", READ, candidate))

    def _arm_settings(
        self, name: str, pipeline: str, candidate: Path | None = None, judged: bool = False
    ) -> ArmSettings:
        return ArmSettings(
            name=name,
            device=self.settings.device,
            threads=self.settings.threads,
            pipeline=pipeline,
            walls=self._walls,
            timeout=self.settings.timeout,
            candidate=candidate,
            judged=judged,
        )

    def environment(self) -> dict[str, Any]:
        """Return the machine, the settings and the versions of the run: JSON-ready."""
        return {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "arm_cores": sorted(self._cores.arms),
            "threads": self.settings.threads,
            "device": self.settings.device,
            "sandbox": str(self._walls),
            "inputs": chosen().name,
            **(device_state(self.settings.device) if is_cuda(self.settings.device) else {}),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "priority": "real-time" if priority.allowed() else "ordinary",
            "frequency_mhz": _frequency(),
            "load": round(os.getloadavg()[0], 2),
            "memory_gib": math.ceil(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        }


def _worse(arm: ArmResult, before: ArmResult) -> None:
    """Keep the worse of the present and earlier results of verified calls."""
    pairs = zip(arm.correct_from, before.correct_from, strict=False)
    arm.correct_from = [max(now, then) for now, then in pairs] or arm.correct_from
    arm.worst = arm.worst or before.worst


def _fault(passes: PassDir | None) -> ArmResult | None:
    """Return the failure of a candidate whose files are missing or faulty, before any code of it runs."""
    if passes is None:
        return ArmResult("pass_miss", "load", "the candidate has no passes for this task")
    if passes.faults:
        return ArmResult("compile_fail", "load", "\n".join(str(fault) for fault in passes.faults))
    return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.processor()


def _frequency() -> float | None:
    """Return the fastest core's present clock in MHz; None if the kernel does not tell."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    found = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return round(max(found)) if found else None
