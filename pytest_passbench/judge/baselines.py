"""The baselines' results of a run. Each is measured once for a subgraph, however many candidates are judged on it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace

from pytest_passbench.core.ladder import NEVER
from pytest_passbench.core.record import RAN, ArmResult, Record
from pytest_passbench.judge.case import Case
from pytest_passbench.suite.taskfile import task_hash
from pytest_passbench.timing.looks import FIRST_LOOK

#: Endings that may be the machine's. A later candidate's measurement tries anew.
TRANSIENT = ("crash", "timeout")


@dataclass(frozen=True)
class Measured:
    """The results of the baselines beside a candidate, with what eager showed then."""

    candidate: str = ""
    arms: dict[str, ArmResult] = field(default_factory=dict)
    dtypes: list[str] = field(default_factory=list)
    null_from: int = NEVER


@dataclass
class Baselines:
    """The known results of the baselines, by the content of the subgraph.

    The first candidate that is judged on a subgraph has them measured. If it is measured again, the later result
    replaces its first one. All other candidates get copies.
    """

    _results: dict[str, Measured] = field(default_factory=dict)

    def keep(self, case: Case, record: Record) -> None:
        """Keep what a record says of its baselines, unless another candidate's record was first."""
        arms = {name: arm for name, arm in record.baselines.items() if _lasts(arm)}
        if not arms:
            return
        key = _key(case)
        if key not in self._results or self._results[key].candidate == record.candidate:
            self._results[key] = deepcopy(Measured(record.candidate, arms, record.dtypes, record.null_from))

    def of_others(self) -> None:
        """Take all that is known for results of earlier runs' candidates, whatever those were called."""
        self._results = {key: replace(measured, candidate="") for key, measured in self._results.items()}

    def beside_others(self, case: Case) -> Measured:
        """Return a copy of what was measured beside another candidate; without arms if nothing was."""
        measured = self._results.get(_key(case)) if self._results else None
        return Measured() if measured is None or measured.candidate == case.candidate.name else deepcopy(measured)


def put(measured: Measured, record: Record) -> None:
    """Put results of baselines into the record of a candidate that was judged without them.

    If eager did not run for this record, its outputs are those of the measurement.
    """
    record.baselines.update(measured.arms)
    if not record.dtypes:
        record.dtypes, record.null_from = measured.dtypes, measured.null_from


def _key(case: Case) -> str:
    """Return the hash of the subgraph alone: a resumed run judges tasks of which some subgraphs are left out."""
    return task_hash(replace(case.task, subgraphs=(case.subgraph,)))


def _lasts(arm: ArmResult) -> bool:
    """Return True if a result is worth keeping: no fault that may pass, and no measurement that was cut short."""
    if arm.status in TRANSIENT or (arm.status == RAN and not arm.correct_from):
        return False
    return arm.speed is None or len(arm.speed.pairs) >= FIRST_LOOK
