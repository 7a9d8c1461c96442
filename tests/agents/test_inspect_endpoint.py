"""Models behind endpoints that speak OpenAI's protocol: what they answer, and how they fail. All on the loopback."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pytest_passbench.commands.main import main
from support.plugin_runs import PASS, task_text

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCRIPT = [("write_file", json.dumps({"path": "a.py", "text": PASS})), ("judge", "{}"), ("submit", '{"answer": "x"}')]


class Endpoint(ThreadingHTTPServer):
    """A server with a scripted model. ``first`` are the answers to the first requests: a status and a body each.

    ``of_b`` is the answer to every request whose prompt has task b. If it is None, the script answers.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.first, self.script, self.of_b, self.requests = [], SCRIPT, None, 0
        self.lock = threading.Lock()

    def answer(self, request):
        with self.lock:
            self.requests += 1
            if self.first:
                return self.first.pop(0)
        if self.of_b is not None and "The task b:" in json.dumps(request["messages"]):
            return self.of_b
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        return 200, json.dumps(completion(self.script[min(turn, len(self.script) - 1)]))


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        code, text = self.server.answer(request)
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args):
        pass


def completion(call):
    """Return a completion that calls a tool, or that has only a text."""
    if isinstance(call, str):
        message = {"role": "assistant", "content": call}
    else:
        name, arguments = call
        function = {"name": name, "arguments": arguments}
        message = {"role": "assistant", "content": None,
                   "tool_calls": [{"id": "c1", "type": "function", "function": function}]}  # fmt: skip
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


@pytest.fixture
def endpoint():
    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def evaluate(backend, endpoint, monkeypatch, tmp_path, capsys):
    """Return a function that evaluates the endpoint's model on two tasks: it returns exit code, log and output."""
    logs = pytest.importorskip("inspect_ai.log", reason="the extra `agents` is not installed")
    monkeypatch.setenv("HERE_API_KEY", "secret")
    monkeypatch.setenv("HERE_BASE_URL", f"http://127.0.0.1:{endpoint.server_port}/v1")
    for name in ("a", "b"):
        (tmp_path / f"{name}.task.yaml").write_text(task_text(name, {}, {}))

    def run(*options):
        files = [f"--tasks={tmp_path / f'{name}.task.yaml'}" for name in ("a", "b")]
        out = tmp_path / "logs"
        code = main(["agent", "--model=openai-api/here/m", *files, f"--out={out}", "--turns=4", *options])
        return code, logs.read_eval_log(logs.list_eval_logs(str(out))[0]), capsys.readouterr()

    return run


def values(log, name="AS"):
    return {sample.id: sample.scores["best_attempt"].value[name] for sample in log.samples if sample.scores}


@pytest.mark.slow
def test_an_endpoints_model_is_evaluated(evaluate, backend):
    code, log, output = evaluate()
    assert code == 0
    assert values(log) == pytest.approx({"a": 2.0, "b": 2.0})
    assert backend.calls == 2
    assert "2 samples, 90 tokens" in output.out


@pytest.mark.parametrize(
    ("answer", "message"),
    [((200, "<html>welcome</html>"), ""), ((200, '{"choices": []}'), ""), ((400, '{"error": "no"}'), "400")],
    ids=["no JSON", "no choices", "refused"],
)
def test_nonsense_costs_the_sample_that_it_answers_and_the_others_go_on(evaluate, endpoint, answer, message):
    endpoint.of_b = answer
    code, log, output = evaluate("--retries=0")
    assert code == 1
    assert values(log) == pytest.approx({"a": 2.0})
    (line,) = [line for line in output.out.splitlines() if "no score" in line]
    assert line.startswith("b: no score: ")
    assert re.search(r"^AS +mean +mean +2\.000$", output.out, re.M), output.out  # the mean of those that have a score
    assert message in line


def test_an_endpoint_that_comes_back_is_asked_for_what_is_lacking_alone(evaluate, endpoint, backend):
    endpoint.of_b = (400, '{"error": "no credit"}')
    assert evaluate("--retries=0")[0] == 1
    endpoint.of_b, endpoint.requests = None, 0
    code, log, _ = evaluate("--retries=0")
    assert code == 0
    assert values(log) == pytest.approx({"a": 2.0, "b": 2.0})
    assert endpoint.requests == 3
    assert backend.calls == 2


@pytest.mark.slow
def test_an_endpoint_that_is_down_is_one_message_a_sample(evaluate, endpoint, monkeypatch):
    monkeypatch.setenv("HERE_BASE_URL", "http://127.0.0.1:9/v1")
    code, log, output = evaluate("--retries=0")
    assert code == 1
    assert not values(log)
    lines = [line for line in output.out.splitlines() if "no score" in line]
    assert [line[:2] for line in lines] == ["a:", "b:"]
    assert all("onnection" in line for line in lines)
    assert "no results: nothing was judged" in output.out


def test_malformed_arguments_are_told_to_the_model(evaluate, endpoint):
    endpoint.script = [("write_file", "{not json"), *SCRIPT]
    code, log, _ = evaluate()
    assert code == 0
    assert values(log) == pytest.approx({"a": 2.0, "b": 2.0})
    assert all(any(message.role == "tool" and message.error for message in sample.messages) for sample in log.samples)


def test_a_model_that_never_calls_a_tool_is_scored(evaluate, endpoint, backend):
    endpoint.script = ["I would rather not."]
    code, log, _ = evaluate()
    assert code == 0
    assert values(log) == {"a": 0.1, "b": 0.1}
    assert values(log, "turns") == {"a": 4, "b": 4}
    assert backend.calls == 0


@pytest.mark.slow
def test_a_busy_or_failing_endpoint_is_asked_again(evaluate, endpoint):
    endpoint.first = [(429, '{"error": "slow down"}'), (500, "oops")]
    code, log, _ = evaluate("--retries=2")
    assert code == 0
    assert values(log) == pytest.approx({"a": 2.0, "b": 2.0})
