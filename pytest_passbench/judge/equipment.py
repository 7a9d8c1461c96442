"""The equipment of a judge: cores, sandboxes, readers of candidates, and eager's built programs."""

from __future__ import annotations

import torch

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.bench import Bench, Deadline, Stopwatch
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.store import cache_folder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.pages import MAX_SLOTS, Pages, plan_layout
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.machine.gpu import HeldOpen
from pytest_passbench.judge.programs import Programs
from pytest_passbench.judge.reading.readings import Readings
from pytest_passbench.judge.reference import Reference
from pytest_passbench.judge.sandboxes import Sandboxes


class Equipment:
    """The equipment of a judge from its start to its end, run after run.

    ``reference`` is the candidate that all others are held against, if there is one. If ``twin`` is set, a second
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
        self._held_open = HeldOpen() if is_cuda(settings.device) else None
        self.sandboxes = Sandboxes(settings, self.walls)
        builder, triton = Builder(self.walls, cache_folder()), TritonBuilder(self.walls, cache_folder())
        self.readings = Readings(settings.policy, builder, triton, self.sandboxes.start_reading)
        self.reference: Reference | None = None
        if settings.against is not None:
            others = Readings(settings.policy, builder, triton, self.sandboxes.start_reading)
            self.reference = Reference(Candidate.open(settings.against), others)
        self._threads: int | None = torch.get_num_threads()  # the caller's
        torch.set_num_threads(1)  # the judge has one core to itself, the arms have the others

    def begin(self) -> None:
        """Begin a new run: forget what candidates' readers said, and keep their sandboxes."""
        self.readings.begin()
        if self.reference is not None:
            self.reference.readings.begin()

    def arms(self) -> dict[str, Arm]:
        """Return the sandboxes of this run's arms. Those that are missing start in the background."""
        twin = [TWIN] if self.twin else []
        reference = [REFERENCE] if self.reference is not None else []
        return self.sandboxes.arms((EAGER, CANDIDATE, *reference, *self.settings.baselines, *twin))

    def bench(
        self,
        case: Case,
        attempt: str,
        phases: Stopwatch,
        deadline: Deadline,
        pages: Pages | None = None,
        max_slots: int = MAX_SLOTS,
    ) -> Bench:
        """Return a bench for a case, with inputs of this ``attempt`` alone, for blocks of up to ``max_slots`` calls.

        It has pages of its own if none are given.
        """
        layout, secret = plan_layout(case.subgraph.inputs, max_slots), case.secret(attempt)
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
        )

    def close_sandboxes(self) -> None:
        """End every sandbox, and with them the readers and eager's built programs."""
        self.readings.close()
        if self.reference is not None:
            self.reference.readings.close()
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
