"""Further sizes of a judged subgraph, drawn from the run's secret: all test correctness, and one also tests speed.

The suite's shapes are public, and launch plans are recorded for each shape, so a candidate may be a table of plans by
shape. Such a table has no entry for a size that nobody chose. A failure at a further size is no violation. It changes
neither the status of the subgraph nor a score.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.core.record import EAGER_FAIL, ArmResult, FurtherSize, Record
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER
from pytest_passbench.judge.attempts import Attempts
from pytest_passbench.judge.audits.auditor import Auditor
from pytest_passbench.judge.bench import Deadline, Stopwatch
from pytest_passbench.judge.case import Case
from pytest_passbench.judge.equipment import Equipment
from pytest_passbench.judge.measure.allowance import QUICK
from pytest_passbench.judge.measure.noise import Noise
from pytest_passbench.judge.planning.reader_process import is_without_answer
from pytest_passbench.judge.trial import Trial
from pytest_passbench.suite.build import check_graphs
from pytest_passbench.suite.limits import check_memory
from pytest_passbench.suite.sizes import MAX_REFUSED, Point, SizeMap, draws, size_map
from pytest_passbench.timing.looks import ENOUGH_PAIRS, ONE_LOOK, Stopping


class FurtherSizes:
    """The judge of further sizes. After a fault, ``attempts`` judges again, as at a subgraph's own size."""

    def __init__(self, equipment: Equipment, attempts: Attempts) -> None:
        self._equipment, self._settings, self._attempts = equipment, equipment.settings, attempts

    def judge(self, case: Case, record: Record, noise: Noise, name: str = "held out") -> None:
        """Write the candidate's results at further sizes into the record of a case, if the candidate is right.

        The inputs are drawn from the run's secret and ``name``. The sizes do not depend on ``name``.
        The first size at which the candidate is right is measured, in few pairs, if the subgraph itself was.
        ``noise`` is the machine's. A size at which eager fails, or a null answer passes, is drawn anew, a few times.
        So there may be fewer results than the settings ask for, and none if the subgraph has no map of sizes.
        """
        settings = self._settings
        scored = replace(record, tolerance=settings.tolerance, criterion=settings.criterion)
        if not settings.held_out or not scored.correct:
            return
        with Stopwatch(record.durations)("held out"):
            timed = record.arm.speed is not None
            stopping = Stopping(noise.delta, ONE_LOOK, max_pairs=ENOUGH_PAIRS) if timed else None
            record.held_out = self._results(case, name, stopping)

    def _results(self, case: Case, name: str, stopping: Stopping | None) -> list[FurtherSize]:
        sizes = size_map(case.task, case.subgraph)
        results: list[FurtherSize] = []
        if not isinstance(sizes, SizeMap):
            return results
        refused = 0
        for point, text, subgraph in draws(sizes, case.secret("held out").stream("sizes")):
            if len(results) - refused == self._settings.held_out or refused == MAX_REFUSED:
                break
            task = replace(case.task, graphs={subgraph.graph: text}, subgraphs=(subgraph,))
            result = self._result(replace(case, task=task, subgraph=subgraph), point, name, stopping)
            results.append(result)
            refused += result.is_refused(self._settings.criterion, self._settings.tolerance)
            if result.arm.speed is not None:
                stopping = None
        return results

    def _result(self, case: Case, point: Point, name: str, stopping: Stopping | None) -> FurtherSize:
        """Return the candidate's result at one size, without a speed if it is not right there.

        If eager fails or a null answer passes, the task is at fault. That neither helps nor harms the candidate.
        """
        batch, size = point
        try:
            check_graphs(case.task)
            check_memory(case.subgraph)
        except UserError as error:
            return FurtherSize(batch, size, ArmResult(EAGER_FAIL, "build", printable(str(error), LINES)))
        record, trial = self._attempts.judge(case, partial(self._attempt, case, name, stopping))
        if trial is not None and not trial.eager_ran:
            return FurtherSize(batch, size, replace(record.arm, status=EAGER_FAIL, speed=None))
        if is_without_answer(record.arm):
            self._equipment.readers.forget()
        result = FurtherSize(batch, size, record.arm, record.dtypes, record.null_from, record.null_accurate)
        if not result.is_correct(self._settings.criterion, self._settings.tolerance):
            record.arm.speed = None
        return result

    def _attempt(self, case: Case, name: str, stopping: Stopping | None, last: bool) -> tuple[Record, Trial]:
        """Judge one size, without the audits: its speed is in no score.

        Raises ArmFailure or one of :data:`~pytest_passbench.judge.arms.failures.FAULTS`.
        """
        equipment, settings, readers = self._equipment, self._settings, self._equipment.readers
        deadline = Deadline(settings.timeout)
        with deadline.paused():
            started = equipment.arms()
            arms = {arm: started[arm] for arm in (EAGER, CANDIDATE)}
            reading = readers.arm()
            for arm in (*arms.values(), reading):
                arm.ready()
        arms[CANDIDATE].deadline = reading.deadline = deadline
        planner = readers.planner(case.candidate, case.passes)
        planner.begin({})
        orders = case.orders(settings, [EAGER], readers.passes(case.candidate, case.passes))
        bench = equipment.bench(case, f"{name} retry" if last else name, Stopwatch({}), deadline)
        trial = Trial(
            case=case,
            record=case.record(),
            orders=orders,
            planners={CANDIDATE: planner},
            arms=arms,
            bench=bench,
            stopping=stopping,
            allowance=QUICK,
            auditor=Auditor(replace(settings, audit="off"), bench, arms[CANDIDATE], case.operators),
            last=last,
        )
        trial.judge()
        return trial.record, trial
