"""``passbench run`` with a backend that returns what task files state: results, exit codes, interruptions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from pytest_passbench.api import evaluator
from pytest_passbench.api.backend import MachineReport
from pytest_passbench.commands import run as run_command
from pytest_passbench.commands.main import main
from pytest_passbench.commands.verify import refs_of
from pytest_passbench.core.errors import HARNESS_FAILED, UserError
from pytest_passbench.core.record import ArmResult
from pytest_passbench.run import results_file
from pytest_passbench.run.consistency import selection_problems
from support.made_records import record_of, right
from support.plugin_runs import PASS, task_text


class Backend:
    def __init__(self):
        self.given, self.closed = [], False

    def judge(self, call):
        for task in call.tasks:
            for candidate in call.candidates:
                for subgraph in task.subgraphs:
                    told = dict(subgraph.meta)
                    if told.get("interrupt"):
                        raise KeyboardInterrupt
                    if told.get("broken"):
                        raise UserError("a fault of the task")
                    status = told.get("status", "ran")
                    arm = right() if status == "ran" else ArmResult(status)
                    yield record_of(task.id, subgraph.id, arm, candidate.name)
        yield MachineReport("a/0", {"sandbox": "fake", "cpu": "one"}, {"sessions": 2, "width": 0.01})
        yield MachineReport("b/0", {"sandbox": "fake", "cpu": "two"}, {"sessions": 3, "width": 0.02})

    def close(self):
        self.closed = True


@pytest.fixture
def backend(monkeypatch):
    found = Backend()
    monkeypatch.setattr(evaluator, "make_backend", lambda *given: (found.given.append(given), found)[1])
    return found


@pytest.fixture
def judge(tmp_path, backend):
    """Return a function that runs the command on tasks that state their results. It returns exit code and results."""
    (tmp_path / "passes").mkdir()
    (tmp_path / "passes" / "fuse.py").write_text(PASS)
    (tmp_path / "passes" / "sorted_output_pass_rule_names.json").write_text('["fuse"]')

    def run(*told, more=()):
        (tmp_path / "a.task.yaml").write_text(task_text("a", *told))
        command = ["run", str(tmp_path / "passes"), "--tasks", str(tmp_path / "a.task.yaml")]
        code = main([*command, f"--report-dir={tmp_path / 'reports'}", *more])
        (folder,) = (tmp_path / "reports").iterdir()
        return code, results_file.read(folder), folder

    return run


def test_a_run_writes_what_a_pytest_run_writes(judge, backend, capsys):
    code, found, folder = judge({}, {}, more=["--tolerance=-4", "--seed=ab", "--fail-under", "AS=1.5"])
    assert code == 0
    assert {"report.html", "results.json", "results.md"} <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob("journal*"))
    assert (found.names, found.tasks, len(found.records)) == (["passes"], ["a"], 2)
    assert found.environment == {"sandbox": "fake"}
    assert (found.noise["width"], found.noise["sessions"]) == (0.02, 5)
    assert found.settings["tolerance"] == -4
    assert "gate passed: AS of passes" in capsys.readouterr().out
    assert backend.closed
    assert backend.given[0][0] == "local"


def test_the_exit_code_says_what_failed(judge, tmp_path, capsys):
    for told, more, code in [
        (({}, {"status": "crash"}), [], 1),
        (({}, {}), ["--fail-under=AS=5"], 1),
        (({}, {"status": "harness_fail"}), [], HARNESS_FAILED),
        (({"status": "crash"}, {"status": "harness_fail"}), [], 1),
    ]:
        assert judge(*told, more=more)[0] == code
        shutil.rmtree(tmp_path / "reports")


def test_an_interrupted_run_keeps_its_journal(judge):
    code, found, folder = judge({}, {"interrupt": True})
    assert (code, found.interrupted, len(found.records)) == (2, True, 1)
    assert found.count("passes", "a") == 2
    (journal,) = folder.glob("journal*.jsonl")
    assert json.loads(journal.read_text().splitlines()[0].partition(" ")[2])["header"]["candidates"]


def test_a_task_that_is_at_fault_loses_nothing_that_was_judged(judge, capsys):
    code, found, folder = judge({}, {"broken": True})
    assert (code, found.interrupted, len(found.records)) == (1, True, 1)
    assert list(folder.glob("journal*.jsonl"))
    assert "passbench: error: a fault of the task" in capsys.readouterr().err


def test_a_run_of_a_task_by_its_id_is_verified_alone(judge, tmp_path, capsys, monkeypatch):
    judge({})
    shutil.rmtree(tmp_path / "reports")
    report_dir, passes = tmp_path / "ids", tmp_path / "passes"
    monkeypatch.chdir(tmp_path)
    for words, tasks in (
        (["silu-mul-e747"], ["silu-mul-e747"]),
        (["silu-mul-e747", str(tmp_path / "a.task.yaml")], ["silu-mul-e747", "a"]),
    ):
        assert main(["run", str(passes), *(f"--tasks={word}" for word in words), f"--report-dir={report_dir}"]) == 0
        (folder,) = report_dir.iterdir()
        run = results_file.read(folder)
        assert run.tasks == tasks
        assert all(Path(path).exists() for path in run.settings["tasks"])
        assert not list(selection_problems(run, refs_of(run, None)))
        shutil.rmtree(report_dir)


def test_a_backend_is_closed_if_there_is_no_folder_for_the_run(judge, tmp_path, backend, monkeypatch, capsys):
    def no_folder(*_given):
        raise UserError("has a thousand runs of this second")

    monkeypatch.setattr(run_command, "fresh_folder", no_folder)
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}))
    command = ["run", str(tmp_path / "passes"), "--tasks", str(tmp_path / "a.task.yaml"), f"--report-dir={tmp_path}"]
    assert main(command) == 1
    assert "a thousand runs" in capsys.readouterr().err
    assert backend.closed


def test_a_reference_is_not_sent_to_a_cluster(judge, tmp_path, capsys):
    command = ["run", str(tmp_path / "passes"), "--ray", f"--against={tmp_path / 'passes'}"]
    assert main(command) == 1
    assert "--against: a reference is not sent to a cluster" in capsys.readouterr().err


def test_ray_is_asked_for_by_its_option(judge, backend):
    judge({}, more=["--ray"])
    assert [given[0] for given in backend.given] == ["ray"]
    assert backend.given[0][3] is None


def test_mistakes_are_one_line(tmp_path, capsys, monkeypatch):
    assert main(["run", str(tmp_path / "none")]) == 1
    assert capsys.readouterr().err.startswith("passbench: error: ")
    with pytest.raises(SystemExit):
        main(["run", str(tmp_path), "--tolerance=3"])
    assert "'3' is not an integer from -10 to 0" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UserError, match=r"Ray is not installed .pip install 'pytest-passbench\[ray\]'"):
        evaluator.make_backend("ray", None, False, None)
