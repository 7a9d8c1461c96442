"""The passes of a run's candidates: as data from a reader, without those that are disqualified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core.settings import Policy
from pytest_passbench.judge.arms.arm import Arm
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.faults import is_fault
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.reading.planning import Planner
from pytest_passbench.judge.reading.reader import start_reader


class Readings:
    """The readers of a run, one at a time. Passes that broke a rule stay disqualified."""

    def __init__(
        self, policy: Policy, builder: Builder, triton: TritonBuilder, start: Callable[[Path], Arm], mount: str
    ) -> None:
        """Set up without starting a sandbox.

        ``start`` starts one that sees a candidate's folder, at ``mount`` (if empty, at its own path).
        """
        self._policy, self._builder, self._triton = policy, builder, triton
        self._start, self._mount = start, mount
        self._arm: tuple[Path, Arm] | None = None
        self._planner: tuple[Path, Planner] | None = None
        self._failures: dict[Path, ArmFailure] = {}
        self._caught: dict[Path, set[str]] = {}

    def arm(self, candidate: Candidate) -> Arm:
        """Return the sandbox of a candidate's readers. Start it if it does not run."""
        path = candidate.path.resolve()
        if self._arm is None or self._arm[0] != path or not self._arm[1].alive:
            self.close()
            self._arm = path, self._start(path)
        return self._arm[1]

    def planner(self, candidate: Candidate, passes: PassDir) -> Planner:
        """Return the planner of a pass directory once its passes are loaded. Raises ArmFailure if they can't be."""
        if passes.path in self._failures:
            raise self._failures[passes.path]
        arm = self.arm(candidate)
        if self._planner is None or self._planner[0] != passes.path:
            self.forget()
            where = candidate.folder(passes)
            inside = (Path(self._mount) if self._mount else candidate.path.resolve()) / where
            reader = start_reader(arm, str(inside), passes.stems)
            planner = Planner(reader, self._builder, self._triton, self._policy, passes.path, where)
            self._planner = passes.path, planner
        planner = self._planner[1]
        try:
            planner.reader.passes()
        except ArmFailure as failure:
            if not is_fault(failure):
                self._failures[passes.path] = failure
            self.forget()
            raise
        return planner

    def passes(self, planner: Planner, passes: PassDir) -> tuple[dict[str, Any], ...]:
        """Return the passes of a directory as data, without disqualified ones."""
        out = self._caught.get(passes.path, set())
        return tuple(item for item in planner.reader.passes() if item["name"] not in out)

    def caught(self, passes: PassDir, stems: set[str]) -> None:
        """Disqualify passes that broke a rule from now on. If ``stems`` names none of them, all of them are."""
        known = stems & set(passes.stems) or set(passes.stems)
        self._caught.setdefault(passes.path, set()).update(known)

    def forget(self) -> None:
        """End the reader. The next call of :meth:`planner` starts another one."""
        if self._planner is not None:
            self._planner[1].reader.close()
            self._planner = None

    def close(self) -> None:
        """End the reader and its sandbox."""
        self.forget()
        if self._arm is not None:
            self._arm[1].close()
            self._arm = None
