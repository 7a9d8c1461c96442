"""The data of one process of a pytest run with ``--passbench``, kept in ``config.stash``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.core.record import Record
from pytest_passbench.plugin.ci import Commands
from pytest_passbench.plugin.live import LiveLine, RunProgress
from pytest_passbench.plugin.plan import RunPlan
from pytest_passbench.report.gates import GateResult
from pytest_passbench.report.report import Report
from pytest_passbench.run.journal import Journal
from pytest_passbench.run.judging import Judge


@dataclass
class State:
    """The state of a run in this process: a serial run's, the controller's, or an xdist worker's."""

    config: pytest.Config
    plan: RunPlan
    #: The items of tasks whose files are faulty.
    unread: list[str] = field(default_factory=list)
    #: The number of tasks, counted for each candidate, that were left out because none of its passes matches them.
    #: None if it is not known, since workers leave them out.
    left_out: int | None = None
    #: The seconds that it took to find those tasks.
    matching_seconds: float = 0.0
    progress: RunProgress = field(default_factory=RunProgress)
    report: Report | None = None
    #: The folder that has the results.
    written: Path | None = None
    verdicts: list[GateResult] = field(default_factory=list)
    #: The number of subgraphs that this process will judge, as far as is known: a time budget is spread over them.
    expected: int = 0
    #: The machine's noise as each judging process last reported it, by the name of the process.
    noises: dict[str, dict[str, Any]] = field(default_factory=dict)
    commands: Commands = field(default_factory=Commands)
    _judge: Judge | None = None
    _journal: Journal | None = None

    def __post_init__(self) -> None:
        self.settings, self.ledger = self.plan.settings, self.plan.ledger()
        #: The plan's selection, with the tasks that failed last if those were asked for.
        self.selection = self.plan.selection
        #: The run's folder, made when the first item is known.
        self.folder = self.plan.worker.folder if self.plan.worker is not None else None

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

    def add(self, record: Record) -> None:
        """Add a record to the run, and call the hook for it."""
        self.ledger.add(record)
        self.config.hook.pytest_passbench_record(config=self.config, record=record)

    def keep(self, record: Record) -> None:
        """Write a record to the run's journal before the next subgraph begins."""
        if self.folder is None:
            return
        if self._journal is None:
            worker = "" if self.plan.worker is None else f"gw{self.plan.worker.index}"
            self._journal = Journal(self.folder, self.plan.header, worker)
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
