"""The tables of a head to head run and of changes since an earlier one, from hand-made records."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_passbench.core.record import HARNESS_FAIL, Against, ArmResult, Stored
from pytest_passbench.core.run import Run
from pytest_passbench.report import changes, head_to_head, markdown, terminal
from pytest_passbench.report.report import report_of
from support.made_records import record_of, right, run_of, speed_of

STRICTNESS = {"max_regression": 0.03, "compare_strict": False}


def wrong() -> ArmResult:
    return ArmResult(correct_from=[99], speed_note="not measured: the outputs are wrong")


@pytest.fixture
def duel() -> Run:
    def against(arm: ArmResult, ratio: float | None = None, verdict: str = "SAME") -> Against:
        return Against(arm, speed_of(ratio, verdict=verdict) if ratio else None)

    return run_of(
        record_of("better", "a", right(), against=against(right(), 1.1, "FASTER")),
        record_of("worse", "a", right(), against=against(right(), 0.8, "SLOWER")),
        record_of("worse", "b", right(), against=against(right(), 1.0)),
        record_of("mixed", "a", right(), against=against(ArmResult("pass_miss", "match"))),
        record_of("mixed", "b", right(), against=against(wrong())),
        record_of("mixed", "c", wrong(), against=against(right())),
        record_of("mixed", "d", right(), against=against(replace(right(), correct_from=[-3]), 0.5, "SLOWER")),
        settings=STRICTNESS,
        against={"name": "old", "path": "old", "content_hash": "2"},
    )


def test_the_worst_task_comes_first_and_all_tasks_last(duel):
    table = head_to_head.task_table(duel, "mine")
    assert [row[0] for row in table.rows] == ["worse", "better", "mixed", "all tasks"]
    assert table.rows[0][1:] == ("0.894 [0.882, 0.907]", "2/2", "1 slower, 1 same")
    assert table.rows[3][1].startswith("0.958 [")  # the cube root of 1.1 * 0.8 * 1.0
    assert table.rows[3][2] == "3/7"


def test_a_reference_that_is_wrong_gives_no_ratio_and_the_reason_stands_in_its_place(duel):
    rows = {row[:2]: row for row in head_to_head.subgraph_table(duel, "mine").rows}
    assert rows["mixed", "a"][-1] == "reference: pass_miss"
    assert rows["mixed", "b"][-1] == "reference: accuracy"
    assert rows["mixed", "c"][-1] == "candidate: accuracy"
    assert rows["mixed", "d"][-1] == "reference: accuracy"  # measured, but not correct at the run's t
    assert rows["better", "a"][2:] == ("11.00", "10.00", "1.100 [1.078, 1.122]", "faster")


def test_terminal_and_markdown_show_the_same_rows(duel):
    shown, written = terminal.summary(report_of(duel)), markdown.render(report_of(duel))
    for row in head_to_head.task_table(duel, "mine").rows:
        assert row[1] in shown
        assert f"| {row[0]} | {row[1]} | {row[2]} | {row[3]} |" in written
    assert "against **old**" in written


def test_a_run_without_a_reference_or_an_earlier_run_shows_neither():
    run = run_of(record_of("a", "a", right()))
    shown = terminal.summary(report_of(run)) + markdown.render(report_of(run))
    assert "Head to head" not in shown
    assert "Changes" not in shown


def stored(ratio: float | None = 1.5, **values: object) -> Stored:
    return Stored(correct=True, speed=speed_of(ratio) if ratio else None) if not values else Stored(**values)


@pytest.fixture
def changed() -> Run:
    return run_of(
        record_of("same", "a", right(1.5), stored=stored()),
        record_of("same", "b", right(1.5), stored=stored(note="another edition")),
        record_of("fell", "a", right(1.2), stored=stored()),
        record_of("lost", "a", ArmResult("crash"), stored=stored()),
        record_of("lost", "b", right(3.0), stored=stored()),
        record_of("rest", "a", right(1.5), stored=stored(correct=False)),
        record_of("rest", "b", wrong(), stored=stored(correct=False)),
        record_of("rest", "c", ArmResult(HARNESS_FAIL), stored=stored()),
        record_of("rest", "d", right(1.5)),
        record_of("rest", "e", right(None), stored=stored()),
        settings=STRICTNESS,
        noise={"delta": 0.1},
        compared={"file": "runs/old/results.json", "subgraphs": 12, "noise": {"delta": 0.05}},
    )


def test_changes_are_sorted_worst_first_and_say_what_was_lost_and_gained(changed):
    rows = {row[0]: row for row in changes.table(changed, "mine").rows}
    assert list(rows) == ["lost", "fell", "same", "rest", "all tasks"]
    assert rows["lost"][4:] == ("2 to 1 of 2", "1 lost (crash), 1 faster")
    assert rows["fell"][1:3] == ("1.500 [1.471, 1.530]", "1.200 [1.176, 1.224]")
    assert rows["fell"][3:] == ("0.800 [0.778, 0.823]", "1 of 1", "1 slower")
    assert rows["same"][4:] == ("1 of 1", "1 same, 1 another edition")
    assert rows["rest"][5] == "1 gained, 1 incorrect as before, 1 not judged, 1 new, 1 not measured"


def test_both_runs_noise_decides_what_a_change_is(changed):
    assert changes.delta_of(changed) == 0.1
    changed.noise, changed.compared["noise"] = {}, {}
    assert changes.delta_of(changed) == 0.02
    changed.compared["noise"] = {"delta": 0.3}
    assert {row[0]: row[5] for row in changes.table(changed, "mine").rows}["fell"] == "1 same"


def test_subgraphs_of_the_earlier_run_that_are_missing_are_counted(changed):
    assert "Not judged now: 3 subgraphs of old/results.json." in terminal.summary(report_of(changed))
    assert "Not judged now: 3 subgraphs of old/results.json." in markdown.render(report_of(changed))


@pytest.mark.parametrize(
    ("now", "again", "fails", "strictly"),
    [(1.2, 1.2, True, True), (1.2, 1.5, False, False), (1.2, None, False, False), (1.47, 1.47, False, True),
     (1.2, 1.47, False, True), (1.7, None, False, False), (1.47, 1.7, False, False)],
)  # fmt: skip
def test_a_regression_is_certain_in_both_measurements(now, again, fails, strictly):
    said = replace(stored(), again=speed_of(again) if again else None)
    found = record_of("a", "a", right(now), stored=said)
    assert changes.regressed(found, 0.03) is fails
    assert changes.regressed(found, 0.03, strict=True) is strictly
