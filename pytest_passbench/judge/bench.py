"""The objects that a subgraph's clock, verification and audits have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.deadline import Deadline
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.pages import MAX_SLOTS, Pages, plan_layout
from pytest_passbench.judge.machine.awake import Awake
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.judge.stopwatch import Stopwatch
from pytest_passbench.protocol import Layout


@dataclass(frozen=True)
class Bench:
    """A subgraph's inputs and their pages, its arms' cores, its secret draws, and the account of its time.

    ``tolerance`` is the t at which outputs must agree.
    """

    layout: Layout
    pages: Pages
    inputs: Inputs
    cores: Cores
    awake: Awake
    secret: Secret
    phases: Stopwatch
    deadline: Deadline
    tolerance: int

    @classmethod
    def of(
        cls,
        case: Case,
        secret: Secret,
        cores: Cores,
        awake: Awake,
        phases: Stopwatch,
        deadline: Deadline,
        tolerance: int,
        pages: Pages | None = None,
        max_slots: int = MAX_SLOTS,
    ) -> Self:
        """Make inputs for a case, for blocks of up to ``max_slots`` calls; and pages if there are none yet."""
        layout = plan_layout(case.subgraph.inputs, max_slots)
        with phases("inputs"), deadline.paused():
            inputs = Inputs(case.subgraph.inputs, secret.key("inputs"))
            pages = Pages(layout) if pages is None else pages
        return cls(layout, pages, inputs, cores, awake, secret, phases, deadline, tolerance)
