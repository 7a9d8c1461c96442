"""The forecast of a run's duration from a stored run."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.record import ArmResult, Record
from pytest_passbench.core.run import Run
from pytest_passbench.run import results_file
from pytest_passbench.run.forecast import forecast_line


@pytest.fixture
def stored(tmp_path):
    def record(task: str, subgraph: str, **durations: float) -> Record:
        return Record(
            task=task, subgraph=subgraph, candidate="c", arm=ArmResult(correct_from=[-5]), durations=durations
        )

    run = Run(
        tasks=["short", "long", "cut"],
        records=[
            record("short", "a", load=0.5, measure=0.5),
            record("long", "a", measure=70.0),
            record("long", "b", measure=5.0, verify=1.0),
        ],
    )
    results_file.write(tmp_path, run)
    return tmp_path


def test_show_says_how_long_the_tasks_take(stored, capsys):
    assert main(["show", str(stored)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "These 3 tasks take about 1 min 29 s to judge."


def test_two_workers_take_the_longest_task_first(stored):
    line = forecast_line(results_file.read(stored), workers=2)
    assert line == "These 3 tasks take about 1 min 16 s on 2 workers (1 min 29 s of work) to judge."


def test_a_run_without_durations_has_no_forecast():
    assert forecast_line(Run(tasks=["a"], records=[Record("a", "s", "c")])) == ""
