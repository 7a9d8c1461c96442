"""The equipment of a judge from its start to its end: cores, sandboxes, readers, eager's built programs.

Programs that are kept serve the next candidate's case on the same subgraph. They lie in sandboxes that no candidate's
code runs in. Each case has new inputs, forks new runners, and times eager beside its candidate.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.arms.template import Template
from pytest_passbench.judge.bench import Bench, Deadline, Stopwatch
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.store import cache_folder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs import default as default_generator
from pytest_passbench.judge.inputs.pages import Pages, max_slots, plan_layout
from pytest_passbench.judge.machine.cores import Awake, Cores
from pytest_passbench.judge.machine.gpu import HeldOpen, device_state
from pytest_passbench.judge.machine.process import allowed
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.protocol import BASELINE, READ
from pytest_passbench.suite.limits import machine_bytes

MAX_PROGRAMS = 32  # subgraphs whose programs are kept. Each has up to two processes and five open files
MAX_PAGES_BYTES = 1 << 30  # of the input pages of all kept programs


class Sandboxes:
    """The arms' sandboxes of one judge. They start when they are first needed, and again if one has ended."""

    def __init__(self, settings: Settings, walls: Walls) -> None:
        self._settings, self._walls = settings, walls
        self._arms: dict[str, Arm] = {}

    def arms(self, names: Iterable[str]) -> dict[str, Arm]:
        """Return the sandboxes of these arms, in this order. New ones start side by side."""
        ordered = tuple(names)
        for name in ordered:
            if name in self._arms and not self._arms[name].alive:
                self._arms.pop(name).close()
            if name not in self._arms:
                pipeline = name + BASELINE if name in self._settings.baselines else self._settings.pipeline
                sandbox = EAGER if name == TWIN else name
                self._arms[name] = Arm(self._for_arm(sandbox, pipeline, judged=name in (CANDIDATE, REFERENCE)))
        return {name: self._arms[name] for name in ordered}

    def start_reading(self) -> Arm:
        """Start a sandbox for readers. It ends when its caller closes it."""
        return Arm(self._for_arm("reader", READ))

    def _for_arm(self, name: str, pipeline: str, judged: bool = False) -> ArmSettings:
        run = self._settings
        return ArmSettings(name, run.device, run.threads, pipeline, self._walls, run.timeout, judged)

    def close(self) -> None:
        for arm in self._arms.values():
            arm.close()
        self._arms = {}


@dataclass(frozen=True)
class Built:
    """Eager's templates of a subgraph, by arm, and the input pages that they have mapped.

    Without a template for float64, the graph has no float64 form.
    """

    pages: Pages
    templates: dict[str, Template]

    def end(self) -> None:
        for template in self.templates.values():
            template.end()
        self.pages.close()


@dataclass
class Programs:
    """The kept programs of a judge, by the content of the subgraph. The least recently used are ended first.

    ``enabled`` is False for a judge that keeps none.
    """

    enabled: bool = False
    _built: dict[str, Built] = field(default_factory=dict)

    def of(self, case: Case, arm: Arm) -> Built | None:
        """Return the programs of the case's subgraph in eager's sandbox ``arm``; None if there are none."""
        key = _key(case)
        built = self._built.pop(key, None)
        if built is None:
            return None
        if not all(template.lasts and template.arm is arm for template in built.templates.values()):
            built.end()
            return None
        self._built[key] = built  # now the most recently used
        return built

    def keep(self, case: Case, built: Built) -> None:
        """Keep the programs of a subgraph, which live on in their sandbox. End others if there are too many."""
        key = _key(case)
        if key in self._built:
            self._built.pop(key).end()
        self._built[key] = built
        while len(self._built) > MAX_PROGRAMS or (len(self._built) > 1 and self._bytes() > MAX_PAGES_BYTES):
            self._built.pop(next(iter(self._built))).end()

    def _bytes(self) -> int:
        return sum(built.pages.layout.size for built in self._built.values())

    def close(self) -> None:
        while self._built:
            self._built.popitem()[1].end()


def _key(case: Case) -> str:
    """Return a hash of everything that eager's programs and their input pages depend on."""
    subgraph, task = case.subgraph, case.task
    parts = task.graphs[subgraph.graph], task.path.name, subgraph.graph, subgraph.dtype, subgraph.inputs
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@dataclass(frozen=True)
class ReferenceCandidate:
    """The candidate that all others are compared with (``--passbench-against``).

    It has readers of its own: neither it nor another candidate sees the other's files.
    """

    candidate: Candidate
    readers: CandidateReaders


class Equipment:
    """The equipment of a judge from its start to its end, run after run.

    ``reference`` is the candidate that all others are compared with, if there is one. If ``twin`` is set, a second
    eager is among the arms.
    """

    def __init__(self, settings: Settings, worker: int = 0) -> None:
        """Set up without starting a sandbox. ``worker`` tells parallel judges apart, from 0.

        Raises UserError if this machine has no sandbox.
        """
        self.settings, self.twin = settings, False
        self.walls = sandbox.require(settings.sandbox)
        self.cores = Cores.choose(settings.threads, worker)
        self.awake = Awake(self.cores.arms)
        self.programs = Programs()
        self._null_by_omission = dict[str, bool]()
        self._held_open = HeldOpen() if is_cuda(settings.device) else None
        self.sandboxes = Sandboxes(settings, self.walls)
        builder, triton = Builder(self.walls, cache_folder()), TritonBuilder(self.walls, cache_folder())
        self.readers = CandidateReaders(settings.policy, builder, triton, self.sandboxes.start_reading)
        self.reference: ReferenceCandidate | None = None
        if settings.against is not None:
            others = CandidateReaders(settings.policy, builder, triton, self.sandboxes.start_reading)
            self.reference = ReferenceCandidate(Candidate.open(settings.against), others)
        self._threads: int | None = torch.get_num_threads()  # the caller's
        torch.set_num_threads(1)  # the judge has one core to itself, the arms have the others

    def begin(self) -> None:
        """Begin a new run: forget what candidates' readers have answered, and keep their sandboxes."""
        self.readers.begin()
        if self.reference is not None:
            self.reference.readers.begin()

    def arms(self) -> dict[str, Arm]:
        """Return the sandboxes of this run's arms. Those that are missing start in the background."""
        twin = [TWIN] if self.twin else []
        reference = [REFERENCE] if self.reference is not None else []
        return self.sandboxes.arms((EAGER, CANDIDATE, *reference, *self.settings.baselines, *twin))

    def bench(
        self, case: Case, attempt: str, phases: Stopwatch, deadline: Deadline, pages: Pages | None = None
    ) -> Bench:
        """Return a bench for a case, with inputs of this ``attempt`` alone, and its own pages if none are given."""
        layout = plan_layout(case.subgraph.inputs, max_slots(self.settings.device))
        secret = case.secret(attempt)
        with phases("inputs"), deadline.paused():
            inputs = Inputs(case.subgraph.inputs, secret.key("inputs"))
            pages = Pages(layout) if pages is None else pages
        return Bench(
            layout=layout,
            pages=pages,
            inputs=inputs,
            cores=self.cores,
            locks=self.cores.locks(self.settings.device),
            awake=self.awake,
            secret=secret,
            phases=phases,
            deadline=deadline,
            tolerance=self.settings.tolerance,
            content=_key(case),
            null_by_omission=self._null_by_omission,
        )

    def environment(self) -> dict[str, Any]:
        """Return where the run takes place, JSON-ready. docs/results.md describes each field."""
        cpu_model, frequency = _processor()
        return {
            "platform": platform.platform(),
            "machine": platform.machine(),
            "cpu": cpu_model,
            "cores": os.cpu_count(),
            "arm_cores": sorted(self.cores.arms),
            "threads": self.settings.threads,
            "device": self.settings.device,
            "sandbox": str(self.walls),
            "inputs": default_generator().name,
            **(device_state(self.settings.device) if is_cuda(self.settings.device) else {}),
            "python": platform.python_version(),
            "torch": torch.__version__,
            "priority": "real-time" if allowed() else "ordinary",
            "frequency_mhz": frequency,
            "load": round(os.getloadavg()[0], 2),
            "memory_gib": math.ceil(machine_bytes() / 2**30),
        }

    def close_sandboxes(self) -> None:
        """End every sandbox, and with them the readers and eager's built programs."""
        self.readers.close()
        if self.reference is not None:
            self.reference.readers.close()
        self.programs.close()
        self.sandboxes.close()

    def close(self) -> None:
        """End every sandbox, and give the caller's process its number of torch threads back."""
        self.close_sandboxes()
        self.awake.close()
        if self._held_open is not None:
            self._held_open.close()
        if self._threads is not None:
            torch.set_num_threads(self._threads)
            self._threads = None


def _processor() -> tuple[str, float | None]:
    """Return the processor's model, and the fastest core's present clock in MHz; None if the kernel does not tell."""
    fields = [line.partition(":")[::2] for line in Path("/proc/cpuinfo").read_text().splitlines()]
    models = [value.strip() for name, value in fields if name.startswith(("model name", "CPU part"))]
    frequencies = [float(value) for name, value in fields if name.startswith("cpu MHz")]
    return next(iter(models), platform.processor()), round(max(frequencies)) if frequencies else None
