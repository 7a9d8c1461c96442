"""``comment.md``: a run for a comment on a pull request."""

from __future__ import annotations

from pytest_passbench.core.record import ArmResult
from pytest_passbench.core.run import Run
from pytest_passbench.report import markdown
from pytest_passbench.report.report import report_of
from shared import good_inputs
from support.made_records import record_of, run_of


def test_what_a_run_was_compared_with_is_in_it():
    text = markdown.comment(report_of(Run.from_data(good_inputs.results())))
    assert "**Head to head: cand against old**, the worst first" in text
    assert "**Changes: cand, since old.json**, the worst first" in text
    assert text.index("Changes") < text.index("**Tasks")
    assert text.count("\n") <= markdown.MAX_LINES


def test_a_task_that_was_not_wholly_judged_has_not_passed():
    lost = ArmResult("harness_fail", message="eager: killed")
    records = [record_of("whole", "a"), record_of("part", "a"), record_of("part", "b", lost)]
    selected = {"mine": {"whole": 1, "part": 2, "never": 1}}
    text = markdown.comment(report_of(run_of(*records, tasks=list(selected["mine"]), selected=selected)))
    assert text.startswith("### PassBench: 1 passed, 0 failed, 2 not judged\n")


def test_a_place_in_a_message_of_a_candidate_is_read_in_linear_time_and_bounds():
    for message in ("x.py:" + "9" * 4500, "x" * 12_000):
        arm = ArmResult("runtime_fail", message=message)
        assert "| failed task |" in markdown.comment(report_of(run_of(record_of("t", "a", arm))))


def test_a_task_that_could_not_be_judged_has_not_passed():
    data = good_inputs.results()
    for record in data["records"]:
        record["arm"] = {**record["arm"], "status": "harness_fail", "message": "eager: killed", "correct_from": []}
    text = markdown.comment(report_of(Run.from_data(data)))
    assert text.startswith("### PassBench: 0 passed, 0 failed, 1 not judged\n")
