"""``comment.md``: a run for a comment on a pull request."""

from __future__ import annotations

from pytest_passbench.core.run import Run
from pytest_passbench.report import markdown
from pytest_passbench.report.report import report_of
from shared import good_inputs


def test_what_a_run_was_compared_with_is_in_it():
    text = markdown.comment(report_of(Run.from_data(good_inputs.results())))
    assert "**Head to head: cand against old**, the worst first" in text
    assert "**Changes: cand, since old.json**, the worst first" in text
    assert text.index("Changes") < text.index("**Tasks")
    assert text.count("\n") <= markdown.MAX_LINES


def test_a_task_that_could_not_be_judged_has_not_passed():
    data = good_inputs.results()
    for record in data["records"]:
        record["arm"] = {**record["arm"], "status": "harness_fail", "message": "eager: killed", "correct_from": []}
    text = markdown.comment(report_of(Run.from_data(data)))
    assert text.startswith("### PassBench: 0 passed, 0 failed, 1 not judged\n")
