"""Subgraphs that the harness failed to judge: they are in no score, and the run says that it is incomplete."""

from __future__ import annotations

import json

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.errors import HARNESS_FAILED
from pytest_passbench.run import results_file
from support.plugin_runs import OK, PytestFolder

LOST = {"status": "harness_fail", "message": "eager: killed", "correct_from": []}
WRONG = {"correct_from": [99]}


@pytest.fixture
def bench(pytester, monkeypatch):
    return PytestFolder(pytester, monkeypatch)


def last(bench: PytestFolder) -> dict:
    return json.loads(max(bench.path.glob("reports/*/results.json")).read_text())


def test_such_a_case_neither_passes_nor_fails_and_the_run_has_a_code_of_its_own(bench):
    bench.task("one", OK, LOST)
    bench.task("two", OK)
    result = bench.run("--candidate=passes", "-rs")
    assert result.ret == HARNESS_FAILED == 75
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines([
        "*one.task.yaml s 1/2 correct*",
        "1 of 3 subgraphs could not be judged, through no fault of a candidate*incomplete.",
        "one/s1 of passes: eager: killed",
        "to go on: pytest --passbench-resume=*",
        "SKIPPED*1 of 2 subgraphs could not be judged: s1: eager: killed",
    ])  # fmt: skip
    assert "Traceback" not in result.stdout.str()
    report = max(bench.path.glob("reports/*/results.md")).read_text()
    assert "one/s1 of passes: eager: killed" in report


@pytest.mark.parametrize("more", [{"one": (LOST, WRONG)}, {"one": (LOST,), "two": (WRONG,)}])
def test_a_failed_case_goes_before_it(bench, more):
    for name, told in more.items():
        bench.task(name, *told)
    result = bench.run("--candidate=passes")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*1 of * subgraphs could not be judged*"])
    assert "s0: harness_fail" not in result.stdout.str()


def test_a_gate_goes_before_it_and_is_about_what_was_judged(bench):
    bench.task("one", {"ratio": 1.5}, LOST)
    assert bench.run("--candidate=passes", "--passbench-fail-under=correct=1").ret == HARNESS_FAILED
    assert bench.run("--candidate=passes", "--passbench-fail-under=gmean=2").ret == pytest.ExitCode.TESTS_FAILED


def test_scores_are_those_of_a_run_without_it(bench):
    bench.task("one", {"ratio": 2.0}, LOST)
    bench.task("two", {"ratio": 3.0})
    bench.task("three", LOST)
    with_lost = bench.run("--candidate=passes").stdout.str()
    bench.task("one", {"ratio": 2.0})
    bench.task("three", {"ratio": 6.0**0.5})
    assert board(with_lost) == board(bench.run("--candidate=passes").stdout.str())


def test_a_run_of_which_nothing_was_judged_has_no_score(bench):
    bench.task("one", LOST)
    result = bench.run("--candidate=passes")
    assert result.ret == HARNESS_FAILED
    assert " ".join(board(result.stdout.str())[1:3]) == "not measured"


def board(text: str) -> list[str]:
    """Return the row of the candidate on the board, without the intervals."""
    return next(line for line in text.splitlines() if line.startswith("passes")).split()[:4]


def test_it_is_judged_again_when_the_run_goes_on(bench):
    bench.task("one", OK, LOST)
    bench.task("two", OK)
    bench.run("--candidate=passes")
    folder = max(bench.path.glob("reports/*"))
    asked = "def pytest_passbench_record(record): print('RECORD', record.task, record.subgraph)"
    bench.conftest(f"""
        {asked}
        judge_one = record
        def record(task, subgraph, candidate, told):
            print("JUDGED", task.id, subgraph.id)
            return judge_one(task, subgraph, candidate, {{}})
    """)
    result = bench.run_apart("--candidate=passes", "--passbench-resume", "-s")
    assert result.ret == 0
    judged = [line for line in result.stdout.lines if "JUDGED" in line]
    assert [line.split("JUDGED ")[1] for line in judged] == ["one s1"]
    run = last(bench)
    assert [record["arm"]["status"] for record in run["records"]] == ["ran"] * 3
    assert not list(max(bench.path.glob("reports/*")).glob("journal*"))
    assert not list(folder.glob("journal*"))


def test_a_file_with_it_is_not_verified_as_whole(bench, capsys):
    bench.task("one", OK, LOST)
    bench.run("--candidate=passes")
    folder = max(bench.path.glob("reports/*"))
    assert main(["verify", str(folder), "--tasks", str(bench.path / "installed")]) == 1
    assert "1 subgraph could not be judged (harness_fail): no score has them" in capsys.readouterr().out


def test_the_file_is_read_and_a_record_that_was_judged_all_the_same_is_refused(bench):
    bench.task("one", OK, LOST)
    bench.run("--candidate=passes")
    path = max(bench.path.glob("reports/*/results.json"))
    run = results_file.read(path)
    assert [record.judged for record in run.records] == [True, False]
    data = json.loads(path.read_text())
    data["records"][0]["arm"]["status"] = "harness_fail"
    path.write_text(json.dumps(data))
    with pytest.raises(Exception, match="harness_fail, though it was judged"):
        results_file.read(path)
