"""The suite as a task of Inspect AI, with scripted models in the place of real ones. Nothing uses a network."""

from __future__ import annotations

import csv
import itertools
import json
import shutil

import pytest

from pytest_passbench.agents.answer_files import ANSWER_FORM, answer_files
from pytest_passbench.agents.environment import TOOLS, PassEnvironment
from pytest_passbench.commands.main import main
from pytest_passbench.suite.published import write_sample
from pytest_passbench.suite.taskfile import read_task
from support.plugin_runs import PASS, task_text

# Warnings of Inspect itself: of its use of tenacity, and of streams that it leaves to the garbage collector.
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
    "broken": [("write_file", {"path": "a.py", "text": PASS}), ("judge", {}), RuntimeError("out of memory")],
}  # fmt: skip


async def next_call(name, turn, messages):
    """Return the calls of a script in order, then the last one again and again."""
    if name == "slow":
        await pytest.importorskip("anyio").sleep(0.3)
    if name in ("picky", "careless"):  # honest about task a alone
        prompt = next(message.text for message in messages if message.role == "user")
        name = "honest" if "The task a:" in prompt else {"picky": None, "careless": "endless"}[name]
    script = SCRIPTS.get(name, [None])
    call = script[min(turn, len(script) - 1)]
    if isinstance(call, Exception):
        raise call
    return call


@pytest.fixture(scope="module", autouse=True)
def logs_of_inspect():
    """Import Inspect's module of logs here, since that takes seconds. Register the provider ``scripted``."""
    logs = pytest.importorskip("inspect_ai.log", reason="the extra `agents` is not installed")
    from shared.scripted_api import register

    register(next_call)
    return logs


@pytest.fixture
def evaluate(backend, tmp_path, capsys, logs_of_inspect):
    """Return a function that runs the command on two tasks, and returns the exit code, the log and the output."""
    for name in ("a", "b"):
        (tmp_path / f"{name}.task.yaml").write_text(task_text(name, {}, {}))

    def run(model, *options, tasks=("a", "b")):
        files = [f"--tasks={tmp_path / f'{name}.task.yaml'}" for name in tasks]
        code = main(["agent", f"--model=scripted/{model}", *files, f"--out={tmp_path / 'logs'}", *options])
        logs = logs_of_inspect.list_eval_logs(str(tmp_path / "logs"))
        return code, logs_of_inspect.read_eval_log(logs[0]) if logs else None, capsys.readouterr()

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


@pytest.mark.slow
def test_a_model_that_never_stops_is_ended_after_its_turns_and_scored(evaluate):
    code, log, _ = evaluate("endless", "--turns=3")
    assert code == 0
    assert [sample.limit.type for sample in log.samples] == ["turn"] * 2
    assert all(value["turns"] <= 3 for value in values(log))


@pytest.mark.slow
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


def test_names_that_do_not_tell_tasks_apart_are_one_message(tmp_path, capsys, backend):
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}))
    task = read_task(tmp_path / "a.task.yaml")
    for place in ("x", "y", "p,q"):
        write_sample(task, tmp_path / place / "mine")
    command = ["agent", "--model=scripted/honest", f"--out={tmp_path / 'logs'}"]
    assert main([*command, f"--tasks={tmp_path / 'p,q'}"]) == 1
    assert "there is a comma in it" in capsys.readouterr().err
    shutil.move(tmp_path / "p,q", tmp_path / "z")
    assert main([*command, f"--tasks={tmp_path}"]) == 1
    assert "give the folders different names" in capsys.readouterr().err
    assert main([*command, f"--tasks={tmp_path / 'x'}"]) == 0


@pytest.mark.slow
def test_what_was_judged_before_a_sample_failed_is_not_judged_again(evaluate, backend):
    """Inspect tries a sample twice, and begins it anew when the command is run again."""
    for _ in range(2):
        code, log, output = evaluate("broken", tasks=("a",))
        assert code == 1
        assert "a: no score: RuntimeError('out of memory')" in output.out
        assert backend.calls == 1
    assert len(log.samples) == 1


@pytest.mark.slow
def test_an_answer_that_was_judged_is_judged_again_if_its_task_changes(evaluate, backend, tmp_path):
    evaluate("broken", tasks=("a",))
    (tmp_path / "a.task.yaml").write_text(task_text("a", {}, {}, {}))
    evaluate("broken", tasks=("a",))
    assert backend.calls == 2


@pytest.mark.slow
def test_a_damaged_file_of_the_journal_is_judged_anew(evaluate, backend, tmp_path):
    evaluate("broken", tasks=("a",))
    (path,) = (tmp_path / "logs/judged").iterdir()
    for text in (path.read_text().replace('"ratio": 2.0', '"ratio": 9.0'), "{", ""):
        path.write_text(text)
        calls = backend.calls
        evaluate("broken", tasks=("a",))
        assert backend.calls == calls + 1


@pytest.mark.slow
def test_models_are_rows_of_the_board_with_what_their_answers_took(evaluate, tmp_path, capsys):
    for model in ("honest", "cheating", "malformed"):
        evaluate(model, "--best-of=2")
    files = sorted((tmp_path / "logs/results").glob("*/results.json"))
    assert len(files) == 2  # no answer of the third model was judged
    assert main(["board", *map(str, files), "-o", str(tmp_path / "board.csv"), "-o", "-"]) == 0
    output = capsys.readouterr().out
    assert "Models" in output
    rows = {row["name"]: row for row in csv.DictReader((tmp_path / "board.csv").open())}
    honest, cheating = rows["scripted/honest"], rows["scripted/cheating"]
    assert float(honest["AS"]) == pytest.approx(2.0)
    assert float(cheating["AS"]) == pytest.approx(0.1)
    assert [honest[name] for name in ("samples", "turns", "attempts", "tokens")] == ["4", "20", "8", "300"]
    assert (honest["subgraphs"], honest["not_judged"]) == ("4", "0")
    assert rows["eager"]["turns"] == ""
    (passes,) = tmp_path.glob("logs/results/scripted-honest-*/passes")
    assert (passes / "a/a.py").read_text() == PASS


def test_a_task_without_an_answer_is_a_failure_on_the_board(evaluate, tmp_path):
    evaluate("picky")
    (file,) = (tmp_path / "logs/results").glob("*/results.json")
    main(["board", str(file), "-o", str(tmp_path / "board.csv")])
    row = next(row for row in csv.DictReader((tmp_path / "board.csv").open()) if row["kind"] == "candidate")
    assert (row["subgraphs"], row["not_judged"]) == ("4", "2")


def test_an_answer_that_could_not_be_read_makes_the_machine_of_others_no_less_known(evaluate, tmp_path):
    evaluate("careless")
    (file,) = (tmp_path / "logs/results").glob("*/results.json")
    main(["board", str(file), "-o", str(tmp_path / "board.csv")])
    row = next(row for row in csv.DictReader((tmp_path / "board.csv").open()) if row["kind"] == "candidate")
    assert (row["subgraphs"], row["not_judged"], row["correct"]) == ("4", "0", "0.5")
    assert row["sandbox"] == "none: told"


def test_a_sample_has_a_limit_of_working_seconds(evaluate):
    code, log, _ = evaluate("slow", "--seconds=1", tasks=("a",))
    assert code == 0
    assert log.samples[0].limit.type == "working"


@pytest.fixture(scope="module")
def conversations(tmp_path_factory):
    """Return the folder for logs of scripted models on two tasks. The first test that exports them writes them."""
    return tmp_path_factory.mktemp("conversations") / "logs"


@pytest.fixture
def export(evaluate, conversations, tmp_path, capsys):
    """Return a function that exports what scripted models did on two tasks, and returns the rows."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `dataset` is not installed")
    if not conversations.exists():
        assert [evaluate(model)[0] for model in ("honest", "cheating")] == [0, 0]
        shutil.copytree(tmp_path / "logs", conversations)

    def run(*options):
        path = tmp_path / "rows.parquet"
        assert main(["trajectories", str(conversations), f"--out={path}", *options]) == 0, capsys.readouterr().err
        if "--format=passnet" in options:
            return [json.loads(line) for line in path.read_text().splitlines()]
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
        assert messages[-1]["tool_call_id"] == call["id"]
        assert [tool["function"]["name"] for tool in json.loads(row["tools"])] == [*TOOLS, "submit"]


def test_a_trainers_reader_gets_arguments_and_tools_as_objects(export, tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra `train` is not installed")
    export("--format=sft", "--honest")
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "rows.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    calls = [call["function"] for message in rows[0]["messages"] for call in message["tool_calls"] or ()]
    assert calls[-2]["arguments"] == {"path": "a.py", "text": PASS}
    assert calls[-1]["arguments"] == {}
    assert rows[0]["tools"][0]["function"]["parameters"]["required"] == ["path", "text"]


def test_an_answer_in_one_turn_has_the_best_attempts_files(export):
    rows = export("--format=single", "--honest")
    assert [row["task"] for row in rows] == ["a", "b"]
    for row in rows:
        (question,), (answer,) = row["prompt"], row["completion"]
        assert question["content"].endswith(ANSWER_FORM)
        assert "Call submit" not in question["content"]
        assert answer_files(answer["content"]) == {"a.py": PASS}


def test_lines_of_passnets_agent_have_whole_conversations(export):
    lines = export("--format=passnet")
    assert [sorted(line) for line in lines] == [["messages", "sample_dir"]] * 4
    assert {line["sample_dir"] for line in lines} == {"a", "b"}
    roles = [message["role"] for message in lines[0]["messages"]]
    assert roles[:3] == ["system", "user", "assistant"]
    for before, after in itertools.pairwise(lines[0]["messages"]):
        if after["role"] == "tool":
            (call,) = before["tool_calls"]
            assert (call["id"], call["function"]["name"]) == (after["tool_call_id"], after["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


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
    environment = PassEnvironment()
    assert environment.reset(**rows[0]) == ""  # a trainer adds it to the prompt, which has the task already
    assert environment.reset(**{**rows[0], "prompt": None}) in rows[0]["prompt"][-1]["content"]


def test_all_that_is_known_is_exported_and_equal_answers_count_once(export):
    rows = export()
    assert len(rows) == 4
    honest = next(row for row in rows if row["model"] == "scripted/honest")
    assert [attempt["stage"] for attempt in honest["attempts"]] == ["wrong", "right and fast"]
    assert honest["attempts"][1]["files"][0] == {"path": "a.py", "text": PASS}
    assert len(export("--best-of=1")) == 2
    assert len(export("--min-reward=0.5")) == 2


def test_an_export_that_cannot_be_written_is_one_message(export, conversations, tmp_path, capsys):
    assert main(["trajectories", str(conversations), f"--out={tmp_path / 'a.task.yaml' / 'rows'}"]) == 1
    assert "cannot be written" in capsys.readouterr().err


def test_an_export_without_logs_or_rows_is_one_message(tmp_path, capsys):
    out = f"--out={tmp_path / 'rows.parquet'}"
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.eval").write_text("nothing")
    too_long = "x/" * 2500
    for logs, message in (("nowhere", "no such file"), (too_long, "no such file"), ("empty", "has no log"),
                          ("broken.eval", "is no log")):  # fmt: skip
        assert main(["trajectories", str(tmp_path / logs), out]) == 1
        assert message in capsys.readouterr().err


def test_the_task_is_registered_under_the_package(tmp_path):
    from importlib.metadata import entry_points

    (point,) = entry_points(group="inspect_ai", name="pytest_passbench")
    assert point.load().passbench
