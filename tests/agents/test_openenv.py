"""The environment as an OpenEnv server, by OpenEnv's own client and its check of a running server."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

import pytest_passbench
from pytest_passbench.agents.shared_judge import SharedJudge
from support.plugin_runs import PASS, task_text
from support.told_backend import ToldBackend

pytest.importorskip("openenv", reason="OpenEnv is not installed: it has its own environment (development.md)")

import uvicorn
from openenv.cli._validation import validate_running_environment
from openenv.core.generic_client import GenericEnvClient

from pytest_passbench.agents.openenv_server import main, make_app


@pytest.fixture
def url(tmp_path):
    """Return the URL of a server of two tasks, which judges by words in the text."""
    for name in "ab":
        (tmp_path / f"{name}.task.yaml").write_text(task_text(name, {}, {}))
    tasks = {name: str(tmp_path / f"{name}.task.yaml") for name in "ab"}
    judge = SharedJudge(pytest_passbench.Evaluator(backend=ToldBackend()))
    with judge, served(make_app(judge, tasks)) as url:
        yield url


@contextmanager
def served(app):
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="warning", ws="websockets-sansio")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def client(url):
    with GenericEnvClient(base_url=url).sync() as client:
        yield client


def call(client, tool, **arguments):
    return client.step({"tool": tool, "arguments": arguments})


def test_an_episode_from_reset_to_reward(client):
    assert "torch.relu(in_0)" in client.reset(task="b").observation["text"]
    assert call(client, "write_file", path="fuse.py", text=PASS).observation["text"] == "wrote fuse.py"
    result = call(client, "judge")
    assert "2 of 2 subgraphs are correct" in result.observation["text"]
    assert (result.reward > 1.0, result.done) == (True, False)
    state = client.state()
    assert (state["task"], state["step_count"], state["attempts"][0]["stage"]) == ("b", 2, "right and fast")


@pytest.mark.parametrize(("text", "least", "most"), [
    (PASS, 1.0, 2.0), (PASS + "# WRONG", 0.15, 0.2), (PASS + "# CHEATS", 0, 0)
])  # fmt: skip
def test_a_golden_answer_has_the_most_and_a_cheat_the_least(client, text, least, most):
    client.reset()
    call(client, "write_file", path="fuse.py", text=text)
    assert least <= call(client, "judge").reward <= most


def test_mistakes_are_one_message(client):
    with pytest.raises(RuntimeError, match="no task 'c' is served"):
        client.reset(task="c")
    for index in (99, -1):
        with pytest.raises(RuntimeError, match=f"no task {index} is served"):
            client.reset(index=index)
    client.reset()
    assert call(client, "judge", seed="1").observation["text"] == "error: the arguments of judge are {}"
    assert call(client, "reward").observation["text"].startswith("error: no tool 'reward': one of write_file, ")
    with pytest.raises(SystemExit, match=r"openenv_server: error: .*nowhere"):
        main(["--tasks", "nowhere"])


def test_openenv_finds_nothing_wrong_with_the_server(url):
    report = validate_running_environment(url)
    assert report["passed"], [item for item in report["criteria"] if not item["passed"]]


def test_sessions_are_apart(url):
    with GenericEnvClient(base_url=url).sync() as one, GenericEnvClient(base_url=url).sync() as other:
        one.reset()
        other.reset()
        call(one, "write_file", path="fuse.py", text=PASS)
        assert "fuse.py" in call(one, "list_files").observation["text"]
        assert "fuse.py" not in call(other, "list_files").observation["text"]
