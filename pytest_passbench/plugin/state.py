"""The data of one process of a pytest run with ``--passbench``, kept in ``config.stash``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from pytest_passbench.plugin.ci import Commands
from pytest_passbench.plugin.live import LiveLine, Progress
from pytest_passbench.run.journal import Journal
from pytest_passbench.run.judging import Judge
from pytest_passbench.run.ledger import Ledger

if TYPE_CHECKING:
    from pytest_passbench.core.errors import UserError
    from pytest_passbench.plugin.select import Selection
    from pytest_passbench.report.gates import GateResult
    from pytest_passbench.report.report import Report
    from pytest_passbench.run.resume import Earlier


@dataclass
class State:
    """The run in this process: a serial run's, the controller's, or an xdist worker's."""

    config: pytest.Config
    settings: Settings
    ledger: Ledger
    selection: Selection
    report_dir: Path
    #: The header of the run's journal, of all its candidates, also of those that a selection leaves out later.
    header: dict[str, Any]
    earlier: Earlier | None = None
    #: An error for each directory of a candidate that is for no known task.
    strays: list[UserError] = field(default_factory=list)
    #: The items of tasks whose files are faulty.
    unread: list[str] = field(default_factory=list)
    #: The number of tasks that no pass of a candidate matches, counted for each candidate, and left out for that.
    left_out: int = 0
    progress: Progress = field(default_factory=Progress)
    report: Report | None = None
    #: The run's folder, made when the first item is known; ``written`` is the folder that has the results.
    folder: Path | None = None
    written: Path | None = None
    verdicts: list[GateResult] = field(default_factory=list)
    #: The number of subgraphs that this process will judge, as far as is known: a time budget is spread over them.
    expected: int = 0
    #: The machine's noise as each judging process last reported it, by the name of the process.
    noises: dict[str, dict[str, Any]] = field(default_factory=dict)
    commands: Commands = field(default_factory=Commands)
    _judge: Judge | None = None
    _journal: Journal | None = None

    @cached_property
    def live(self) -> LiveLine:
        """The line of the terminal that shows each subgraph's outcome at once."""
        return LiveLine(self.config)

    @property
    def judge(self) -> Judge:
        """The judge of this process, made when it is first asked for."""
        if self._judge is None:
            make = self.config.hook.pytest_passbench_make_session
            self._judge = make(config=self.config, settings=self.settings, seed=self.ledger.seed)
        assert self._judge is not None
        self._judge.expected = self.expected
        return self._judge

    def noise(self) -> dict[str, Any]:
        """Return what the judge of this process says of the machine's noise."""
        return self.judge.noise()

    def add(self, record: Record) -> None:
        """Take a record in, and call the hook for it."""
        self.ledger.add(record)
        self.config.hook.pytest_passbench_record(config=self.config, record=record)

    def keep(self, record: Record) -> None:
        """Write a record to the run's journal before the next subgraph begins."""
        if self.folder is None:
            return
        if self._journal is None:
            worker = f"gw{worker_index(self.config)}" if is_worker(self.config) else ""
            self._journal = Journal(self.folder, self.header, worker)
        self._journal.add(record)

    @property
    def fault(self) -> str:
        """The reason why the journal is not whole; empty if it is."""
        return self._journal.fault if self._journal is not None else ""

    def close(self) -> None:
        """End the judge, if there is one."""
        judge, self._judge = self._judge, None
        if judge is not None:
            judge.close()
        if self._journal is not None:
            self._journal.close()


KEY = pytest.StashKey[State]()


def is_worker(config: pytest.Config) -> bool:
    """Return True if this process is an xdist worker, whose records travel to the controller on reports."""
    return hasattr(config, "workerinput")


def worker_count(config: pytest.Config) -> int:
    """Return how many processes judge side by side."""
    return int(config.workerinput["workercount"]) if is_worker(config) else 1  # type: ignore[attr-defined]


def worker_index(config: pytest.Config) -> int:
    """Return the number of this worker, from 0; 0 in a serial run."""
    workerid = str(config.workerinput["workerid"]) if is_worker(config) else "gw0"  # type: ignore[attr-defined]
    return int(workerid.removeprefix("gw"))
