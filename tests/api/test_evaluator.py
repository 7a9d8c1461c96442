"""The evaluator's interface: what calls take and return. A backend returns the results that task files state."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import pytest_passbench
from pytest_passbench.api import backend as backends
from pytest_passbench.api.backend import MachineReport
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import Record
from pytest_passbench.core.settings import Settings
from support import made_records
from support.paths import ROOT
from support.plugin_runs import PASS, task_text

MANIFEST = "sorted_output_pass_rule_names.json"


class Backend:
    """A backend that returns what a subgraph's ``meta`` states. It notes calls, and if two were judged at once."""

    def __init__(self):
        self.calls, self.stops, self.closed, self.busy, self.together = [], 0, False, 0, False
        self.seen = []

    def judge(self, call):
        self.busy += 1
        self.together |= self.busy > 1
        self.calls.append(call)
        try:
            for task in call.tasks:
                for candidate in call.candidates:
                    self.seen.append({path.name: path.read_text() for path in candidate.path.glob("*")})
                    for subgraph in task.subgraphs:
                        yield self.record(task, subgraph, candidate)
            yield MachineReport("", {"sandbox": "fake"}, {"sessions": 0})
        except BaseException:
            self.stops += 1
            raise
        finally:
            self.busy -= 1

    @staticmethod
    def record(task, subgraph, candidate):
        if subgraph.meta.get("interrupt"):
            raise KeyboardInterrupt
        time.sleep(subgraph.meta.get("sleep", 0))
        return made_records.record_of(task.id, subgraph.id, candidate=candidate.name)

    def close(self):
        self.closed = True


@pytest.fixture
def folder(tmp_path):
    for name in ("passes", "others"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "fuse.py").write_text(PASS)
        (tmp_path / name / MANIFEST).write_text('["fuse"]')
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.task.yaml").write_text(task_text("a", {}, {"sleep": 0.002}))
    (tmp_path / "own" / "b.task.yaml").write_text(task_text("b", {"interrupt": True}))
    return tmp_path


@pytest.fixture
def backend():
    return Backend()


@pytest.fixture
def evaluator(folder, backend):
    with pytest_passbench.Evaluator(folder / "own" / "a.task.yaml", backend=backend, tolerance=-4) as found:
        yield found


def test_a_call_is_a_run_with_a_secret_of_its_own(evaluator, backend, folder):
    seen = []
    first = evaluator.evaluate(folder / "passes", on_record=seen.append)
    second = evaluator.evaluate(str(folder / "passes"))
    assert first.records == seen
    assert (first.names, first.tasks, first.environment) == (["passes"], ["a"], {"sandbox": "fake"})
    assert first.settings["tolerance"] == -4
    assert first.score("correct") == 1.0
    assert first.seed["revealed"] != second.seed["revealed"]
    assert [call.seed.hex() for call in backend.calls] == [first.seed["revealed"], second.seed["revealed"]]


def test_tasks_are_named_by_id_file_folder_suite_or_several_of_these(evaluator, backend, folder, monkeypatch):
    for words, ids in [
        ("silu-mul-e747", ["silu-mul-e747"]),
        (["silu-mul-e747", folder / "own" / "a.task.yaml", "silu-mul-e747"], ["silu-mul-e747", "a"]),
        (folder / "own", ["a", "b"]),
    ]:
        backend.calls.clear()
        backend.record = lambda task, subgraph, candidate: Record(task.id, subgraph.id, candidate.name)
        assert evaluator.evaluate(folder / "passes", words).tasks == ids
    suite = evaluator.evaluate(folder / "passes", "train").tasks
    assert len(suite) > 10
    monkeypatch.chdir(folder)
    with pytest.raises(UserError, match=r"no task is called 'silu-mul-e774' .did you mean silu-mul-e747"):
        evaluator.evaluate(folder / "passes", "silu-mul-e774")
    with pytest.raises(UserError, match=r"Evaluator: no task is named .give the call"):
        pytest_passbench.Evaluator(backend=backend).evaluate(folder / "passes")
    assert backend.stops == 0


def test_a_task_named_by_its_id_and_by_its_file_is_one(evaluator, backend, folder, monkeypatch):
    backend.record = lambda task, subgraph, candidate: Record(task.id, subgraph.id, candidate.name)
    monkeypatch.chdir(ROOT)
    words = ["silu-mul-e747", "tasks/text/silu-mul-e747.task.yaml"]
    assert evaluator.evaluate(folder / "passes", words).tasks == ["silu-mul-e747"]


def test_a_candidate_may_be_text(evaluator, backend):
    answer = {"fuse.py": PASS, "helper.py": "x = 1\n", MANIFEST: '["fuse"]'}
    run = evaluator.evaluate(answer)
    assert (run.names, run.score("correct"), backend.seen) == (["answer"], 1.0, [answer])
    evaluator.evaluate({"b.py": PASS, "a.py": PASS, "notes.py": "x = 1\n"})
    assert json.loads(backend.seen[1][MANIFEST]) == ["b", "a"]  # as they came


@pytest.mark.parametrize(("answer", "said"), [
    ({}, "the candidate directory is empty"),
    ({"notes.txt": "x = 1"}, f"no {MANIFEST} here"),
    ({"a.py": "x = 1"}, "a.py:1: defines no pattern and no replacement_args and no replacement_func"),
    ({"a.py": "x = 1", "b.py": PASS.replace("ment_func", "mnt_func")}, "b.py:1: defines no replacement_func"),
    ({"a.py": "x = 1", "b.py": "def pattern(x:\n"}, "b.py:1: syntax error: "),
    ({MANIFEST: '["a"]'}, "names 'a', but there is no a.py beside it (add the file, or take the name out)"),
    ({MANIFEST: "["}, "not JSON"),
    ({"../a.py": PASS}, "'../a.py' is no path of a file in a folder"),
    ({"/tmp/a.py": PASS}, "'/tmp/a.py' is no path of a file in a folder"),
    ({"a\n.py": PASS}, "is no path of a file in a folder"),
    ({"a.py": PASS, "a.py/b.py": PASS}, "cannot be written"),
    ({"a" * 300 + ".py": PASS}, "cannot be written"),
    ({"a.py": PASS + "# \ud800"}, "cannot be written: it has an unpaired surrogate, which UTF-8 cannot write"),
])  # fmt: skip
def test_a_text_that_is_no_candidate_fails_and_stops_nobody(evaluator, backend, folder, answer, said):
    broken, right = evaluator.evaluate_many([answer, folder / "passes"])
    assert [record.arm.status for record in broken.records] == ["compile_fail"] * 2
    assert said in broken.records[0].arm.message
    assert said.replace("/tmp/", "") in broken.feedback()
    assert str(folder) not in broken.feedback()
    assert broken.reward() < right.reward()
    assert right.score("correct") == 1.0


def test_a_folder_that_is_no_candidate_is_the_callers_mistake(evaluator, backend, folder):
    (folder / "empty").mkdir()
    with pytest.raises(UserError, match="the candidate directory is empty"):
        evaluator.evaluate(folder / "empty")
    with pytest.raises(TypeError, match="a candidate is a folder, or a mapping of file names to texts, not int"):
        evaluator.evaluate(3)
    assert (backend.calls, backend.stops) == ([], 0)


def test_many_candidates_are_one_call_with_an_outcome_each(evaluator, backend, folder):
    texts = [{"fuse.py": PASS}, {"fuse.py": PASS + "# other\n"}]
    runs = evaluator.evaluate_many([texts[0], folder / "passes", texts[1], folder / "others"])
    assert [run.names for run in runs] == [["answer-1"], ["passes"], ["answer-2"], ["others"]]
    assert [len(run.records) for run in runs] == [2] * 4
    assert all(run.reward() == runs[0].reward() for run in runs)
    assert len(backend.calls) == 1
    assert evaluator.evaluate_many([]) == []
    with pytest.raises(UserError, match="is called passes, and so is"):
        evaluator.evaluate_many([folder / "passes", folder / "passes"])


def test_calls_of_many_threads_and_coroutines_take_turns(evaluator, backend, folder):
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda _: evaluator.evaluate(folder / "passes"), range(16)))

    async def several():
        return await asyncio.gather(*(evaluator.evaluate_async(folder / "passes") for _ in range(8)))

    runs += asyncio.run(several())
    assert not backend.together
    assert [run.score("correct") for run in runs] == [1.0] * 24
    assert len({run.seed["revealed"] for run in runs}) == 24


def test_an_interrupted_call_leaves_the_evaluator_usable(evaluator, backend, folder):
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(folder / "passes", folder / "own" / "b.task.yaml")

    def fails(_record):
        raise RuntimeError("the caller's")

    with pytest.raises(RuntimeError, match="the caller's"):
        evaluator.evaluate(folder / "passes", on_record=fails)
    assert backend.stops == 2
    assert evaluator.evaluate(folder / "passes").score("correct") == 1.0


def test_a_closed_evaluator_and_that_of_another_process_say_so(evaluator, backend, folder):
    pid = os.fork()
    if pid == 0:
        try:
            evaluator.evaluate(folder / "passes")
        except UserError as error:
            os._exit(0 if "belongs to another process" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    evaluator.close()
    evaluator.close()
    assert backend.closed
    with pytest.raises(UserError, match="the evaluator is closed"):
        evaluator.evaluate(folder / "passes")


def test_closing_waits_for_the_call_of_another_thread(folder, backend):
    evaluator = pytest_passbench.Evaluator(folder / "own" / "a.task.yaml", backend=backend)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(evaluator.evaluate, folder / "passes", on_record=lambda _record: begun.set())
        begun.wait()
        evaluator.close()
        assert call.result().score("correct") == 1.0


def test_settings_are_checked_as_on_the_command_line(backend):
    fake = {"backend": backend}
    for given, said in [
        ({"speed": 1}, "Evaluator: unknown setting 'speed'"),
        ({"trusted": True}, "Evaluator: unknown setting 'trusted'"),
        ({"seed": "1"}, "Evaluator: unknown setting 'seed'"),
        ({"against": "passes"}, "Evaluator: unknown setting 'against'"),
        ({"only_matching": True}, "Evaluator: unknown setting 'only_matching'"),
        ({"suite": "lite"}, "Evaluator: unknown setting 'suite'"),
        ({"task_ids": ["a"]}, "Evaluator: unknown setting 'task_ids'"),
        ({"tolerance": 3}, "Evaluator, tolerance: '3' is not an integer from -10 to 0"),
        ({"address": "auto", "backend": "local"}, "Evaluator, address: only Ray has an address"),
    ]:
        with pytest.raises(UserError, match=said):
            pytest_passbench.Evaluator(**{**fake, **given})
    with pytest.raises(UserError, match="unknown backend 'cloud'"):
        pytest_passbench.Evaluator(backend="cloud")


@pytest.mark.parametrize("thorough", [False, True])
def test_a_thorough_judge_measures_again_what_noise_kept_open(monkeypatch, thorough):
    class Lasting:
        repeats, expected = None, 0
        touches = environment = noise = judge = close = begin = start = lambda *_: None

    monkeypatch.setattr(backends, "make_judge", lambda *_: Lasting())
    assert backends.start_judge(Settings(), thorough).repeats is thorough


def test_importing_the_package_imports_neither_torch_nor_the_engine():
    import subprocess
    import sys

    said = (
        "import sys, pytest_passbench; print({'torch', 'pytest_passbench.api'} & set(sys.modules));"
        "pytest_passbench.Evaluator; print('torch' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["set()", "False"]
