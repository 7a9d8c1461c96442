"""Text that a candidate wrote is inert wherever it is shown."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import LINES, cell, line, middle, printable
from pytest_passbench.core.record import ArmResult, Finding, PassReport, Record
from pytest_passbench.core.run import Run
from pytest_passbench.plugin.failures import TaskFailedError
from pytest_passbench.report import gates, markdown, terminal
from pytest_passbench.report.report import report_of
from pytest_passbench.run import results_file
from pytest_passbench.run.ledger import open_candidates

HOSTILE = "\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066\u200b\ud800\r\x7f\u2028"
anything = st.text(st.characters(exclude_categories=()), max_size=60)


def inert(text: str, keep: str = "") -> bool:
    """Return True if ``text`` has no control, format, surrogate or separator character but ``keep`` and spaces."""
    return not any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in set(text) - set(keep))


@given(anything)
@example(HOSTILE)
def test_nothing_that_steers_a_terminal_survives(text):
    assert inert(printable(text))
    assert inert(printable(text, LINES), LINES)
    for shown in (line(text, 40), middle(text, 40), cell(text, 40)):
        assert inert(shown)
    assert len(line(text, 40)) <= 40
    assert len(middle(text, 40)) <= 40


@given(st.text(st.characters(categories=("L", "N", "P", "S")), max_size=60))
def test_what_is_printable_stays_as_it_is(text):
    assert printable(text) == text


def test_no_face_of_a_run_shows_it(tmp_path, capsys):
    arm = ArmResult("crash", HOSTILE, HOSTILE, HOSTILE, worst=HOSTILE, speed_note=HOSTILE)
    finding = Finding(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1)
    record = Record("one", HOSTILE, HOSTILE, arm=arm, findings=[finding], passes=[PassReport(HOSTILE, miss=HOSTILE)])
    run = Run(tasks=["one"], records=[record], candidates=[{"name": HOSTILE, "path": HOSTILE}])
    failure = TaskFailedError([record])
    shown = [terminal.summary(report_of(run)), markdown.render(report_of(run)), failure.text(), failure.line()]
    shown += [result.line for result in gates.check(run, [("AS", 0.5), ("gmean", 0.5)])]
    file = tmp_path / "results.json"
    results_file.write_file(file, run)
    for arguments in (["verify", str(file)], ["show", "--json", str(file)]):
        main(arguments)
        shown += capsys.readouterr()
    for text in shown:
        assert inert(text, LINES)


def test_a_candidate_whose_name_cannot_be_shown_is_refused(tmp_path):
    folder = tmp_path / "red\x1b[31m"
    folder.mkdir()
    (folder / "sorted_output_pass_rule_names.json").write_text("[]")
    with pytest.raises(UserError, match="cannot be shown"):
        open_candidates([folder])
