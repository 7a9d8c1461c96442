"""The forecast of a run's duration from a stored run, and its plan for workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.commands.main import main
from pytest_passbench.run import results_file
from pytest_passbench.run.forecast import elapsed, forecast_line, seconds_of_tasks
from support.made_records import record_of, run_of


@pytest.fixture
def stored(tmp_path):
    run = run_of(
        record_of("short", "a", durations={"load": 0.5, "measure": 0.5}),
        record_of("long", "a", durations={"measure": 70.0}),
        record_of("long", "b", durations={"measure": 5.0, "verify": 1.0}),
        tasks=["short", "long", "cut"],
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
    assert forecast_line(run_of(record_of("a", "s"))) == ""


def test_tasks_without_a_record_count_as_typical_ones_and_the_longest_goes_first():
    rows = [("a", "s0", 3.0), ("a", "s1", 3.0), ("b", "s0", 10.0)]
    records = [record_of(task, subgraph, durations={"x": seconds}) for task, subgraph, seconds in rows]
    assert seconds_of_tasks(run_of(*records, tasks=["a", "b", "c"])) == [10.0, 6.0, 6.0]


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(1, 6))
def test_a_schedule_lies_between_the_bounds(durations, workers):
    ends = elapsed(sorted(durations, reverse=True), workers)
    least = max(max(durations), sum(durations) / workers)
    assert least - 1e-6 <= ends <= 4 / 3 * least * 1.5 + 1e-6
    assert ends <= sum(durations) + 1e-6


def test_one_task_takes_a_singular_verb():
    run = run_of(record_of("long", "a", durations={"measure": 70.0}), tasks=["long"])
    assert forecast_line(run) == "This task takes about 1 min 10 s to judge."
