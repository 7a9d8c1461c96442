"""The suite as a task of Inspect AI, with scripted models in the place of real ones. Nothing uses a network."""

from __future__ import annotations

import socket

import pytest

from pytest_passbench.commands.main import main
from support.plugin_runs import PASS, task_text
from support.told_backend import ToldBackend

pytest.importorskip("inspect_ai", reason="the extra `agents` is not installed")

from inspect_ai.log import list_eval_logs, read_eval_log
from inspect_ai.model import ChatMessageAssistant, ModelAPI, ModelOutput, ModelUsage, modelapi

# Inspect's own: its use of tenacity, and streams that it leaves to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'initial' parameter is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed <MemoryObject:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCRIPTS = {
    "honest": [("write_file", {"path": "a.py", "text": f"{PASS}# WRONG"}), ("judge", {}),
               ("write_file", {"path": "a.py", "text": PASS}), ("judge", {}), ("submit", {"answer": "done"})],
    "cheating": [("write_file", {"path": "a.py", "text": f"{PASS}# CHEATS"}), ("judge", {}),
                 ("submit", {"answer": "x"})],
    "malformed": [("no_such_tool", {"x": 1}), ("write_file", {"nme": "a.py"}), None, ("submit", {"answer": "x"})],
    "endless": [("judge", {})],
    "unlucky": [("write_file", {"path": "a.py", "text": f"{PASS}# FAULT"}), ("judge", {}),
                ("submit", {"answer": "x"})],
}  # fmt: skip


class Scripted(ModelAPI):
    """A model that makes the calls of a script, in order, and the last one for good."""

    async def generate(self, input, tools, tool_choice, config):
        script = SCRIPTS[self.model_name]
        turn = sum(isinstance(message, ChatMessageAssistant) for message in input)
        call = script[min(turn, len(script) - 1)]
        if call is None:
            output = ModelOutput.from_content(self.model_name, "I give up")
        else:
            output = ModelOutput.for_tool_call(self.model_name, *call)
        output.usage = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15)
        return output

    async def count_text_tokens(self, text):
        return len(text)


@modelapi(name="scripted")
def scripted():
    return Scripted


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(_self, address):
        raise AssertionError(f"a test asked for the network: {address}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def backend(monkeypatch):
    """A judge by words in a candidate's text, in the place of the process's own."""
    import pytest_passbench
    from pytest_passbench.agents import SharedJudge, answer_journal, environment, shared_judge

    backend, judges = ToldBackend(), []

    def process_judge():
        if not judges or judges[-1].closed:
            judges.append(SharedJudge(pytest_passbench.Evaluator(backend=backend)))
        return judges[-1]

    for module in (answer_journal, environment, shared_judge):
        monkeypatch.setattr(module, "process_judge", process_judge)
    return backend


@pytest.fixture
def evaluate(backend, tmp_path, capsys):
    """A function that runs the command on two tasks. It returns the exit code, the log and what was printed."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.task.yaml").write_text(task_text(name, {}, {}))

    def run(model, *options, tasks=("a", "b")):
        files = [f"--tasks={tmp_path / f'{name}.task.yaml'}" for name in tasks]
        code = main(["agent", f"--model=scripted/{model}", *files, f"--out={tmp_path / 'logs'}", *options])
        logs = list_eval_logs(str(tmp_path / "logs"))
        return code, read_eval_log(logs[0]) if logs else None, capsys.readouterr()

    return run


def values(log):
    return [sample.scores["best_attempt"].value for sample in log.samples]


def test_the_best_judged_attempt_counts_and_is_judged_once(evaluate, backend):
    code, log, output = evaluate("honest")
    assert code == 0
    assert log.status == "success"
    assert backend.calls == 4
    assert not backend.together
    for value in values(log):
        assert value["AS"] == pytest.approx(2.0)
        assert value["correct"] == value["correct_fp64"] == 1
        assert (value["attempts"], value["turns"], value["integrity"]) == (2, 5, 0)
    sample = log.samples[0]
    assert "right and fast: reward" in sample.scores["best_attempt"].explanation
    assert "attempts: wrong, right and fast" in sample.scores["best_attempt"].explanation
    assert sample.scores["best_attempt"].metadata["speed"][0] == pytest.approx(2.0)
    assert "geometric_mean" in output.out
    assert "2 samples, 150 tokens" in output.out


def test_a_cheating_model_has_zero_and_the_log_says_why(evaluate):
    code, log, _ = evaluate("cheating")
    assert code == 0
    assert all((value["AS"], value["reward"], value["integrity"]) == (0, 0, 1) for value in values(log))
    texts = [message.text for message in log.samples[0].messages]
    assert any("computes with torch" in text for text in texts)


def test_a_model_that_misuses_tools_is_told_so_and_scored(evaluate, backend):
    code, log, _ = evaluate("malformed")
    assert code == 0
    assert backend.calls == 0
    assert all((value["AS"], value["attempts"]) == (0.1, 0) for value in values(log))


def test_a_model_that_never_stops_is_ended_after_its_turns_and_scored(evaluate):
    code, log, _ = evaluate("endless", "--turns=3")
    assert code == 0
    assert [sample.limit.type for sample in log.samples] == ["turn"] * 2
    assert all(value["turns"] <= 3 for value in values(log))


def test_what_the_machine_could_not_judge_is_no_attempt(evaluate):
    code, log, _ = evaluate("unlucky")
    assert code == 0
    assert all(value["attempts"] == 0 for value in values(log))
    assert any("not judged, through no fault of yours" in message.text for message in log.samples[0].messages)


def test_the_same_command_judges_nothing_twice(evaluate, backend):
    evaluate("honest")
    code, log, _ = evaluate("honest")
    assert code == 0
    assert backend.calls == 4
    assert len(log.samples) == 2


def test_the_best_of_several_samples_is_reported_beside_their_mean(evaluate):
    code, log, output = evaluate("honest", "--best-of=2", tasks=("a",))
    assert code == 0
    assert {score.reducer for score in log.results.scores} == {"mean", "max"}
    assert "max" in output.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model=scripted/honest", "--tasks=no-such-task"], "no task is called 'no-such-task'"),
        (["--model=nobody/x"], "--model=nobody/x"),
        (["--model=openai-api/nobody/x", "--tasks=add-softplus-acba"], "NOBODY_"),
    ],
)
def test_bad_input_is_one_message(options, message, tmp_path, capsys, backend):
    assert main(["agent", *options, f"--out={tmp_path / 'logs'}"]) == 1
    assert message in capsys.readouterr().err


@pytest.fixture
def export(evaluate, tmp_path, capsys):
    """A function that exports what scripted models did on two tasks. It returns the rows."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `dataset` is not installed")
    for model in ("honest", "cheating"):
        assert evaluate(model)[0] == 0

    def run(*options):
        path = tmp_path / "rows.parquet"
        assert main(["trajectories", str(tmp_path / "logs"), f"--out={path}", *options]) == 0, capsys.readouterr().err
        return parquet.read_table(path).to_pylist()

    return run


def test_conversations_end_with_the_feedback_on_the_best_attempt(export):
    rows = export("--format=sft", "--honest", "--right=fp64")
    assert [row["task"] for row in rows] == ["a", "b"]
    for row in rows:
        messages = row["messages"]
        assert [message["role"] for message in messages[:2]] == ["system", "user"]
        assert (messages[-1]["role"], messages[-1]["name"]) == ("tool", "judge")
        assert f"Reward: {row['reward']:.3f}" in messages[-1]["content"]
        (call,) = messages[-2]["tool_calls"]
        assert call["function"] == {"name": "judge", "arguments": "{}"}


def test_pairs_have_the_better_answer_first(export):
    rows = export("--format=dpo")
    assert len(rows) == 4  # right, wrong and cheating, for each task
    for row in rows:
        assert row["chosen_reward"] > row["rejected_reward"]
        assert row["prompt"][-1]["role"] == "user"
    assert {"# WRONG" in row["rejected"][0]["content"] for row in rows} == {True, False}


def test_prompts_come_once_with_the_rewards_of_the_best(export):
    rows = export("--format=rl")
    assert [row["task"] for row in rows] == ["a", "b"]
    assert all(len(row["rewards"]) == 2 and row["best_reward"] == max(row["rewards"]) for row in rows)


def test_all_that_is_known_is_exported_and_equal_answers_count_once(export):
    rows = export()
    assert len(rows) == 4
    honest = next(row for row in rows if row["model"] == "scripted/honest")
    assert [attempt["stage"] for attempt in honest["attempts"]] == ["wrong", "right and fast"]
    assert honest["attempts"][1]["files"][0] == {"path": "a.py", "text": PASS}
    assert len(export("--best-of=1")) == 2
    assert len(export("--min-reward=0.5")) == 2


def test_an_export_without_logs_or_rows_is_one_message(tmp_path, capsys):
    out = f"--out={tmp_path / 'rows.parquet'}"
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.eval").write_text("nothing")
    for logs, message in (("nowhere", "no such file"), ("empty", "has no log"), ("broken.eval", "is no log")):
        assert main(["trajectories", str(tmp_path / logs), out]) == 1
        assert message in capsys.readouterr().err


def test_the_task_is_registered_under_the_package(tmp_path):
    from importlib.metadata import entry_points

    (point,) = entry_points(group="inspect_ai", name="pytest_passbench")
    assert point.load().passbench
