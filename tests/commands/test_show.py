"""``passbench show`` from the command line: a stored run's tables again."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.record import ArmResult
from pytest_passbench.report import markdown, terminal
from pytest_passbench.report.report import report_of
from pytest_passbench.run import results_file
from support.made_records import record_of, right, run_of


@pytest.fixture
def stored(tmp_path):
    """Write a run at t = -5: a subgraph of ``gelu-add-1a2b`` agrees from t = -6, one of ``silu-3c4d`` from -3."""
    records = [
        record_of("gelu-add-1a2b", "a", right(2.0)),
        record_of("gelu-add-1a2b", "b", right(8.0, -6)),
        record_of("silu-3c4d", "c", right(3.0, -3, worst="output 0 at [1]: 2.5 instead of 2.0")),
    ]
    results_file.write(tmp_path, run_of(*records))
    return tmp_path


@pytest.fixture
def show(stored, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def run(*argv, code=0):
        assert main(["show", str(stored), *argv]) == code
        said = capsys.readouterr()
        return said.err if code else said.out

    return run


def row(text, name, title):
    """Return the cells of the row that begins with ``name``, in the table of this title."""
    _, found, table = text.partition(title)
    assert found, text
    return next(line for line in table.splitlines() if line.startswith(name)).split()


def test_without_options_it_is_what_the_run_printed(stored, show):
    run = results_file.read(stored)
    assert show() == terminal.summary(report_of(run), 120) + "\n"
    assert show("--format=markdown") == markdown.render(report_of(run))


def test_github_takes_no_workflow_commands_from_what_candidates_say(show, monkeypatch):
    text, markdown_text = show("--full"), show("--format=markdown")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    first, *shown, last = show("--full").splitlines()
    assert shown == text.splitlines()
    assert first == f"::stop-commands::{last.strip(':')}"
    assert show("--format=markdown") == markdown_text


def test_the_page_does_not_replace_the_results(stored, show):
    before = (stored / "results.json").read_bytes()
    message = show("--html", str(stored / "results.json"), code=1)
    assert message == (
        f"passbench: error: {stored / 'results.json'}: is the results file itself (give the page a name of its own)\n"
    )
    assert (stored / "results.json").read_bytes() == before


def test_another_t_changes_what_is_correct(show):
    text = show("--tolerance=-3")
    assert row(text, "mine", "Board (correct: at t = -3)")[8] == "100.0"
    assert row(text, "silu-3c4d", "(correct: at t = -3)")[4] == "1/1"
    text = show("--tolerance=-7")
    assert row(text, "mine", "Board (correct: at t = -7)")[8] == "33.3"
    assert row(text, "gelu-add-1a2b", "(correct: at t = -7)")[4] == "1/2"
    assert "which was judged at t = -5" in text


def test_what_was_right_in_the_run_and_is_not_now_says_from_which_t_on(show):
    text = show("--tolerance=-7", "--full")
    block = text.partition("gelu-add-1a2b/b: not correct at t = -7\n")[2]
    assert block.splitlines()[0].split() == ["outputs", "0:", "correct", "from", "t", "=", "-6"]
    assert "2.5 instead of 2.0" in show("--tolerance=-7", "--format=markdown")


def test_scores_over_all_t_do_not_change(show):
    assert row(show(), "mine", "ES(t)") == row(show("--tolerance=-9"), "mine", "ES(t)")


def test_a_task_alone(show):
    text = show("--task=silu-3c4d")
    assert "gelu-add" not in text
    assert "Only 1 of the run's 2 tasks" in text
    assert row(text, "mine", "Board")[-1] == "1"


def test_in_full_there_is_a_line_for_every_subgraph(show):
    assert "Subgraphs: mine" not in show()
    table = show("--full").partition("Subgraphs: mine")[2]
    assert [line.split()[1] for line in table.splitlines() if line.startswith(("gelu", "silu"))] == ["a", "b", "c"]


def test_in_full_a_compilers_message_stands_below_the_table_once_with_all_it_concerns(stored, show, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    said = (
        "fuse_batch_norm_silu.py:12: error: 'accumulated_variance' was not declared in this scope; did you mean it?\n"
        "   12 |   total += accumulated_variance * inverse_count;\n"
        "      |            ^~~~~~~~~~~~~~~~~~~~"
    )
    run = results_file.read(stored)
    for one in run.records:
        one.arm = ArmResult("compile_fail", phase="build", message=said)
    run.records[1].arm = ArmResult("crash", phase="measure", message="signal 11")
    results_file.write(stored, run)
    text = show("--full")
    assert text.count("accumulated_variance * inverse_count") == 1
    table, _, below = text.partition("Failures: mine")[2].partition("\n\n")
    rows = [line.split() for line in table.splitlines() if line.startswith(("gelu", "silu"))]
    assert rows == [
        ["gelu-add-1a2b", "a", "compile_fail", "build"],
        ["gelu-add-1a2b", "b", "crash", "measure"],
        ["silu-3c4d", "c", "compile_fail", "build"],
    ]
    first, second, *_ = below.split("\n\n")
    indent = "\n" + " " * 12
    assert first == "\n".join([
        "gelu-add-1a2b/a: compile_fail in build",
        "  message   " + said.replace("\n", indent),
        "  also      silu-3c4d/c",
    ])  # fmt: skip
    assert second == "gelu-add-1a2b/b: crash in measure\n  message   signal 11"


def test_another_criterion(stored, show):
    run = results_file.read(stored)
    for one in run.records:
        one.arm.greatest_ratio64, one.arm.mean_ratio64 = [1.0], [0.5]
    results_file.write(stored, run)
    text = show("--criterion=fp64")
    assert row(text, "silu-3c4d", "(correct: as accurate as eager)")[4] == "1/1"
    assert "the run's own is ladder" in text


def test_what_cannot_be_shown_is_one_line_with_the_remedy(stored, show):
    assert "no errors against float64" in show("--criterion=fp64", code=1)
    said = show("--task=silu", code=1)
    assert "has no task 'silu' (the run has: silu-3c4d, gelu-add-1a2b)" in said
    assert str(stored / "results.json") in said
    with pytest.raises(SystemExit) as stopped:
        show("--tolerance=3")
    assert stopped.value.code == 2


def test_a_task_that_is_not_there_names_ten_at_most_the_nearest_first(stored, show):
    run = results_file.read(stored)
    run.tasks += [f"mean-{number}" for number in range(10)]
    results_file.write(stored, run)
    said = show("--task=slu-3c4d", code=1)
    assert "(the run has: silu-3c4d, " in said
    assert said.count("mean-") in (8, 9)
    assert ", ...)" in said


def test_the_page_is_of_the_same_t(stored, show, tmp_path):
    show("--tolerance=-3", f"--html={tmp_path / 'page.html'}")
    assert "All 3 subgraphs are correct (at t = -3)" in (tmp_path / "page.html").read_text()


def test_it_imports_neither_torch_nor_pytest(stored):
    code = (
        "import sys; from pytest_passbench.commands.main import main; code = main(sys.argv[1:]);"
        "heavy = {'torch', 'numpy', 'pytest', 'matplotlib'} & set(sys.modules); sys.exit(code or len(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code, "show", str(stored)], capture_output=True)
    assert done.returncode == 0, done.stderr
