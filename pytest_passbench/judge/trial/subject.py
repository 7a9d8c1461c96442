"""The subject of a trial: a subgraph with all that is needed to judge it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_passbench.core.record import Record
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Bench
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.measure.allowance import Allowance
from pytest_passbench.judge.programs import Built
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.protocol import Order
from pytest_passbench.timing.looks import Stopping
from pytest_passbench.timing.measurement import Arms


@dataclass(frozen=True)
class Subject:
    """A subgraph that is judged: an order for each arm, its inputs, and the arms' sandboxes.

    ``planners`` answer requests about the passes of the arms that have any. ``earlier`` is a measurement to continue.
    A ``last`` attempt takes the crash of a baseline for the baseline's own. ``built`` are eager's programs of an
    earlier case on the subgraph. If there are none and the subject ``keeps`` its own, they live on when the trial has
    ended.
    """

    case: Case
    record: Record
    orders: Mapping[str, Order]
    planners: Mapping[str, Planner]
    arms: Mapping[str, Arm]
    bench: Bench
    stopping: Stopping
    allowance: Allowance
    auditor: Auditor
    earlier: Arms | None
    last: bool
    built: Built | None
    keeps: bool
