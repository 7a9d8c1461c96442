"""The hooks of a run with ``--passbench``: registered only then, so that other runs pay nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Generator, Sequence, Sized
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Record
from pytest_passbench.plugin import benchmark, collect, conclusion, nodeid, summary, xdist
from pytest_passbench.plugin.collect import TaskItem
from pytest_passbench.plugin.conftest_guard import inside
from pytest_passbench.plugin.plan import Worker, make_plan
from pytest_passbench.plugin.select import cost
from pytest_passbench.plugin.signals import Signals
from pytest_passbench.plugin.state import KEY, State
from pytest_passbench.run.judging import make_judge
from pytest_passbench.suite.find import same_id

PAYLOAD = "passbench_records"
"""The attribute of a report that carries a task's records, as builtins, through xdist."""
SELECTED = "passbench_selected"
"""The attribute of a report that says how many subgraphs were to be judged."""
NOISE = "passbench_noise"
"""The attribute of a report that carries the machine's noise, as its process has measured it."""


class LastSelection:
    """The last hook that selects tasks. It is registered after those plugins that select in wrappers (``--lf``)."""

    def __init__(self, state: State) -> None:
        self.state = state

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> Generator[None, None, None]:
        """Keep this shard's tasks, and if asked to, only those that passes match."""
        yield
        if self.state.settings.shard is not None:
            self._leave_out(collect.not_in_shard(items, *self.state.settings.shard), items)
        if self.state.settings.only_matching and not config.option.collectonly:
            before, begin = len(items), time.monotonic()
            self._leave_out(collect.untouched(items, self.state), items)
            self.state.left_out, self.state.matching_seconds = before - len(items), time.monotonic() - begin

    def _leave_out(self, away: Sequence[pytest.Item], items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item not in away]
        self.state.config.hook.pytest_deselected(items=list(away))


class Active:
    """The hooks of one process; its data is in :class:`State`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.signals = Signals() if state.plan.worker is None else Signals(())
        self._local_workers: list[int] = []  # process ids

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Add the tasks that failed last to the default suite, if ``--lf`` or ``--ff`` asks for them."""
        state = self.state
        state.config.pluginmanager.register(LastSelection(state), "passbench-selection")
        if state.plan.worker is None:
            state.commands.stop(state.config.pluginmanager.get_plugin("terminalreporter"))
        if state.settings.suite == "lite" and not state.settings.task_ids and not state.selection.from_paths:
            names = {candidate.name for candidate in state.ledger.candidates}
            state.selection = state.selection.with_failed(_failed(state.config, names))

    def pytest_report_header(self) -> list[str]:
        """Return the header: what is judged, with which settings, on which machine."""
        return summary.header(self.state)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore everything in a candidate's folder."""
        return True if inside(collection_path, self.state.settings.folders) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collect_directory(self, path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Return the node of a folder that is ours: the root of the plugin's own tasks, or a published sample."""
        return collect.directory(path, parent)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Return the node of a task file on a path that pytest was given."""
        return collect.task_file(file_path, parent)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note the items to be judged, if this process has them."""
        costs = {item.nodeid: cost(item.ref) for item in session.items if isinstance(item, TaskItem)}
        if self.state.plan.reports:
            _check(costs, session.items)
        summary.expect(self.state, costs)
        if self.state.plan.reports and costs:
            conclusion.make_folder(self.state)
        worker = self.state.plan.worker
        self.state.expected = -(-sum(costs.values()) // (1 if worker is None else worker.count))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        """Note the items to be judged, if the workers have them."""
        if not self.state.progress.costs:
            costs = summary.costs(self.state, ids)
            _check(costs, ids)
            summary.expect(self.state, costs)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Put a task's records on its report, which travels to the controller."""
        report = yield
        if isinstance(item, TaskItem) and call.when == "setup" and report.failed:
            setattr(report, SELECTED, 0)
        if isinstance(item, TaskItem) and call.when == "call":
            setattr(report, PAYLOAD, [record.to_json() for record in item.records])
            setattr(report, SELECTED, item.selected)
            if item.records:
                setattr(report, NOISE, self.state.judge.noise())
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, None, None]:
        """Add a task's records to the run if a worker sent them, and its timings to pytest-benchmark's.

        pytest keeps reports until the run ends. So the records are removed once all plugins have seen the report.
        """
        if self.state.plan.worker is None:
            self._take_in(report)
        yield
        vars(report).pop(PAYLOAD, None)

    def _take_in(self, report: pytest.TestReport) -> None:
        payload = getattr(report, PAYLOAD, None)
        if payload is None and not report.failed:
            return
        self.state.progress.finish(report.nodeid)
        if hasattr(report, NOISE):
            self.state.noises[getattr(report, "worker_id", "")] = getattr(report, NOISE)
        records = [Record.from_data(data) for data in payload or ()]
        item, count = nodeid.parse(report.nodeid), getattr(report, SELECTED, None)
        if count == 0:  # no score has a faulty task
            self.state.unread.append(item.item)
            self.state.ledger.drop(item.task, item.candidate)
        elif hasattr(report, "node"):
            if count is not None:  # a lost worker has sent none
                self.state.ledger.expect(item.task, item.candidate, count)
            for record in records:
                self.state.add(record)
        if not self.state.settings.trusted and benchmark.saves(self.state.config):
            for record in records:
                benchmark.add(self.state.config, report.nodeid, record)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Return how many subgraphs of a task are correct, and how long the rest of the run may take."""
        payload = getattr(report, PAYLOAD, None)
        if report.when != "call" or payload is None or self.state.report is not None:
            return None  # also for the short summary at the end, which has its own line for each failure
        return summary.status(self.state, report, [Record.from_data(data) for data in payload])

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self) -> None:
        """Mark the run as interrupted. Until its results are written, further Ctrl+C are ignored."""
        self.state.ledger.interrupted = True
        self.signals.ignore()
        if self._local_workers:
            xdist.interrupt(self._local_workers)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """End the judge; on the controller write the results and check the gates."""
        if self.state.plan.reports:
            conclusion.conclude(self.state, session)
        self.state.close()
        self.signals.restore()

    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Show the tables, where the results lie, the seed, and the gates; or the remedy if no task was selected."""
        if self.state.report is not None:
            summary.show(self.state, terminalreporter)
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            remedy = self.state.selection.remedy(self.state.settings, self.state.config.option.keyword)
            if remedy:
                terminalreporter.write_line(remedy)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """End the judge, if the session never finished. Tell GitHub of the failures, after all other output."""
        self.state.close()
        self.signals.restore()
        self.state.commands.resume(config.pluginmanager.get_plugin("terminalreporter"))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: list[Any]) -> None:
        """Assign a device to every worker."""
        xdist.assign_devices(specs, self.state.settings.device)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_newgateway(self, gateway: Any) -> None:
        """Note a worker's process, for an interruption."""
        pid = xdist.local_pid(gateway, os.getpid())
        self._local_workers += [] if pid is None else [pid]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the run's seed to a worker: all derive their secrets from the same one."""
        plan, folder = self.state.plan, conclusion.make_folder(self.state)
        resumed = plan.earlier.folder if plan.earlier is not None else None
        node.workerinput["passbench"] = [
            os.getpid(),
            plan.seed.hex(),
            *(str(path or "") for path in (folder, resumed)),
        ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return a scheduler that takes the longest task first, unless the user chose another one."""
        if config.getoption("dist") != "load":
            return None
        together = bool(self.state.settings.baselines)
        return xdist.LongestFirst(config, log, self.state.progress.costs, together)

    @pytest.hookimpl(optionalhook=True)
    def pytest_benchmark_update_machine_info(self, machine_info: dict[str, Any]) -> None:
        """Add the device to pytest-benchmark's description of the machine, which has no GPU in it."""
        # Only values that stay the same from run to run: pytest-benchmark warns of any difference.
        lasting = ("cpu", "cores", "device", "gpu", "threads", "torch", "triton", "sandbox")
        environment = self.state.ledger.environment
        machine_info["passbench"] = {name: environment[name] for name in lasting if name in environment}

    @pytest.hookimpl(trylast=True)
    def pytest_passbench_make_session(self, config: pytest.Config, settings: Any, seed: bytes) -> Any:
        """Return this package's own judge, if no other plugin has one."""
        worker = Worker.of(config)
        return make_judge(settings, seed, 0 if worker is None else worker.index)


def _failed(config: pytest.Config, candidates: Collection[str]) -> frozenset[str]:
    """Return the node ids' paths of the cases that ``--lf`` or ``--ff`` looks for, unless an option names a suite.

    They may be outside the default suite. pytest would find none of them there, and run all of that suite instead.
    """
    failed_only = config.getoption("lf", False) or config.getoption("failedfirst", False)
    if config.option.passbench_suite is not None or not failed_only or config.cache is None:
        return frozenset()
    items = map(nodeid.parse, config.cache.get("cache/lastfailed", {}))
    return frozenset(item.path for item in items if item.candidate in candidates)


def _check(tasks: Collection[str], collected: Sized) -> None:
    """Raise UsageError if tests are collected and no task is among them: a gate would pass in silence.

    Raise it also if two tasks have the same id, since results name tasks by their ids. ``tasks`` are node ids.
    """
    if collected and not tasks:
        remedy = "leave the paths out, or name a task file or a folder of tasks"
        raise pytest.UsageError(f"--passbench: no task is among the tests that were collected ({remedy})")
    paths: dict[str, str] = {}
    for item in map(nodeid.parse, tasks):
        first = paths.setdefault(item.task, item.path)
        if first != item.path:
            raise pytest.UsageError(f"--passbench: {line(str(same_id(item.task, first, item.path)), 400)}")


def start(config: pytest.Config) -> None:
    """Begin a run in this process. Raises pytest.UsageError for a mistake of the user."""
    worker = Worker.of(config)
    if worker is not None:
        xdist.end_with(worker.controller)
    try:
        plan = make_plan(config, worker)
        if not plan.selection.from_paths:
            config.args = [str(config.rootpath)]
        state = config.stash[KEY] = State(config, plan)
        config.pluginmanager.register(Active(state), "passbench-active")
        if plan.reports:
            # Also if only workers will judge: a judge that cannot work here says so before collecting.
            state.ledger.environment = dict(state.judge.environment())
    except UserError as error:
        raise pytest.UsageError(str(error)) from None
