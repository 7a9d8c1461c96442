"""A run in GitHub Actions and in GitLab CI, with a judge that returns what each task file states."""

from __future__ import annotations

import json
import re

import pytest

from support.plugin_runs import PytestFolder

WRONG = {"correct_from": [99], "miss": "", "worst": "output 0[1]: expected 1, got 2"}
HOSTILE = "50 %, a: b\n::error::mine\n::set-env name=x::y\n##[add-mask]z\r\x1b[31m"


@pytest.fixture
def bench(pytester, monkeypatch):
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE", "GITLAB_CI", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    return PytestFolder(pytester, monkeypatch)


@pytest.fixture
def github(bench, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(bench.path))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "summary.md"))
    return bench


def commands(text: str) -> list[str]:
    """Return the lines that GitHub takes as commands."""
    taken, token = [], ""
    for line in map(str.strip, text.splitlines()):
        if token:
            token = "" if line == f"::{token}::" else token
        elif line.startswith("::stop-commands::"):
            token = line.removeprefix("::stop-commands::")
        elif line.startswith("::") or "##[" in line:
            taken.append(line)
    return taken


def test_a_failed_task_is_an_annotation_and_elsewhere_there_is_none(bench, github, monkeypatch):
    bench.task("bad", WRONG, {})
    bench.task("good")
    result = bench.run("--candidate=passes")
    (said,) = commands(result.stdout.str())
    assert said == (
        "::error file=passes/fuse.py,line=1,title=passbench%3A bad [passes]::"
        "1 of 2 subgraphs failed: s0: accuracy: output 0[1]: expected 1, got 2"
    )
    summary = (bench.path / "summary.md").read_text()
    assert "### PassBench: 1 passed, 1 failed" in summary
    assert "# PassBench results" in summary
    monkeypatch.delenv("GITHUB_ACTIONS")
    assert "::" not in re.sub(r"\w::", "", bench.run("--candidate=passes").stdout.str())


def test_no_text_of_a_candidate_becomes_a_command(bench, github):
    bench.task("bad", {"status": "runtime_fail", "message": HOSTILE, "output": HOSTILE})
    result = bench.run("--candidate=passes")
    (said,) = commands(result.stdout.str())
    assert said.startswith("::error file=passes/")
    assert "50 %25, a: b ::error::mine" in said
    assert "\x1b" not in said


def test_eleven_failed_tasks_are_nine_annotations_and_one_that_counts_the_others(bench, github):
    for number in range(11):
        bench.task(f"bad-{number}", WRONG)
    said = commands(bench.run("--candidate=passes").stdout.str())
    assert len(said) == 10
    assert said[-1] == "::error title=passbench::2 more tasks failed (2 subgraphs): see results.md"


def test_the_worst_comes_first_and_names_its_line(bench, github):
    bench.task("a-wrong", WRONG)
    bench.task("b-crashed", {"status": "runtime_fail", "message": "fuse.py:12: ValueError: no"})
    finding = ["kernel", "native-state", "violation", "has a static variable", "fuse.py", 7]
    bench.task("c-violates", {"status": "integrity", "finding": finding})
    said = commands(bench.run("--candidate=passes").stdout.str())
    assert [re.search(r"file=([^,]+),line=(\d+),title=passbench%3A (\S+)", one).groups() for one in said][:2] == [
        ("passes/fuse.py", "7", "c-violates"),
        ("passes/fuse.py", "12", "b-crashed"),
    ]


def test_lost_speed_is_an_error_since_an_earlier_run_and_a_warning_beside_a_reference(bench, github):
    bench.task("a", {}, {})
    bench.run("--candidate=passes", "--passbench-report-dir=old")
    (old,) = bench.path.glob("old/*")
    bench.task("a", {"ratio": 1.0, "miss": ""}, {})
    bench.task("b", {"against": 0.9}, {"against": 1.1}, {"against": 0.8, "miss": ""})
    bench.candidate("other")
    result = bench.run("--candidate=passes", f"--passbench-compare={old}", "--passbench-against=other")
    assert result.ret == 1
    error, warning = commands(result.stdout.str())
    said = "1 of 2 subgraphs slower than before: s0: 1x, was 1.5x: 0.667 ["
    assert error.startswith(f"::error file=passes/fuse.py,line=1,title=passbench%3A a [passes]::{said}")
    assert warning == (
        "::warning file=passes/fuse.py,line=1,title=passbench%3A b [passes]::"
        "2 of 3 subgraphs slower than other: s2: 0.800 [0.790, 0.810] times as fast"
    )
    (path,) = bench.path.glob("reports/*/comment.md")
    comment = path.read_text()
    assert comment.startswith("### PassBench: 1 passed, 1 failed\n")
    assert f"| failed task | candidate | why |\n|---|---|---|\n| a | passes | {said}" in comment
    assert "| task slower than the reference | candidate | why |\n|---|---|---|\n| b | passes | 2 of 3 " in comment


def test_a_summary_that_cannot_be_written_is_named_and_fails_nothing(bench, github, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.path / "nowhere/summary.md"))
    bench.task("good")
    result = bench.run("--candidate=passes")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["the job summary was not written: *"])


def test_gitlab_gets_an_issue_for_each_failed_task(bench, monkeypatch):
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("CI_PROJECT_DIR", str(bench.path))
    bench.task("bad", WRONG)
    bench.task("good")
    bench.run("--candidate=passes", "--junitxml=junit.xml")
    (path,) = bench.path.glob("reports/*/code-quality.json")
    (issue,) = json.loads(path.read_text())
    assert issue["check_name"] == "passbench-accuracy"
    assert issue["severity"] == "major"
    assert issue["location"]["path"].startswith("passes")
    assert issue["location"]["lines"] == {"begin": 1}
    assert len(issue["fingerprint"]) == 64
    assert issue["description"].startswith("bad: 1 of 1 subgraphs failed")
    junit = (bench.path / "junit.xml").read_text()
    assert 'failures="1"' in junit
    assert 'tests="2"' in junit


def test_the_comment_has_at_most_sixty_lines_and_names_the_failed_tasks_first(bench):
    for number in range(70):
        bench.task(f"bad-{number}", WRONG)
    bench.task("fine", {"ratio": 0.5})
    bench.run("--candidate=passes", "--passbench-suite=full")
    (path,) = bench.path.glob("reports/*/comment.md")
    lines = path.read_text().splitlines()
    assert lines[0] == "### PassBench: 1 passed, 70 failed"
    assert len(lines) <= 60
    assert any(line.startswith("| ... and ") for line in lines)
    text = "\n".join(lines)
    assert text.index("| failed task |") < text.index("the slowest first")
