"""A run beside other tests and other plugins: a gate is never absent in silence, and no plugin interferes."""

from __future__ import annotations

import pytest

from support.forked_pytest import ForkedPytest
from support.plugin_runs import PytestFolder


@pytest.fixture
def bench(pytester, monkeypatch):
    found = PytestFolder(pytester, monkeypatch)
    found.file("other/test_other.py", "def test_other(): pass")
    return found


def beside(bench, *options):
    """Run with all plugins that are installed."""
    return ForkedPytest(bench.path, "--passbench", "--candidate=passes", "--strict-markers", *options).result()


@pytest.mark.parametrize("option", ["--candidate=passes", "--passbench-fail-under=AS=0.9"])
def test_what_needs_a_judgement_is_refused_without_one(bench, option):
    result = bench.pytester.runpytest_inprocess(option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    name = option.partition("=")[0]
    result.stderr.fnmatch_lines([f"ERROR: {name} judges nothing without --passbench: add it, or leave {name} out"])


def test_defaults_in_the_ini_file_need_no_judgement(bench):
    bench.file("pytest.ini", "[pytest]\npassbench_candidate = passes\npassbench_fail_under = AS=0.9\n")
    bench.pytester.runpytest_inprocess("other").assert_outcomes(passed=1)


@pytest.mark.parametrize("workers", [(), ("-n1",)], ids=["serial", "xdist"])
def test_other_tests_alone_are_no_judgement(bench, workers):
    bench.task("one")
    result = bench.run("--candidate=passes", "other", *workers)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --passbench: no task is among the tests that were collected (leave the*"])
    assert not list(bench.path.glob("reports/*"))


def test_other_tests_beside_a_task_are_run(bench):
    task = bench.file("own.task.yaml", bench.text("own"))
    result = bench.run("--candidate=passes", "other", str(task))
    result.assert_outcomes(passed=2)


def test_a_compiler_that_does_not_exist_is_named_before_anything_is_judged(bench, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    bench.task("one")
    result = bench.run("--candidate=passes")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: $CXX: names 'no-such-compiler', which is no program (name a compiler)"])


@pytest.mark.slow
def test_no_alarm_of_pytest_timeout_goes_off_in_the_judge(bench):
    pytest.importorskip("pytest_timeout")
    bench.task("slow", {"sleep": 0.5})
    result = beside(bench, "--timeout=0.1")
    result.assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_failed_task_is_not_judged_until_it_passes(bench):
    pytest.importorskip("pytest_rerunfailures")
    bench.task("wrong", {"correct_from": [99]})
    result = beside(bench, "--reruns=2")
    result.assert_outcomes(failed=1)
    assert "rerun" not in result.outlines[-1]
