"""The end of a run: late records, the report, the gates, the files, the exit code."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest

from pytest_passbench.core.errors import HARNESS_FAILED, UserError
from pytest_passbench.core.escape import line
from pytest_passbench.judge.measure.noise import merged
from pytest_passbench.plugin import invocation
from pytest_passbench.plugin.state import State
from pytest_passbench.report import gates
from pytest_passbench.report.report import Report, report_of
from pytest_passbench.run import journal
from pytest_passbench.run.ledger import fresh_folder, write


def conclude(state: State, session: pytest.Session) -> None:
    """Write the run, check its gates, and fail the session if one is not met."""
    if state.settings.trusted or not state.progress.costs:
        if state.folder is not None:
            with contextlib.suppress(OSError):  # made for workers that had nothing to judge
                journal.remove(state.folder)
                state.folder.rmdir()
        return
    make_folder(state)
    _complete(state)
    state.ledger.noise = merged(list(state.noises.values()))
    run = state.ledger.run()
    state.config.hook.pytest_passbench_run(config=state.config, run=run)
    state.report = report_of(run)
    state.verdicts = gates.check(run, state.settings.fail_under) + _write(state, state.report)
    if session.exitstatus == pytest.ExitCode.OK:
        if any(not verdict.passed for verdict in state.verdicts):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        elif not all(record.judged for record in run.records):
            session.exitstatus = HARNESS_FAILED


def _complete(state: State) -> None:
    """Add the records that only the journals have, since an interruption or a lost worker prevented the report."""
    if state.folder is None or not (state.ledger.interrupted or state.ledger.missing()):
        return
    for key, record in journal.last_records(state.folder).items():
        if not state.ledger.has(key):
            state.add(record)


def make_folder(state: State) -> Path | None:
    """Make the run's folder, if it is not there yet; a run that scores nothing has none. Raises pytest.UsageError."""
    if state.folder is None and not state.settings.trusted:
        names = [candidate.name for candidate in state.ledger.candidates]
        try:
            state.folder = fresh_folder(state.plan.report_dir, state.ledger.started, names)
            invocation.store(state.config, state.folder)
        except UserError as error:
            raise pytest.UsageError(str(error)) from None
    return state.folder


def _write(state: State, report: Report) -> list[gates.GateResult]:
    """Write the results to the run's folder, or, if that fails (the disk may be full), to a temporary one."""
    assert state.folder is not None
    try:
        write(report, state.folder)
        state.written = state.folder
    except UserError as error:
        failed = [gates.GateResult(False, f"results not written: {line(str(error))}")]
        with contextlib.suppress(UserError, OSError):
            elsewhere = Path(tempfile.mkdtemp(prefix="passbench-results-"))
            write(report, elsewhere)
            state.written = elsewhere
        return failed
    if journal.is_whole(report.run):
        journal.remove(state.folder)
        if state.plan.earlier is not None:
            journal.remove_halves(state.plan.earlier, state.plan.report_dir)
    return []
