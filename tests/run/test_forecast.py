"""The forecast of a run's duration from a stored run, and its plan for workers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.commands.main import main
from pytest_passbench.run import results_file
from pytest_passbench.run.forecast import forecast_line, plan
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


def test_a_plan_runs_the_longest_first():
    rows = [("a", {"load": 1.0, "measure": 2.0}), ("b", {"measure": 10.0}), ("a", {"measure": 3.0})]
    made = plan(rows, unknown={"c": 4, "a": 9}, workers=2)
    assert [item.task for item in made.tasks] == ["c", "b", "a"]
    assert made.tasks[0].guessed
    assert made.tasks[0].seconds == 12.0
    assert made.tasks[2].phases == {"load": 1.0, "measure": 5.0}
    assert (made.seconds, made.elapsed) == (28.0, 16.0)
    assert made.phases == {"measure": 15.0, "load": 1.0}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=20), st.integers(1, 6))
def test_a_plan_lies_between_the_bounds(durations, workers):
    made = plan([(f"t{i}", {"x": d}) for i, d in enumerate(durations)], workers=workers)
    least = max(max(durations), sum(durations) / workers)
    assert least - 1e-6 <= made.elapsed <= 4 / 3 * least * 1.5 + 1e-6
    assert made.elapsed <= made.seconds + 1e-6


def test_a_plan_refuses_what_cannot_be():
    with pytest.raises(ValueError, match="worker"):
        plan([], workers=0)
    with pytest.raises(ValueError, match="duration of 'x'"):
        plan([("a", {"x": -1.0})])
    assert plan([]).elapsed == 0.0


def test_one_task_takes_a_singular_verb():
    run = run_of(record_of("long", "a", durations={"measure": 70.0}), tasks=["long"])
    assert forecast_line(run) == "This task takes about 1 min 10 s to judge."
