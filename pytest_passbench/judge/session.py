"""The judge of one process: starts sandboxes when they are first needed and takes subgraphs through them."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from ..candidate.layout import Candidate, PassDir
from ..protocol import Plan
from ..report.record import Arm as ArmRecord
from ..report.record import Record
from ..settings import Settings
from ..suite.model import Subgraph, Task
from ..timing.looks import Stopping
from . import sandbox
from .arm import Arm, ArmSettings
from .clock import EAGER
from .cores import Cores
from .inputs import Inputs, Reservoir
from .pages import Pages, plan_layout
from .seed import derive
from .subject import CANDIDATE, Subject

SUBGRAPH_SECONDS = 0.6


class Session:
    """Judges tasks for candidates. A context manager; its sandboxes end with it."""

    def __init__(self, settings: Settings, seed: bytes, worker: int = 0) -> None:
        self.settings, self._seed = settings, seed
        torch.set_num_threads(1)  # the judge has one core to itself, the arms have the others
        self._walls = sandbox.require(settings.sandbox)
        self._cores = Cores.choose(settings.threads, worker)
        self._arms: dict[tuple[str, Path | None], Arm] = {}
        self._reservoir: Reservoir | None = None

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End every sandbox."""
        for arm in self._arms.values():
            arm.close()
        self._arms = {}

    def judge(self, task: Task, candidate: Candidate) -> Iterator[Record]:
        """One record per subgraph, as soon as it is judged. Raises UserError for a broken task only."""
        for subgraph in self.selected(task, candidate):
            yield self._judge(task, subgraph, candidate)

    def selected(self, task: Task, candidate: Candidate) -> tuple[Subgraph, ...]:
        """All subgraphs; of a candidate that Triton's interpreter runs, the smallest one of each dtype."""
        if self.settings.device.startswith("cuda") or not candidate.uses_triton:
            return task.subgraphs
        least: dict[str, Subgraph] = {}
        for subgraph in sorted(task.subgraphs, key=lambda item: item.elements):
            least.setdefault(subgraph.dtype, subgraph)
        return tuple(least.values())

    def _judge(self, task: Task, subgraph: Subgraph, candidate: Candidate) -> Record:
        record = Record(task.id, subgraph.id, candidate.name, subgraph.source, subgraph.dtype)
        record.operators = list(task.header.ops)
        passes = candidate.passes_for(task.id)
        fault = _fault(passes)
        if fault is not None:
            record.arm = fault
            return record
        rng = derive(self._seed, task.id, subgraph.id, candidate.name)
        arms = self._ready_arms(candidate)
        layout = plan_layout(subgraph.inputs)
        subject = Subject(
            record=record,
            plans=self._plans(task, subgraph, candidate, passes, list(arms)),
            arms=arms,
            layout=layout,
            pages=Pages(layout),
            inputs=Inputs(subgraph.inputs, self._values(), rng),
            cores=self._cores,
            locks=[f"core-{core}" for core in self._cores.arms],
            stopping=Stopping(seconds=SUBGRAPH_SECONDS),
            tolerance=self.settings.tolerance,
            rng=rng,
        )
        return subject.judge()

    def _values(self) -> Reservoir:
        if self._reservoir is None:
            self._reservoir = Reservoir(derive(self._seed, "reservoir", str(os.getpid())))
        return self._reservoir

    def _plans(
        self, task: Task, subgraph: Subgraph, candidate: Candidate, passes: PassDir | None, arms: list[str]
    ) -> dict[str, Plan]:
        source, origin = task.graphs[subgraph.graph], f"{task.path.name}:{subgraph.graph}"
        plans = {name: Plan(name, source, origin, self.settings.device) for name in arms}
        if passes is not None:
            inside = Path(self._inside(candidate)) / passes.path.resolve().relative_to(candidate.path.resolve())
            plans[CANDIDATE] = Plan(
                CANDIDATE, source, origin, self.settings.device, self.settings.pipeline, str(inside), passes.stems
            )
        return plans

    def _inside(self, candidate: Candidate) -> str:
        return sandbox.CANDIDATE_MOUNT if self._walls.strong else str(candidate.path.resolve())

    def _ready_arms(self, candidate: Candidate) -> dict[str, Arm]:
        """The arms of this run, in sandboxes of their own, started together, restarted where one is gone."""
        wanted = [(EAGER, None), (CANDIDATE, candidate.path), *((name, None) for name in self.settings.baselines)]
        for key in [key for key in self._arms if key not in wanted]:
            self._arms.pop(key).close()
        for key in wanted:
            if key in self._arms and not self._arms[key].alive:
                self._arms.pop(key).close()
            if key not in self._arms:
                self._arms[key] = Arm(self._arm_settings(*key))
        return {name: self._arms[(name, path)] for name, path in wanted}

    def _arm_settings(self, name: str, candidate: Path | None) -> ArmSettings:
        return ArmSettings(
            name=name,
            device=self.settings.device,
            threads=self.settings.threads,
            pipeline=self.settings.pipeline,
            candidate=candidate,
            walls=self._walls,
            timeout=self.settings.timeout,
        )

    def environment(self) -> dict[str, Any]:
        """Where the run took place: JSON-ready."""
        return {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpu": _cpu_model(),
            "cores": os.cpu_count(),
            "arm_cores": sorted(self._cores.arms),
            "threads": self.settings.threads,
            "device": self.settings.device,
            "sandbox": str(self._walls),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "load": round(os.getloadavg()[0], 2),
            "memory_gib": math.ceil(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        }


def _fault(passes: PassDir | None) -> ArmRecord | None:
    """What is wrong with a candidate before anything of it runs."""
    if passes is None:
        return ArmRecord("pass_miss", "load", "the candidate has no passes for this task")
    if passes.faults:
        return ArmRecord("compile_fail", "load", "\n".join(str(fault) for fault in passes.faults))
    return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("model name", "CPU part")):
            return line.partition(":")[2].strip()
    return platform.processor()


