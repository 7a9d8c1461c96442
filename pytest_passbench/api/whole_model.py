"""A whole model judged: captured as one graph, its passes matched, and eager, TorchInductor and the passes timed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from pytest_passbench.api.backend import Local, take
from pytest_passbench.candidate.layout import MANIFEST
from pytest_passbench.core import misses
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.core.settings import INDUCTOR, Settings
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.whole_model import operator_times, whole_model
from pytest_passbench.judge.survey import MatchReport, survey
from pytest_passbench.report.whole_model import ModelReport, OperatorCall
from pytest_passbench.run.ledger import Ledger, check_run, open_candidates, run_seed

Say = Callable[[str], None]
TIMEOUT_SECONDS = 600.0
"""The time that a candidate may take: a whole model has as many kernels as many subgraphs together."""
REGION = """from pytest_passbench.fusion.regions import launch, supported


def replacement_func():
    return launch
"""
"""A pass for all operators that the generator has kernels for."""


def tried(case: ModelCase, settings: Settings, say: Say, remedy: str | None = None) -> list[ModelReport]:
    """Judge a model with the one candidate of the settings, at each of its sizes.

    ``say`` is called with a text for each stage. ``remedy`` is that of the error if the model cannot be captured.
    Raises UserError for a model that is not one graph, and for a candidate without a match.
    """
    check_run(settings)
    open_candidates(settings.candidates)
    say(f"capturing {case.name}")
    task, left_out = whole_model(case, remedy)
    for name in left_out:
        say(f"{name} cannot be in a task: its results are inputs here")
    say(f"matching passes with {counted(len(task.header.ops), 'operator')}")
    places = matched(task, settings)
    say("timing eager's operators")
    torch.set_num_threads(settings.threads)
    calls = {subgraph.id: _calls(task, subgraph, places[subgraph.id]) for subgraph in task.subgraphs}
    say("building and measuring eager, TorchInductor and the passes")
    run = _judge(task, replace(settings, baselines=(INDUCTOR,)))
    return [ModelReport(record, calls[record.subgraph]) for record in run.records]


def profiled(case: ModelCase, baseline: str, say: Say, remedy: str | None = None) -> Run:
    """Return a run of a model, a subgraph for each of its sizes, with a compiler beside the generator's kernels.

    Raises UserError for a model that is not one graph, or if the generator has a kernel for none of its operators.
    """
    with TemporaryDirectory() as folder:
        (Path(folder) / "region.py").write_text(REGION)
        (Path(folder) / MANIFEST).write_text('["region"]')
        settings = Settings(candidates=(Path(folder),), suite="all", timeout=TIMEOUT_SECONDS, baselines=(baseline,))
        check_run(settings)
        say(f"capturing {case.name}")
        task, _ = whole_model(case, remedy)
        if not any(report.places for report in survey(Path(folder), settings.policy, task).matched):
            what, remedy = "none of its operators has a kernel", "name a model with elementwise operators or norms"
            raise UserError(f"{what} to judge the compiler beside", where=case.name, remedy=remedy)
        say("building and measuring")
        return _judge(task, settings)


def matched(task: Task, settings: Settings) -> dict[str, MatchReport]:
    """Return what passes match, by subgraph. Raises UserError if a pass has a mistake, or if none matches."""
    result = survey(settings.candidates[0], settings.policy, task)
    if result.fault is not None:
        raise UserError(line(result.fault.message, 500), where=result.fault.place or settings.candidates[0])
    if not any(report.places for report in result.matched):
        reports = [item for report in result.matched for item in report.passes]
        why = line(misses.message(reports), 300) if reports else "it has no passes for all tasks"
        remedy = "`passbench forge` makes tasks of the model, and `passbench new` a pass for one of them"
        raise UserError(f"no pass matches {task.id}: {why}", where=settings.candidates[0], remedy=remedy)
    return {report.subgraph: report for report in result.matched}


def _calls(task: Task, subgraph: Subgraph, report: MatchReport) -> tuple[OperatorCall, ...]:
    replaced = {variable for _name, variables in report.places for variable in variables}
    times = operator_times(task, subgraph).items()
    return tuple(OperatorCall(operator, seconds, name in replaced) for name, (operator, seconds) in times)


def _judge(task: Task, settings: Settings) -> Run:
    ledger = Ledger(settings, open_candidates(settings.candidates), run_seed(settings.seed))
    ledger.select([task])
    with closing(Local(settings, thorough=True)) as backend:
        take(backend, ledger, [task])
    return ledger.run()
