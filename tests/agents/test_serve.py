"""Environments over HTTP: sessions, refusals, clients that are gone, and the command."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

import pytest

import pytest_passbench
from pytest_passbench.agents.http_server import MAX_BODY_BYTES, EnvironmentServer
from pytest_passbench.agents.service import Service
from pytest_passbench.agents.shared_judge import SharedJudge
from pytest_passbench.commands.main import main
from pytest_passbench.judge.arms import processes
from support.paths import ROOT
from support.plugin_runs import PASS, task_text
from support.told_backend import ToldBackend, wait_for

TOKEN = "a-token-of-the-tests"


class Client:
    """A client with a connection of its own."""

    def __init__(self, port: int, token: str = TOKEN) -> None:
        self.connection = HTTPConnection("127.0.0.1", port, timeout=240)
        self.headers = {"Authorization": f"Bearer {token}"}

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, dict]:
        self.connection.request(method, path, body, {**self.headers, **headers})
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def post(self, path: str, **request) -> tuple[int, dict]:
        return self.send("POST", path, json.dumps(request).encode())

    def begin(self, task: str = "a", text: str = PASS) -> str:
        session = self.post("/reset", task=task)[1]["session"]
        self.step(session, "write_file", path="fuse.py", text=text)
        return session

    def step(self, session: str, tool: str, **arguments) -> tuple[int, dict]:
        return self.post("/step", session=session, tool=tool, arguments=arguments)


@pytest.fixture
def backend():
    return ToldBackend()


@pytest.fixture
def server(backend, tmp_path):
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}))
    with SharedJudge(pytest_passbench.Evaluator(backend=backend)) as judge:
        service = Service(judge, {"a": str(tmp_path / "a.task.yaml")}, 6, 2.0)
        with EnvironmentServer(service, TOKEN, "127.0.0.1", 0) as server:
            thread = threading.Thread(target=server.serve_forever, args=(0.02,))
            thread.start()
            yield server
            server.shutdown()
            thread.join()


@pytest.fixture
def connect(server):
    """Return a function that makes a client with a connection of its own, which is closed after the test."""
    clients: list[Client] = []

    def one() -> Client:
        clients.append(Client(server.server_port))
        return clients[-1]

    yield one
    for client in clients:
        client.connection.close()


@pytest.fixture
def client(connect):
    return connect()


def test_a_session_from_reset_to_close(client):
    code, answer = client.post("/reset", task="a")
    assert (code, sorted(answer)) == (200, ["observation", "session"])
    assert "torch.relu(in_0)" in answer["observation"]
    session = answer["session"]
    assert client.step(session, "write_file", path="fuse.py", text=PASS) == (200, {"observation": "wrote fuse.py"})
    assert "error: " in client.step(session, "write_file", path="../fuse.py", text=PASS)[1]["observation"]
    code, answer = client.step(session, "judge")
    assert "2 of 2 subgraphs are correct" in answer["observation"]
    assert answer["reward"] > 1.0
    state = client.send("GET", f"/state?session={session}")[1]
    assert (state["task"], state["files"], state["reward"]) == (
        "a",
        f"fuse.py ({len(PASS)} characters)",
        answer["reward"],
    )
    assert [item["stage"] for item in state["attempts"]] == ["right and fast"]
    health = client.send("GET", "/health")[1]
    assert (health["status"], health["sessions"], health["callers"], health["tasks"]) == ("ok", 1, 0, ["a"])
    assert client.post("/close", session=session) == (200, {"reward": answer["reward"]})
    assert client.step(session, "judge")[0] == 404


@pytest.mark.parametrize("header", [{}, {"Authorization": TOKEN}, {"Authorization": "Bearer x"},
                                    {"Authorization": f"Bearer {TOKEN} "[:-2]}])  # fmt: skip
@pytest.mark.parametrize(("method", "path"), [("GET", "/health"), ("POST", "/reset"), ("GET", "/nowhere")])
def test_without_the_token_nothing_is_served(client, header, method, path):
    client.headers = header
    code, answer = client.send(method, path, b'{"task": "a"}')
    assert (code, list(answer)) == (401, ["error"])


@pytest.mark.parametrize(("method", "path", "body", "code", "said"), [
    ("POST", "/reset", b"{", 400, "the request "),
    ("POST", "/reset", b"[" * 500, 400, "the request "),
    ("POST", "/reset", b"\xff", 400, "the request "),
    ("POST", "/reset", b"[]", 400, "no JSON object"),
    ("POST", "/reset", b"{}", 400, "no text 'task'"),
    ("POST", "/reset", b'{"task": "/etc/passwd"}', 404, "no task '/etc/passwd' is served"),
    ("POST", "/step", b'{"session": "x", "tool": "judge"}', 404, "no such session"),
    ("POST", "/close", b'{"session": 3}', 400, "no text 'session'"),
    ("GET", "/state", None, 404, "no such session"),
    ("GET", "/step", None, 404, "nothing is at GET '/step'"),
    ("POST", "/nowhere", b"{}", 404, "nothing is at POST '/nowhere'"),
    ("POST", "/reset", b" " * (MAX_BODY_BYTES + 1), 413, "more than 1048576 bytes"),
    ("POST", "/reset", b" " * (8 * MAX_BODY_BYTES), 413, "more than 1048576 bytes"),
    ("POST", "/nowhere", b" " * (8 * MAX_BODY_BYTES), 404, "nothing is at POST '/nowhere'"),
])  # fmt: skip
def test_a_bad_request_is_one_message_and_the_next_one_is_served(client, method, path, body, code, said):
    got, answer = client.send(method, path, body)
    assert (got, list(answer)) == (code, ["error"])
    assert said in answer["error"]
    assert client.send("GET", "/health")[0] == 200


@pytest.mark.parametrize(("tool", "arguments", "code", "said"), [
    ("get_reward", {}, 400, "no tool 'get_reward': one of write_file"),
    ("__init__", {}, 400, "no tool"),
    ("reset", {"task": "a"}, 400, "no tool"),
    ("read_file", {}, 400, "the arguments of read_file are {path}"),
    ("judge", {"seed": 1}, 400, "the arguments of judge are {}"),
    ("judge", [], 400, "the arguments of judge are {}"),
])  # fmt: skip
def test_a_step_that_is_none_is_one_message(client, tool, arguments, code, said):
    session = client.begin()
    got, answer = client.post("/step", session=session, tool=tool, arguments=arguments)
    assert got == code
    assert said in answer["error"]
    assert client.step(session, "list_files")[0] == 200


def test_many_clients_share_one_judge(connect, backend):
    def episode(number):
        client = connect()
        session = client.begin(text=PASS + ("# WRONG\n" if number % 2 else ""))
        return client.step(session, "judge")[1]["reward"]

    with ThreadPoolExecutor(6) as pool:
        rewards = list(pool.map(episode, range(6)))
    assert rewards == [rewards[0], 0.2] * 3
    assert (backend.calls, backend.together) == (6, False)


def test_a_full_server_ends_the_sessions_that_are_idle(client):
    sessions = [client.begin() for _ in range(6)]
    code, answer = client.post("/reset", task="a")
    assert (code, answer["error"]) == (503, "there are 6 sessions, the maximum: close one")
    time.sleep(1.2)
    client.step(sessions[0], "list_files")
    time.sleep(1.2)
    client.begin()
    assert [client.step(session, "list_files")[0] for session in sessions] == [200, *[404] * 5]


def test_idle_sessions_stay_while_there_is_room(backend, tmp_path):
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}))
    with SharedJudge(pytest_passbench.Evaluator(backend=backend)) as judge:
        service = Service(judge, {"a": str(tmp_path / "a.task.yaml")}, 2, 0.0)
        counts = []
        for _ in range(3):
            service.reset({"task": "a"})
            counts.append(service.health()["sessions"])
    assert counts == [1, 2, 1]


def test_a_client_that_is_gone_costs_no_judging_and_a_second_step_is_refused(connect, client, backend, capfd):
    session, other = client.begin(), client.begin()
    backend.gate.clear()
    first = connect()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(first.step, session, "judge")
        wait_for(lambda: backend.calls == 1)
        assert client.step(session, "list_files") == (409, {"error": "the session is at another step"})
        gone = connect()
        gone.connection.request("POST", "/step", json.dumps({"session": other, "tool": "judge"}), gone.headers)
        wait_for(lambda: client.send("GET", "/health")[1]["callers"] == 2)
        gone.connection.close()
        wait_for(lambda: client.send("GET", "/health")[1]["callers"] == 1)
        backend.gate.set()
        assert running.result()[1]["reward"] > 1.0
    assert backend.calls == 1
    assert client.step(other, "judge")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_target_that_is_no_url_is_one_message(server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as other:
        other.sendall(f"GET http://[::1/health HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        assert other.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("sent", [b"GET /health HTTP/1.1\r\n" + b"X: a\r\n" * 4000, b"G"])
def test_a_head_that_is_too_long_or_too_slow_costs_the_connection(server, monkeypatch, sent):
    monkeypatch.setattr("pytest_passbench.agents.http_server._Handler._head_seconds", 0.5)
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=30) as other:
        other.sendall(sent)
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < begin + 20 and not select.select([other], [], [], 0.1)[0]:
                other.sendall(b"E")
            assert other.recv(1) == b""
    assert time.monotonic() < begin + 20


def test_without_the_token_a_connection_ends_with_the_answer(client):
    client.headers = {}
    assert client.send("GET", "/health")[0] == 401
    assert client.connection.sock is None


def test_a_client_that_talks_no_http_ends_nobody(server, client, capfd):
    for data in (b"\x00" * 100, b"GET / HTTP/9.9\r\n\r\n", b"POST /step HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", server.server_port)) as other:
            other.sendall(data)
    assert client.send("GET", "/health")[0] == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_lost_judge_is_no_attempt_and_the_next_step_is_judged(client):
    session = client.begin(text=PASS + "# FAULT\n")
    answer = client.step(session, "judge")[1]
    assert "not judged, through no fault of yours" in answer["observation"]
    assert "reward" not in answer
    assert client.send("GET", f"/state?session={session}")[1]["reward"] is None
    client.step(session, "write_file", path="fuse.py", text=PASS)
    assert client.step(session, "judge")[1]["reward"] > 1.0


@pytest.mark.parametrize(("text", "said"), [
    (None, "token: no such file"),
    ("short\n", "token: is no token: 16 visible characters or more"),
    ("two words and more\n", "token: is no token"),
])  # fmt: skip
def test_a_server_needs_a_token(tmp_path, capsys, text, said):
    if text is not None:
        (tmp_path / "token").write_text(text)
    assert main(["serve", "--port", "0", "--token-file", str(tmp_path / "token")]) == 1
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_message(tmp_path, capsys):
    (tmp_path / "token").write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--port", port, "--token-file", str(tmp_path / "token"), "--tasks", "train"]) == 1
    assert f"127.0.0.1:{port}: cannot listen: Address already in use" in capsys.readouterr().err


def test_it_listens_on_the_host_that_is_named(tmp_path, capsys, monkeypatch):
    (tmp_path / "token").write_text(TOKEN)
    hosts = []

    def probe(server):
        with socket.socket() as connection:  # on 127.0.0.1 another test may use the same port
            connection.connect(("127.0.0.2", server.server_port))
        hosts.append(server.server_address[0])
        raise KeyboardInterrupt

    monkeypatch.setattr(EnvironmentServer, "serve_forever", probe)
    command = ["serve", "--port=0", f"--token-file={tmp_path / 'token'}", "--tasks=add-softplus-acba"]
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        assert main([*command, "--host=127.0.0.2"]) == 0
    finally:
        for number, handler in handlers:
            signal.signal(number, handler)
    assert hosts == ["127.0.0.2"]
    assert "serving 1 task on http://127.0.0.2:" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize("options", [[], ["--ray"]], ids=["here", "on a cluster"])
def test_the_command_judges_replaces_a_lost_judge_and_ends_with_ctrl_c(tmp_path, options):
    if options:
        pytest.importorskip("ray")
    (tmp_path / "token").write_text(TOKEN)
    command = [sys.executable, "-c", "import sys; from pytest_passbench.commands.main import main; sys.exit(main())"]
    command += ["serve", "--port=0", f"--token-file={tmp_path / 'token'}", "--tasks=add-softplus-acba", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert line.startswith("serving 1 task on http://127.0.0.1:"), line
    client = Client(int(line.rpartition(":")[2]))
    try:
        session = client.post("/reset", task="add-softplus-acba")[1]["session"]
        assert "wrote add_softplus.py" in client.step(session, "new_pass")[1]["observation"]
        first = client.step(session, "judge")[1]
        assert first["reward"] > 0.5, first
        lost = _judges(process.pid)
        os.kill(*lost, signal.SIGKILL)
        assert "5 of 5 subgraphs are correct" in client.step(session, "judge")[1]["observation"]
        judges = _judges(process.pid)
        assert set(judges).isdisjoint(lost)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert len(err.splitlines()) == len(options)
        assert all(re.match("ray: a judge on .* was lost; another one starts", line) for line in err.splitlines())
        assert "ending" in out
        assert not [pid for pid in judges if Path(f"/proc/{pid}").exists()]
    finally:
        client.connection.close()
        process.kill()
        process.communicate()


def _judges(pid: int) -> list[int]:
    below = processes.descendants(pid)
    lines = {item: Path(f"/proc/{item}/cmdline").read_bytes() for item in below}
    return [item for item, line in lines.items() if b"api.backend" in line or line.startswith(b"ray::Remote")]
