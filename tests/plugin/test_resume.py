"""A run that ends early: what is kept of it, and how another run resumes it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_passbench.core.paths import user_cache
from pytest_passbench.run import journal
from support.forked_pytest import ForkedPytest
from support.plugin_runs import LEAN, OK, PytestFolder

# A judge that ends or waits at the third subgraph of a task, once, and lists the subgraphs that it was asked for.
ONCE = """
import contextlib

class Once(Judge):
    def judge(self, task, candidate):
        first = not Path("ended").exists()
        for subgraph in task.subgraphs:
            with open("asked", "a") as file:
                file.write(f"{task.id}/{subgraph.id} ")
            if first and task.id == "b" and subgraph.id == "s2":
                Path("ended").touch()
                {end}
            yield record(task, subgraph, candidate, dict(subgraph.meta))


@pytest.hookimpl(tryfirst=True)
def pytest_passbench_make_session(config, settings, seed):
    return Once(settings, seed)
"""
HASHING = """
from pytest_passbench.suite.taskfile import task_hash

_record = record

def record(task, subgraph, candidate, told, task_hash=""):
    found = _record(task, subgraph, candidate, told)
    found.task_hash = task_hash
    return found
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
WAIT = "time.sleep(60)"
# A second signal, before the plugin has handled the first one.
IMPATIENT = """
class Impatient:
    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self):
        os.kill(os.getpid(), {number})

def pytest_sessionstart(session):
    session.config.pluginmanager.register(Impatient())
"""
ALL = ["a/s0", "a/s1", "b/s0", "b/s1", "b/s2", "b/s3"]


@pytest.fixture
def bench(pytester, monkeypatch):
    bench = PytestFolder(pytester, monkeypatch)
    bench.task("a", {"ratio": 2.0}, {"correct_from": [99]})
    bench.task("b", OK, OK, OK, OK)
    return bench


def judged(bench: PytestFolder) -> list[str]:
    return (bench.path / "asked").read_text().split()


def last(bench: PytestFolder) -> dict:
    return json.loads(max(bench.path.glob("reports/*/results.json")).read_text())


def found(run: dict) -> list[tuple]:
    return [(r["task"], r["subgraph"], r["arm"]["status"], r["arm"]["correct_from"]) for r in run["records"]]


def undisturbed(bench: PytestFolder) -> list[tuple]:
    bench.conftest("")
    bench.run("--candidate=passes", "--passbench-report-dir=other")
    (path,) = bench.path.glob("other/*/results.json")
    return found(json.loads(path.read_text()))


def test_a_run_that_was_killed_goes_on_where_it_was(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    assert bench.run_apart("--candidate=passes").ret == -signal.SIGKILL
    (journal,) = bench.path.glob("reports/*/journal.jsonl")
    with journal.open("a") as file:
        file.write("cut short")
    result = bench.run_apart("--candidate=passes", "--passbench-resume")
    told = f"resumes {journal.parent}: 4 subgraphs are not judged again; lines that were cut short: 1"
    result.stdout.fnmatch_lines([told, "*b.task.yaml . 4/4 correct*"])
    assert judged(bench) == [*ALL[:5], "b/s2", "b/s3"]
    run = last(bench)
    assert not run["interrupted"]
    assert found(run) == undisturbed(bench)
    assert not list(bench.path.glob("reports/*/journal*"))  # no journal is left, also of the first half
    refused = bench.run("--candidate=passes", "--passbench-resume")
    refused.stderr.fnmatch_lines(["*reports: has no run that was interrupted*"])


def resume_alone(bench: PytestFolder, *args: str) -> pytest.RunResult:
    return ForkedPytest(bench.path, "--passbench-resume", *args).result()


def stored_commands(bench: PytestFolder) -> list[Path]:
    return list((user_cache("commands") or bench.path).glob("*.json"))


@pytest.mark.slow
def test_resume_alone_takes_the_whole_command_of_the_run(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    first = ["--candidate=passes", "-k", "b", "--passbench-tolerance=-4", "--passbench-fail-under=AS=99"]
    assert bench.run_apart(*first).ret == -signal.SIGKILL
    result = resume_alone(bench, "--passbench-budget=5m")
    result.stdout.fnmatch_lines(["resumes *: 2 subgraphs are not judged again", "*b.task.yaml . 4/4 correct*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED  # the first command's gate
    assert judged(bench) == ["b/s0", "b/s1", "b/s2", "b/s2", "b/s3"]
    assert last(bench)["settings"]["tolerance"] == -4
    assert last(bench)["settings"]["budget"] == 300
    assert not list(stored_commands(bench))


@pytest.mark.slow
def test_what_the_ini_file_adds_does_not_come_after_the_command_of_the_run(bench):
    ini = bench.path / "pytest.ini"
    ini.write_text(ini.read_text() + "addopts = --passbench-tolerance=-3\n")
    bench.conftest(ONCE.replace("{end}", KILL))
    assert bench.run_apart("--candidate=passes", "--passbench-tolerance=-4").ret == -signal.SIGKILL
    resume_alone(bench).stdout.fnmatch_lines(["*b.task.yaml . 4/4 correct*"])
    assert last(bench)["settings"]["tolerance"] == -4


@pytest.mark.slow
def test_a_run_that_resume_alone_went_on_with_is_resumed_alone_again(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    (bench.path / "ended").unlink()
    assert resume_alone(bench).ret == -signal.SIGKILL
    resume_alone(bench).stdout.fnmatch_lines(["*b.task.yaml . 4/4 correct*"])
    assert judged(bench) == [*ALL[:5], "b/s2", "b/s2", "b/s3"]


@pytest.mark.slow
def test_resume_alone_starts_as_many_workers_as_the_run_had(bench):
    bench.conftest(ONCE.replace("{end}", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(1); " + KILL))
    assert bench.run_apart("--candidate=passes", "-n1").ret == -signal.SIGKILL
    resume_alone(bench).stdout.fnmatch_lines(["*1 worker*", "*4/4 correct*"])


def test_resume_alone_asks_for_the_whole_command_if_the_run_has_none(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    (command,) = stored_commands(bench)
    text = command.read_text()
    remedy = "(give the run's whole command with --passbench-resume)"
    for content, told in (
        ('{"directory": 1}', "has another form: *"),
        (text.replace(str(bench.path), "/elsewhere"), "was begun in /elsewhere (go on in that directory)"),
        (None, "was begun by a command that is not stored for this user"),
    ):
        command.unlink() if content is None else command.write_text(content)
        result = resume_alone(bench)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"*{told}*"])
        assert remedy in result.stderr.str() or "elsewhere" in told
    (folder,) = bench.path.glob("reports/*")
    (folder / "command.json").write_text(text)  # a report folder may be another user's
    assert "not stored for this user" in resume_alone(bench).stderr.str()
    result = resume_alone(bench, "--passbench-report-dir=none")
    result.stderr.fnmatch_lines(["*none: has no run that was interrupted (run without --passbench-resume)*"])


@pytest.mark.slow
def test_a_run_on_workers_that_was_killed_goes_on_too(bench):
    bench.conftest(ONCE.replace("{end}", "os.kill(os.getppid(), signal.SIGKILL); time.sleep(1); " + KILL))
    assert bench.run_apart("--candidate=passes", "-n1").ret == -signal.SIGKILL
    result = bench.run_apart("--candidate=passes", "-n1", "--passbench-resume")
    result.stdout.fnmatch_lines(["*4/4 correct*"])
    assert len(judged(bench)) == len(ALL) + 1
    assert found(last(bench)) == undisturbed(bench)


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_signal_that_ends_a_run_leaves_its_results_and_says_how_to_go_on(bench, number):
    bench.conftest(ONCE.replace("{end}", WAIT) + IMPATIENT.replace("{number}", str(int(number))))
    process = bench.start_apart("--candidate=passes")
    while not (bench.path / "ended").exists():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    process.send_signal(number)  # a second signal changes nothing
    result = process.result()
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = last(bench)
    assert run["interrupted"]
    assert [f"{r['task']}/{r['subgraph']}" for r in run["records"]] == ALL[:4]
    (folder,) = bench.path.glob("reports/*")
    assert f"to go on: pytest --passbench-resume=reports/{folder.name}" in result.stdout.str()
    result = bench.run_apart("--candidate=passes", f"--passbench-resume=reports/{folder.name}")
    result.stdout.fnmatch_lines(["*4/4 correct*"])
    assert found(last(bench)) == undisturbed(bench)


def test_a_run_of_some_of_the_candidates_goes_on_by_the_same_command(bench):
    bench.candidate("others")
    bench.conftest(ONCE.replace("{end}", KILL))
    command = ("--candidate=passes", "--candidate=others", "-k", "[passes]")
    bench.run_apart(*command)
    result = bench.run_apart(*command, "--passbench-resume")
    result.stdout.fnmatch_lines(["*b.task.yaml . 4/4 correct*"])


def test_a_task_that_changed_since_is_not_mixed_with_what_it_was(bench):
    hashed = ONCE.replace("dict(subgraph.meta))", "dict(subgraph.meta), task_hash(task))")
    bench.conftest(HASHING + hashed.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    bench.task("a", {"ratio": 2.5}, {"correct_from": [99]})
    result = bench.run_apart("--candidate=passes", "--passbench-resume")
    result.stdout.fnmatch_lines(["*a.task.yaml: has changed since the run that is resumed*"])


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        ("", ["--passbench-tolerance=-4"], "tolerance was '-5' and is '-4'"),
        ("", ["--passbench-task=b"], "task_ids was '()' and is *'b'*"),
        pytest.param(
            "", ["--passbench-only-matching"], "only_matching was 'False' and is 'True'", marks=pytest.mark.slow
        ),
        pytest.param(
            "", ["--passbench-trusted"], "trusted was 'False' and is 'True'", marks=pytest.mark.slow
        ),
        ("", ["--passbench-seed=1"], "the seed is another one"),
        pytest.param(
            "", ["--candidate=others"], "the candidates were passes and are others, passes", marks=pytest.mark.slow
        ),
        ("passes/fuse.py", [], "the files of the candidate passes have changed"),
    ],
)
def test_another_run_is_refused_and_the_difference_named(bench, change, options, said):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    bench.candidate("others")
    if change:
        with (bench.path / change).open("a") as file:
            file.write("\n# changed\n")
    result = bench.run(*options, "--candidate=passes", "--passbench-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*cannot be resumed: {said}*"])


# Ctrl+C after a record is in the journal, and before it is in the results.
BETWEEN = """
from pytest_passbench.run.journal import Journal

add = Journal.add

def struck(self, record):
    add(self, record)
    if record.subgraph == "s2":
        raise KeyboardInterrupt

Journal.add = struck
"""


def test_a_record_that_only_the_journal_has_is_in_the_results(bench):
    bench.conftest(BETWEEN)
    assert bench.run_apart("--candidate=passes").ret == pytest.ExitCode.INTERRUPTED
    assert [f"{r['task']}/{r['subgraph']}" for r in last(bench)["records"]] == ALL[:5]


def header(**changes: object) -> str:
    """Return the lines of a journal with another run's header."""
    fields = {"seed": "00" * 32, "settings": {}, "candidates": {}, "against": "", "compared": "", "harness": ""}
    content = {"schema": journal.SCHEMA, "header": {**fields, **changes}}
    text = json.dumps(content, separators=(",", ":"))
    return f"{hashlib.sha256(text.encode()).hexdigest()} {text}\n"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": None}, "has another form: settings: is null, not an object"),
        ({"candidates": None}, "has another form: candidates: is null, not an object"),
        ({"seed": None}, "has another form: seed: is null, not a text"),
        ({"candidates": {"passes": None}}, "cannot be resumed: *the files of the candidate passes have changed"),
    ],
)
def test_a_journal_with_a_strange_header_is_one_message(bench, changes, said):
    bench.file("reports/strange/journal.jsonl", header(**changes))
    result = bench.run("--candidate=passes", "--passbench-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{said}*"])


def test_the_empty_journal_of_a_lost_worker_keeps_nobody_from_going_on(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    (path,) = bench.path.glob("reports/*/journal.jsonl")
    (path.parent / "journal-gw0.jsonl").touch()
    (path.parent / "journal-gw1.jsonl").write_text("cut sh")
    result = bench.run_apart("--candidate=passes", "--passbench-resume")
    told = f"resumes {path.parent}: 4 subgraphs are not judged again; lines that were cut short: 1"
    result.stdout.fnmatch_lines([told, "*b.task.yaml . 4/4 correct*"])


def test_a_journal_beside_whole_results_is_not_taken_up(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    (path,) = bench.path.glob("reports/*/journal.jsonl")
    text = path.read_text()
    bench.run_apart("--candidate=passes", "--passbench-resume")
    whole = max(bench.path.glob("reports/*/results.json")).parent
    (whole / "journal.jsonl").write_text(text)
    result = bench.run("--candidate=passes", f"--passbench-resume=reports/{whole.name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*is complete: nothing is left to judge*"])
    result = bench.run("--candidate=passes", "--passbench-resume")
    result.stderr.fnmatch_lines(["*reports: has no run that was interrupted*"])


@pytest.mark.slow
def test_the_folder_of_a_run_that_went_on_says_that_nothing_is_left(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    (folder,) = bench.path.glob("reports/*")
    first, second = (ForkedPytest(bench.path, f"--passbench-resume=reports/{folder.name}").result() for _ in "12")
    first.stdout.fnmatch_lines(["*4/4 correct*"])
    assert second.ret == pytest.ExitCode.USAGE_ERROR
    second.stderr.fnmatch_lines(["*has no journal: only an interrupted run that was not resumed has one*"])


@pytest.mark.slow
def test_gates_and_budget_may_be_others_when_a_run_goes_on(bench):
    bench.conftest(ONCE.replace("{end}", KILL))
    bench.run_apart("--candidate=passes")
    options = ("--passbench-fail-under=correct=0.1", "--passbench-budget=1h")
    result = bench.run_apart(*options, "--candidate=passes", "--passbench-resume")
    result.stdout.fnmatch_lines(["*b.task.yaml . 4/4 correct*"])
    assert last(bench)["settings"]["budget"] == 3600


def test_a_run_that_came_to_its_end_leaves_nothing_to_resume(bench):
    bench.run("--candidate=passes")
    assert len(list(bench.path.glob("reports/*/results.json"))) == 1
    result = bench.run("--candidate=passes", "--passbench-resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*reports: has no run that was interrupted*"])


def test_results_that_cannot_be_written_go_to_another_place_that_is_named(bench):
    bench.conftest(
        """
        import shutil

        def pytest_passbench_run(config, run):
            (folder,) = config.rootpath.glob("reports/*")
            shutil.rmtree(folder)
            folder.touch()
        """
    )
    result = bench.run("--candidate=passes")
    result.stdout.fnmatch_lines(["results: */passbench-results-*/results.json", "results not written: *"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    (line,) = [line for line in result.outlines if line.endswith("/results.json")]
    path = Path(line.removeprefix("results: "))
    assert len(json.loads(path.read_text())["records"]) == len(ALL)
    shutil.rmtree(path.parent)


#: The begin of a command that runs another with its own mounts.
VIEW = ["bwrap", "--dev-bind", "/", "/"]


def seen_from(view: list[str], bench: PytestFolder) -> subprocess.CompletedProcess[str]:
    (bench.path / "reports").mkdir()
    command = [*VIEW, *view, sys.executable, "-m", "pytest", "--passbench", "--candidate=passes", *LEAN]
    environment = {**os.environ, "TMPDIR": str(bench.path)}
    return subprocess.run(command, cwd=bench.path, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.bubblewrap
def test_a_disk_that_fills_up_costs_nothing_but_the_place_of_the_results(bench):
    fills = "open('reports/more', 'wb', buffering=0).writelines(iter(lambda: bytes(512), None))"
    long = "subgraph.meta['output'] = 'no room ' * 1024"  # a short record would fit into the last page
    bench.conftest(ONCE.replace("{end}", f"{long}\n                with contextlib.suppress(OSError): {fills}"))
    ran = seen_from(["--size", str(64 << 10), "--tmpfs", str(bench.path / "reports")], bench)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "journal.jsonl: cannot be written: No space left on device" in ran.stdout
    assert "results not written: " in ran.stdout
    (path,) = bench.path.glob("passbench-results-*/results.json")
    assert sorted(found(json.loads(path.read_text()))) == sorted(undisturbed(bench))


@pytest.mark.bubblewrap
def test_a_report_folder_that_cannot_be_written_is_refused_before_anything_is_judged(bench):
    bench.conftest(ONCE.replace("{end}", "pass"))
    ran = seen_from(["--ro-bind", str(bench.path), str(bench.path)], bench)
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "reports: cannot be written: Read-only file system" in ran.stderr
    assert not (bench.path / "asked").exists()
