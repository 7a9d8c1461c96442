"""The environment for models: its tools, what they refuse, its reward, and the queue before the judge."""

from __future__ import annotations

import inspect
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import pytest_passbench
from pytest_passbench.agents import PassEnvironment, SharedJudge, process_judge
from pytest_passbench.agents.answer_files import MAX_CHARACTERS, MAX_FILES
from pytest_passbench.agents.environment import MAX_ATTEMPTS, TOOLS
from pytest_passbench.agents.prompt import EXAMPLE
from pytest_passbench.agents.prompt import prompt as task_prompt
from pytest_passbench.agents.shared_judge import TurnLost
from pytest_passbench.core.errors import UserError
from pytest_passbench.suite import find
from shared.workspace import Workspace, make_cpp_pass
from support.plugin_runs import PASS, task_text
from support.told_backend import ToldBackend, wait_for

TASK = "add-softplus-acba"


@pytest.fixture
def backend():
    return ToldBackend()


@pytest.fixture
def judge(backend):
    with SharedJudge(pytest_passbench.Evaluator(backend=backend)) as judge:
        yield judge


@pytest.fixture
def environment(judge, tmp_path):
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}))
    environment = PassEnvironment(judge)
    environment.reset(str(tmp_path / "a.task.yaml"), split="train", row=3)
    return environment


def test_the_prompt_has_the_graphs_the_rules_an_example_and_the_headroom():
    prompt = PassEnvironment().reset(TASK)
    for part in (
        "torch.nn.functional.softplus(tmp_0)",
        "mamba2-float16-b1n128: in_0 float16 [1, 128, 24]",
        EXAMPLE[:60],
    ):
        assert part in prompt.replace("    ", "") or part in prompt
    assert "The head-room: at most 12 times as fast as eager." in prompt
    task = replace(find.single(TASK).load(), header=replace(find.single(TASK).header, headroom=2345.6))
    assert "at most 2,300 times as fast as eager." in task_prompt(task)
    with pytest.raises(UserError, match="no task is called 'no-such-task'"):
        PassEnvironment().reset("no-such-task")


@pytest.mark.slow
def test_prompts_of_all_tasks_of_a_suite_have_a_bounded_size():
    from pytest_passbench.agents.prompt import prompt
    from pytest_passbench.api.arguments import TaskShelf

    sizes = [len(prompt(task)) for task in TaskShelf().named("full")]
    assert max(sizes) < 24_000


def test_the_tools_are_the_public_methods_and_have_what_trainers_read():
    members = inspect.getmembers(PassEnvironment(), inspect.ismethod)
    tools = {name: method for name, method in members if name[0] != "_" and name not in ("reset", "get_reward")}
    assert set(tools) == set(TOOLS)
    for method in tools.values():
        signature = inspect.signature(method, eval_str=True)
        assert signature.return_annotation is str
        assert all(parameter.annotation is str for parameter in signature.parameters.values())
        text = inspect.getdoc(method)
        assert "\n\nReturns:\n    " in text
        assert all(f"\n    {name}: " in text for name in signature.parameters)


def test_an_episode_keeps_its_attempts_and_gives_the_best_one(environment, backend):
    assert environment.get_reward() == 0.0
    assert environment.write_file("fuse.py", PASS + "# WRONG\n") == "wrote fuse.py"
    said = environment.judge()
    assert "0 of 2 subgraphs are correct" in said
    assert "Reward: 0.200 (wrong)" in said
    environment.write_file("fuse.py", PASS)
    environment.judge()
    best = environment.get_reward()
    environment.write_file("fuse.py", PASS + "# CHEATS\n")
    assert "Reward: 0.000 (integrity)" in environment.judge()
    assert environment.get_reward() == best > 1.0
    assert [attempt.reward.stage for attempt in environment.attempts] == ["wrong", "right and fast", "integrity"]
    attempt = environment.attempts[1]
    assert attempt.files == {"fuse.py": PASS}
    assert attempt.scores["AS"] == pytest.approx(2.0)
    assert attempt.judging_seconds > 0
    environment.reset(TASK)
    assert (environment.attempts, environment.get_reward(), environment.list_files()) == (
        [], 0.0, "there are no files yet"
    )  # fmt: skip


def test_a_fault_of_the_machine_is_no_attempt(environment):
    environment.write_file("fuse.py", PASS + "# FAULT\n")
    assert environment.judge() == ("error: not judged, through no fault of yours: the judge's process was lost twice")
    assert (environment.attempts, environment.unjudged) == ([], 1)
    assert environment.get_reward() is None  # a model must not learn from it
    environment.write_file("fuse.py", PASS + "# WRONG\n")
    environment.judge()
    assert environment.get_reward() == 0.2


@pytest.mark.parametrize(("path", "text", "said"), [
    ("/etc/passwd", "x", "is no path in the answer's folder"),
    ("../a.py", "x", "is no path in the answer's folder"),
    ("a/../../b.py", "x", "is no path in the answer's folder"),
    ("", "x", "is no path in the answer's folder"),
    (".", "x", "is no path in the answer's folder"),
    ("a/" * 9 + "b.py", "x", "is no path in the answer's folder"),
    ("a\0.py", "x", "is no path of a file"),
    ("a\n.py", "x", "is no path of a file"),
    ("a" * 300, "x", "is no path of a file"),
    (None, "x", "is no path of a file"),
    ("a.py", 3, "text is a text, not 3"),
    ("a.py", "\ud800", "has an unpaired surrogate"),
    ("a.py", "x" * (MAX_CHARACTERS + 1), "all files together may have 100,000 characters"),
    ("there.py/a.py", "x", "there.py is a file already"),
])  # fmt: skip
def test_a_bad_file_is_one_message(environment, path, text, said):
    environment.write_file("there.py", "x")
    answer = environment.write_file(path, text)
    assert answer.startswith("error: ")
    assert said in answer
    assert environment.list_files() == "there.py (1 character)"


def test_files_are_limited_in_number_and_read_back(environment):
    for number in range(MAX_FILES):
        assert environment.write_file(f"f{number}.py", "x") == f"wrote f{number}.py"
    assert "there are 32 files already" in environment.write_file("more.py", "x")
    assert environment.write_file("./f0.py", "y") == "wrote f0.py"
    assert environment.read_file("f0.py") == "y"
    assert "there is no file g.py" in environment.read_file("g.py")
    assert "there is no task yet" in PassEnvironment().judge()


def test_attempts_are_limited(environment, backend):
    environment.write_file("fuse.py", PASS)
    for _ in range(MAX_ATTEMPTS):
        environment.judge()
    assert "32 attempts were judged; no more are allowed" in environment.judge()
    assert backend.calls == MAX_ATTEMPTS


def test_environments_take_turns_and_their_waiting_is_told_apart(judge, backend, tmp_path):
    (tmp_path / "a.task.yaml").write_text(task_text("a"))

    def episode(_number):
        environment = PassEnvironment(judge)
        environment.reset(str(tmp_path / "a.task.yaml"))
        environment.write_file("fuse.py", PASS)
        environment.judge()
        return environment.attempts[0]

    backend.gate.clear()
    with ThreadPoolExecutor(4) as pool:
        attempts = pool.map(episode, range(4))
        wait_for(lambda: judge.callers == 4)
        time.sleep(0.5)
        backend.gate.set()
        seconds = sorted((attempt.waiting_seconds, attempt.judging_seconds) for attempt in attempts)
    assert not backend.together
    assert seconds[0][1] >= 0.4  # the first one was judged while the others waited
    assert all(waiting >= 0.4 and waiting > judging for waiting, judging in seconds[1:])


def test_who_is_gone_or_waits_as_the_judge_closes_gets_no_turn(judge, backend, environment, tmp_path):
    environment.write_file("fuse.py", PASS)
    gone, waiting = PassEnvironment(judge, lambda: False), PassEnvironment(judge)
    for other in (gone, waiting):
        other.reset(str(tmp_path / "a.task.yaml"))
        other.write_file("fuse.py", PASS)
    with pytest.raises(TurnLost, match="the caller has gone"):
        gone.judge()
    assert backend.calls == 0
    backend.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        running = pool.submit(environment.judge)
        wait_for(lambda: backend.calls)
        later = pool.submit(waiting.judge)
        wait_for(lambda: judge.callers == 2)
        closing = threading.Thread(target=judge.close)
        closing.start()
        with pytest.raises(TurnLost, match="the judge is closed"):
            later.result(30)
        backend.gate.set()
        with pytest.raises(TurnLost, match="the judge is closed"):
            running.result(30)
        closing.join(30)
    assert (backend.calls, backend.busy) == (1, 0)


@pytest.mark.slow
@pytest.mark.sandbox
def test_an_episode_that_is_really_judged(tmp_path):
    environment = PassEnvironment()
    environment.reset(TASK)
    assert "is empty" in environment.judge()
    assert "add_softplus matches add, softplus" in environment.new_pass()
    assert "1: add_softplus replaces tmp_0, tmp_1" in environment.explain()
    assert "5 of 5 subgraphs are correct" in environment.judge()
    assert environment.get_reward() == environment.attempts[1].reward > 0.5
    environment.write_file("add_softplus.py", "import os\nraise SystemExit(os.getpid())\n")
    assert "add_softplus.py" in environment.explain()
    assert environment.judge().endswith("AS: 0.111.")
    process_judge().close()


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_example_of_the_prompt_is_right(tmp_path):
    source = "def forward(in_0, in_1):\n    return (torch.tanh(in_0) - in_1,)\n"
    dtypes = ("float32", "bfloat16", "float16")
    task = Workspace(tmp_path).task("tanh-sub", source, dtypes=dtypes, ops=("tanh", "sub"))
    with SharedJudge(pytest_passbench.Evaluator(pipeline="direct")) as judge:
        environment = PassEnvironment(judge)
        environment.reset(str(task))
        environment.write_file("tanh_sub.py", EXAMPLE)
        assert "3 of 3 subgraphs are correct" in environment.judge()
        environment.write_file("tanh_sub.py", make_cpp_pass())
        assert "no pass matches" in environment.explain()
