"""A run as its user sees it, with a judge that returns what each task file states."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

from support.plugin_runs import LEAN, OK, PytestFolder


@pytest.fixture
def bench(pytester, monkeypatch):
    return PytestFolder(pytester, monkeypatch)


def results(bench: PytestFolder) -> dict:
    (path,) = bench.path.glob("reports/*/results.json")
    return json.loads(path.read_text())


def test_a_run_prints_header_tasks_tables_and_closing_lines(bench):
    bench.task("one", {"ratio": 2.0}, {"ratio": 2.0})
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(
        [
            "passbench: device: cpu, threads: 1, pipeline: dynamo, policy: kernels, t: -5, sandbox: fake",
            "candidate: passes, content *",
            "suite: lite (1 of 1 tasks; --passbench-suite=full for all)",
            "seed commitment: sha256 *",
            "tasks/family/one.task.yaml . 2/2 correct, 2.00x*",
            "*= passbench =*",
            "results: reports/*/results.json",
            "results: reports/*/results.md",
            "results: reports/*/report.html",
            "seed: *",
            "*1 passed*",
        ]
    )
    assert result.ret == 0
    run = results(bench)
    assert run["tasks"] == ["one"]
    assert [record["subgraph"] for record in run["records"]] == ["s0", "s1"]
    assert not run["interrupted"]


def test_a_run_has_a_page_with_charts(bench):
    bench.task("one", {"ratio": 2.0}, {"ratio": 2.0})
    assert bench.run("--candidate=passes").ret == 0
    (page,) = bench.path.glob("reports/*/report.html")
    text = page.read_text()
    assert "2.000 times as fast as eager" in text
    assert 'aria-label="Curves of ES(t): eager, passes"' in text


def test_a_long_name_leaves_out_the_time_left_before_it_wraps(bench):
    for name in ("a" * 26, "b" * 26):
        bench.task(name)
    text = bench.run("--candidate=passes").stdout.str()
    assert re.search(r"^tasks/family/a+\.task\.yaml \. 1/1 correct, 1\.50x +\[ 50%\]$", text, re.M)
    assert not re.search(r"^ +\[", text, re.M)


@pytest.mark.parametrize(("length", "said"), [(26, "1/1 correct, 1.50x"), (33, "1/1, 1.50x"), (39, "1.50x")])
def test_of_a_long_line_the_speed_up_is_never_what_is_cut_off(bench, length, said):
    bench.task("a" * length)
    text = bench.run("--candidate=passes").stdout.str()
    assert re.search(rf"^tasks/family/a+\.task\.yaml \. {re.escape(said)} +\[100%\]$", text, re.M)


def test_a_name_as_long_as_the_line_has_its_speed_up_below(bench):
    bench.task("a" * 46)
    text = bench.run("--candidate=passes").stdout.str()
    assert re.search(r"^tasks/family/a+\.task\.yaml \.\n  1/1 correct, 1\.50x +\[100%\]$", text, re.M)


@pytest.mark.parametrize(("budget", "said"), [("0.0001", True), ("1h", False)])
def test_a_run_says_that_it_took_longer_than_its_budget(bench, budget, said):
    bench.task("one")
    result = bench.run("--candidate=passes", f"--passbench-budget={budget}")
    assert result.ret == 0
    assert ("more than the budget of" in result.stdout.str()) == said


def test_the_seed_revealed_is_the_one_committed_to(bench):
    from pytest_passbench.core.seed import commitment

    bench.task("one")
    text = bench.run("--candidate=passes").stdout.str()
    seed = re.search(r"^seed: ([0-9a-f]{64})$", text, re.M)[1]
    assert f"seed commitment: sha256 {commitment(bytes.fromhex(seed))}" in text
    again = bench.run("--candidate=passes", f"--passbench-seed={seed}").stdout.str()
    assert f"seed: {seed}" in again


def test_a_failed_case_says_what_where_and_why_without_a_traceback(bench):
    bench.task(
        "bad",
        {"correct_from": [-11, -3], "worst": "output 1 at (0, 2): 1.25, eager has 1.0"},
        {"status": "crash", "phase": "measure", "message": "signal 11", "output": "a\x1b[31m\nb"},
        {"status": "pass_miss", "miss": "nearest node tmp_0: expected relu, found gelu"},
        OK,
    )
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(
        [
            "*bad.task.yaml F 1/4 correct*",
            "3 of 4 subgraphs failed",
            "s0: not correct at t = -5",
            "  outputs   0: bitwise equal, 1: correct from t = -3",
            "  worst     output 1 at (0, 2): 1.25, eager has 1.0",
            "s1: crash in measure",
            "  message   signal 11",
            "  captured output",
            r"  | a\x1b[[]31m",
            "  | b",
            "s2: pass_miss",
            "  miss      fuse: nearest node tmp_0: expected relu, found gelu",
            "FAILED tasks/family/bad.task.yaml::bad[[]passes] - not correct at t = -5 (1 of*",
        ]
    )
    assert result.ret == 1
    assert "Traceback" not in result.stdout.str()


def test_the_summary_has_the_status_and_the_cause_first(bench, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    miss = {"status": "pass_miss", "phase": "match", "miss": "nearest: sum (s): argument keepdim: found True; more"}
    bench.task("missed", miss, miss)
    crash = {"status": "crash", "phase": "measure", "message": "signal 11"}
    bench.task("bad", {"correct_from": [-3]}, crash, crash)
    message = "pass fuse: kernel:8:12: error: 'halg' was not declared\n  8 | halg\n    | ^~~~"
    broken = {"status": "compile_fail", "phase": "compile", "message": message}
    bench.task("broken", broken, OK, broken)
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(
        [
            "s0: compile_fail in compile",
            "  message   pass fuse: kernel:8:12: error: 'halg' was not declared",
            "              8 | halg",
            "                | ^~~~",
            "  also      s2",
            "FAILED *::bad[[]passes] - crash: signal 11 (2 of 3; 1 not correct)",
            "FAILED *::broken[[]passes] - compile_fail: 'halg' was not declared (2 of 3)",
            "FAILED *::missed[[]passes] - pass_miss: sum (s): argument keepdim: found True (2 of 2)",
        ]
    )


def test_the_tolerance_decides(bench):
    bench.task("one", {"correct_from": [-3]})
    assert bench.run("--candidate=passes").ret == 1
    assert bench.run("--candidate=passes", "--passbench-tolerance=-3").ret == 0


def test_a_violation_shows_its_evidence(bench):
    finding = ["dispatch", "torch-op", "violation", "calls aten.mm", "fuse.py", 7]
    bench.task("cheat", {"status": "integrity", "finding": finding})
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(["*violation fuse.py:7: calls aten.mm [[]dispatch: torch-op]"])


def test_long_output_is_capped(bench):
    bench.task("noisy", {"status": "runtime_fail", "output": "x" * 50_000 + "\nlast line"})
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(["  | ...", "  | last line"])
    assert len(result.stdout.str()) < 20_000


def test_a_broken_task_file_fails_alone_with_one_message(bench):
    bench.task("good")
    bench.file("mine/broken.task.yaml", "passbench: task/1\nid: [\n")
    bench.file("mine/good.task.yaml", bench.text("good"))
    result = bench.run("mine", "--candidate=passes")
    result.stdout.fnmatch_lines(["*mine/broken.task.yaml:*", "ERROR mine/broken.task.yaml*", "*1 passed, 1 error*"])
    assert "Traceback" not in result.stdout.str()


def test_a_fault_of_the_judge_has_a_traceback_and_the_rest_goes_on(bench):
    bench.task("a", {"raise": "judge fault"})
    bench.task("b")
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(["*RuntimeError: judge fault*", "not judged: a [[]passes]"])
    result.assert_outcomes(passed=1, failed=1)


def test_two_candidates_are_judged_and_two_of_one_name_refused(bench):
    bench.task("one")
    bench.candidate("other")
    result = bench.run("--candidate=passes", "--candidate=other", "-v")
    result.stdout.fnmatch_lines(
        ["*tasks/family/one.task.yaml::one[[]passes] PASSED (1/1 correct, 1.50x*", "*one[[]other] PASSED*"]
    )
    bench.candidate("deep/passes")
    refused = bench.run("--candidate=passes", "--candidate=deep/passes")
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["ERROR: *deep/passes: is called passes, and so is *rename*"])


@pytest.mark.parametrize(
    ("gate", "code", "line"),
    [
        ("AS=1.1", 0, "gate passed: AS of passes is *, at least 1.1"),
        ("AS=1.9", 1, "gate failed: AS of passes is *, under 1.9"),
        ("correct=1,gmean=1.2", 0, "gate passed: gmean of passes is 1.5, at least 1.2"),
        ("fast1=1", 0, "gate passed: fast1 of passes is 1, at least 1"),
    ],
)
def test_a_gate_ends_the_run_with_one_line(bench, gate, code, line):
    bench.task("one")
    result = bench.run("--candidate=passes", f"--passbench-fail-under={gate}")
    result.stdout.fnmatch_lines([line, "*1 passed*"])
    assert result.ret == code


FUSED = {"correct_from": [-2], "ratios64": [0.5], "error64": [1e-3], "eager_error64": [2e-3]}
COARSE = {"correct_from": [-5], "ratios64": [3.0]}


@pytest.mark.parametrize(
    ("criterion", "fused", "coarse"),
    [("ladder", "failed", "passed"), ("fp64", "passed", "failed"), ("either", "passed", "passed")],
)
def test_cases_and_gates_are_by_the_criterion_that_is_asked_for(bench, criterion, fused, coarse):
    bench.task("fused", FUSED)
    bench.task("coarse", COARSE)
    result = bench.run(
        "--candidate=passes", f"--passbench-criterion={criterion}", "--passbench-fail-under=correct=0.9"
    )
    outcomes = result.parseoutcomes()
    assert {name: outcomes.get(name, 0) for name in ("passed", "failed")} == {
        name: [fused, coarse].count(name) for name in ("passed", "failed")
    }
    whose = "correct of passes" + ("" if criterion == "ladder" else f" ({criterion})")
    met = "passed: " + whose + " is 1, *" if criterion == "either" else "failed: " + whose + " is 0.5, *"
    result.stdout.fnmatch_lines([f"gate {met}"])
    run = results(bench)
    assert run["settings"]["criterion"] == criterion
    assert {(record["task"], record["arm"]["accurate"]) for record in run["records"]} == {
        ("fused", True),
        ("coarse", False),
    }
    shown = result.stdout.str()
    assert ("nearer to float64 than eager" in shown) == (criterion == "ladder")
    assert ("s0: less accurate than eager" in shown) == (criterion == "fp64")
    assert (f"criterion: {criterion}" in shown) == (criterion != "ladder")


def test_a_criterion_that_there_is_not_is_a_usage_error(bench):
    bench.task("one")
    result = bench.run("--candidate=passes", "--passbench-criterion=best")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*'best' is not one of ladder, fp64, either"])


def test_what_was_not_measured_passes_no_gate(bench):
    bench.task("one", {"ratio": None})
    result = bench.run("--candidate=passes", "--passbench-fail-under=AS=0.1")
    result.stdout.fnmatch_lines(["gate failed: AS of passes was not measured, at least 0.1 is asked for"])
    assert result.ret == 1


NOT_JUDGED = {
    "judge-raises": ({"raise": "judge fault"}, ()),
    "first-failure": ({"status": "crash"}, ("-x",)),
    "interrupted": ({"interrupt": True}, ()),
}


@pytest.mark.parametrize("how", NOT_JUDGED)
@pytest.mark.parametrize("gate", ["correct=0.9", "fast1=0.9", "AS=0.9", "gmean=1.2"])
def test_what_was_not_judged_is_a_failure_to_every_gate(bench, how, gate):
    """Nine tenths or more of what was judged are correct and fast, but less of all that was selected."""
    told, options = NOT_JUDGED[how]
    bench.task("a")
    bench.task("b", OK, told, *[OK] * 8)
    bench.task("c")
    result = bench.run("--candidate=passes", f"--passbench-fail-under={gate}", *options)
    assert result.ret != 0
    result.stdout.fnmatch_lines([f"gate failed: {gate.partition('=')[0]} of passes *"])
    assert results(bench)["selected"] == {"passes": {"a": 1, "b": 10, "c": 1}}


def test_subgraphs_that_a_record_leaves_out_are_not_missing_and_every_table_says_so(bench):
    bench.task("a", *[OK] * 5)
    bench.conftest(
        """
        class Choosing(Judge):
            def judge(self, task, candidate):
                for found in super().judge(task, candidate):
                    if found.subgraph in ("s0", "s1"):
                        found.left_out = {"s0": ["s2", "s3"], "s1": ["s4"]}[found.subgraph]
                        yield found

        @pytest.hookimpl(tryfirst=True)
        def pytest_passbench_make_session(config, settings, seed):
            return Choosing(settings, seed)
        """
    )
    for run, *spread in ((bench.run,), (bench.run_apart, "-n1")):
        result = run("--candidate=passes", "--passbench-fail-under=correct=1", *spread)
        assert result.ret == 0
        said = "*passes was judged on 2 of 5 subgraphs: of a dtype the smallest alone, where Triton's interpreter*"
        gate = "gate passed: correct of passes is 1, at least 1"
        result.stdout.fnmatch_lines(["*2/2 correct*", said, gate])
        latest = max(bench.path.glob("reports/*"))
        assert "| 2/5 |" in (latest / "results.md").read_text()
        assert json.loads((latest / "results.json").read_text())["selected"] == {"passes": {"a": 2}}


def test_ctrl_c_writes_what_there_is(bench):
    bench.task("a")
    bench.task("b", OK, {"interrupt": True}, OK)
    bench.task("c")
    result = bench.run("--candidate=passes")
    lacking = "not judged: b [[]passes] (2 of 3 subgraphs), c [[]passes]"
    result.stdout.fnmatch_lines(["*run was interrupted*", lacking])
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = results(bench)
    assert run["interrupted"]
    assert [(record["task"], record["subgraph"]) for record in run["records"]] == [("a", "s0"), ("b", "s0")]


def test_trusted_scores_nothing_and_says_so(bench):
    bench.task("one")
    result = bench.run("--candidate=passes", "--passbench-trusted")
    result.stdout.fnmatch_lines(["trusted: *nothing is scored", "*one.task.yaml . trusted: nothing is scored, 1/1*"])
    assert "Board" not in result.stdout.str()
    assert not (bench.path / "reports").exists()


def test_durations_are_shown_by_phase(bench):
    bench.task("one", {"durations": {"build": 1.5, "measure": 3.0}})
    result = bench.run("--candidate=passes", "-v")
    result.stdout.fnmatch_lines(["seconds by phase:", "*3.00  measure", "*1.50  build"])


def test_junit_has_the_outcome_and_every_subgraph(bench):
    bench.task("one", OK, {"status": "timeout"})
    bench.run("--candidate=passes", "--junitxml=out.xml")
    (case,) = ET.parse(bench.path / "out.xml").iter("testcase")
    properties = {item.get("name"): item.get("value") for item in case.iter("property")}
    assert case.get("name") == "one[passes]"
    assert properties["passbench.outcome"] == "1/2 correct, 1.50x"
    assert properties["passbench.subgraph.s1"] == "timeout"


def test_timings_go_to_pytest_benchmark(bench):
    bench.task("one", OK)
    bench.run("--candidate=passes", "--benchmark-json=out.json", "--benchmark-save=first")
    rows = json.loads((bench.path / "out.json").read_text())["benchmarks"]
    assert [row["fullname"].rpartition("::")[2] for row in rows] == ["eager", "passes"]
    (mine,) = (row for row in rows if row["param"] == "passes")
    assert mine["stats"]["rounds"] == 6
    assert mine["stats"]["median"] == pytest.approx(10e-6 / 1.5, rel=0.01)
    assert mine["extra_info"]["speedup"] == 1.5
    compared = bench.run("--candidate=passes", "--benchmark-compare")
    compared.stdout.fnmatch_lines(["*one/s0 passes (NOW)*"])
    assert compared.ret == 0


def test_two_candidates_share_the_rows_of_eager_in_pytest_benchmark(bench):
    bench.candidate("others")
    bench.task("one", {"ratio": 2.0}, {"ratio": 4.0})
    bench.run("--candidate=passes", "--candidate=others", "--benchmark-json=out.json")
    rows = json.loads((bench.path / "out.json").read_text())["benchmarks"]
    arms = ["eager", "others", "passes"]
    assert sorted(row["name"] for row in rows) == [f"one/s{number} {arm}" for number in (0, 1) for arm in arms]
    assert all(row["stats"]["rounds"] == 6 for row in rows if row["param"] != "eager")


def test_it_works_without_pytest_benchmark(bench):
    bench.task("one")
    assert bench.run("--candidate=passes", "-p", "no:benchmark").ret == 0


def test_on_a_terminal_every_subgraph_is_shown_as_it_is_judged(bench):
    bench.task("one", OK, {"status": "timeout"})
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "pytest", "--passbench", "--candidate=passes", *LEAN]
    with subprocess.Popen(command, cwd=bench.path, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = drain(ours)
        assert process.wait(timeout=30) == 1
    assert re.search(r"\x1b7\x1b\[K 1/2 s0 correct 1\.50x, \d+ s left\x1b8", text)
    assert "\x1b7\x1b[K 2/2 s1 timeout\x1b8\x1b[K" in text


def drain(descriptor: int) -> str:
    """Return all that is written to the other side of a pseudo-terminal until it is closed."""
    parts = []
    with contextlib.suppress(OSError):
        while part := os.read(descriptor, 4096):
            parts.append(part)
    os.close(descriptor)
    return b"".join(parts).decode()


def test_other_plugins_get_every_record_and_the_run(bench):
    bench.task("one", OK, OK)
    bench.conftest(
        """
        def pytest_passbench_record(record): print("RECORD", record.subgraph)
        def pytest_passbench_run(run): print("RUN", len(run.records))
        """
    )
    bench.run("--candidate=passes", "-s").stdout.fnmatch_lines(["*RECORD s0*", "*RECORD s1*", "*RUN 2"])


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["serial", "xdist"])
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda text: text.replace("ops: [relu]", "ops: relu"), "one.task.yaml:3: ops is 'relu' (give a list)"),
        (lambda text: text.replace("torch.relu", "torch.load"), "one.task.yaml:12: operator 'torch.load' is not"),
    ],
    ids=["header", "graph"],
)
def test_a_faulty_task_is_an_error_that_no_score_has(bench, spoil, said, workers):
    bench.task("one", OK)
    bench.task("two", OK, {"ratio": 2.0})
    path = bench.path / "installed/tasks/family/one.task.yaml"
    path.write_text(spoil(path.read_text()))
    result = bench.run("--candidate=passes", *workers)
    result.assert_outcomes(passed=1, errors=1)
    assert said in result.stdout.str()
    result.stdout.fnmatch_lines(["faulty tasks: one?passes?. No score has them."])
    run = results(bench)
    assert (run["tasks"], run["selected"]) == (["two"], {"passes": {"two": 2}})
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_a_faulty_task_at_the_end_takes_no_noise_away(bench):
    bench.conftest('Judge.noise = lambda self: {"width": 0.02, "sessions": 3}')
    bench.file("own/a.task.yaml", bench.text("a"))
    bench.file("own/z.task.yaml", "no task")
    assert bench.run("--candidate=passes", "own").ret == pytest.ExitCode.TESTS_FAILED
    assert results(bench)["noise"] == {"width": 0.02, "sessions": 3}
