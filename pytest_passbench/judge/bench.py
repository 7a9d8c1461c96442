"""The objects that a subgraph's clock, verification and audits have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.deadline import Deadline
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.pages import Pages
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores, device_locks, exclusive, pinned
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.protocol import Layout


@dataclass(frozen=True)
class Bench:
    """A subgraph's inputs and their pages, its arms' cores, its secret draws, and the account of its time.

    ``locks`` are the names of the machine-wide locks that it is timed under. ``tolerance`` is the t at which outputs
    must agree.
    """

    layout: Layout
    pages: Pages
    inputs: Inputs
    cores: Cores
    locks: list[str]
    awake: Awake
    secret: Secret
    phases: Stopwatch
    deadline: Deadline
    tolerance: int

    @contextmanager
    def device_alone(self) -> Iterator[None]:
        """Hold the lock of the device, if there is one: builds use it, and tuning measures on it."""
        with ExitStack() as stack:
            names = device_locks(self.locks)
            if names:
                with self.phases("wait"), self.deadline.paused():
                    stack.enter_context(exclusive(names))
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the arms' cores within this context, alone and awake."""
        with self.phases("wait"), ExitStack() as stack:
            with self.deadline.paused():
                for context in exclusive(self.locks), pinned(self.cores.judge), self.awake.on():
                    stack.enter_context(context)
            yield
