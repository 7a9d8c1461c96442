"""Further sizes of a subgraph: drawn from the run's secret once it was judged, and judged for correctness alone.

The suite's shapes are public, and launch plans are recorded for each shape, so a candidate may be a table by shape.
It has no entry for a size that nobody chose. What happens there is no violation, and changes neither the status of
the subgraph nor a score. If this were merged with the judge of a case, a failure here could become one there.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import HARNESS_FAIL, ArmResult, FurtherSize, Record
from pytest_passbench.judge.arms.failures import FAULTS, ArmFailure, fault_line
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Deadline, Stopwatch
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.measure.allowance import DEFAULT
from pytest_passbench.judge.reading.reader import READING
from pytest_passbench.judge.trial import Trial
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.limits import check_memory
from pytest_passbench.suite.sizes import Point, SizeMap, draws, size_map

MAX_REFUSED = 5  # sizes that eager refuses, of a subgraph


def judge_held_out(case: Case, equipment: Equipment) -> list[FurtherSize]:
    """Return the candidate's results at further sizes of a case's subgraph; none if it has no map of sizes.

    A size at which eager fails is drawn anew, a few times. So there may be fewer than the settings say.
    """
    sizes = size_map(case.task, case.subgraph)
    results: list[FurtherSize] = []
    if not isinstance(sizes, SizeMap):
        return results
    refused = 0
    for point, text, subgraph in draws(sizes, case.secret("held out").stream("sizes")):
        if len(results) == equipment.settings.held_out or refused > MAX_REFUSED:
            break
        task = replace(case.task, graphs={subgraph.graph: text}, subgraphs=(subgraph,))
        result = _judge(replace(case, task=task, subgraph=subgraph), point, equipment)
        if result is None:
            refused += 1
        else:
            results.append(result)
    return results


def _judge(case: Case, point: Point, equipment: Equipment) -> FurtherSize | None:
    """Return the candidate's result at one size; None if eager fails there."""
    record = case.record()
    try:
        check_graphs(case.task)
        check_memory(case.subgraph)
    except UserError:
        return None
    try:
        trial = _trial(case, record, equipment)
        trial.judge()
        if not trial.eager_ran:
            return None
    except ArmFailure as failure:
        record.arm = ArmResult(failure.status, failure.phase, printable(failure.message, LINES))
    except FAULTS as fault:
        equipment.close_sandboxes()
        record.arm = ArmResult(HARNESS_FAIL, "harness", fault_line(fault))
    if record.arm.status in ("crash", "timeout", "integrity") and record.arm.phase in READING:
        equipment.readings.forget()
    batch, size = point
    return FurtherSize(batch, size, record.arm, record.dtypes, record.null_from, record.null_accurate)


def _trial(case: Case, record: Record, equipment: Equipment) -> Trial:
    """Return a trial of eager and the candidate in which nothing is timed. Raises ArmFailure."""
    settings, readings = equipment.settings, equipment.readings
    deadline, phases = Deadline(settings.timeout), Stopwatch({})
    with deadline.paused():
        started = equipment.arms()
        arms = {name: started[name] for name in (EAGER, CANDIDATE)}
        reading = readings.arm()
        for arm in (*arms.values(), reading):
            arm.ready()
    arms[CANDIDATE].deadline = reading.deadline = deadline
    planner = readings.planner(case.candidate, case.passes)
    planner.begin({})
    orders = case.orders(settings, [EAGER], readings.passes(case.candidate, case.passes))
    bench = equipment.bench(case, "held out", phases, deadline)
    return Trial(
        case=case,
        record=record,
        orders=orders,
        planners={CANDIDATE: planner},
        arms=arms,
        bench=bench,
        stopping=None,
        allowance=DEFAULT,
        auditor=Auditor(settings, bench, arms[CANDIDATE]),
        earlier=None,
        last=True,
        built=None,
        keeps=False,
    )
