"""Training on exported trajectories with TRL: a tiny model with random weights, on the CPU, without a network."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from support.no_network import refuse_network

if find_spec("trl") is None:
    pytest.skip("the extra `train` is not installed", allow_module_level=True)

from pytest_passbench.agents.answer_files import answer_text, question
from pytest_passbench.agents.prompt import prompt
from pytest_passbench.agents.trajectories import FORMATS, Trajectory, write_rows
from pytest_passbench.suite import find

# Warnings of TRL, transformers and datasets themselves.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.filterwarnings("error:.*passbench"),
]

TASK = """passbench: task/1
id: tanh-mul
ops: [tanh, mul]
sources: [made-up]
modality: text
subgraphs: 1
---
graphs:
  g0: |
    def forward(in_0, in_1):
        tmp_0 = torch.tanh(in_0)
        return (tmp_0 * in_1,)
subgraphs:
- id: s0
  graph: g0
  dtype: float32
  source: made-up
  inputs:
  - {name: in_0, shape: [64, 1024], dtype: float32, mean: 0.0, std: 1.0}
  - {name: in_1, shape: [64, 1024], dtype: float32, mean: 0.0, std: 1.0}
"""
RIGHT = '''import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
extern "C" void tanh_mul(const float* x, const float* y, float* out, int64_t n) {
  pb::map(n, out, [](vec a, vec b) { return pb::tanh(a) * b; }, x, y);
}
""")


def pattern(x, y):
    return torch.tanh(x) * y


def replacement_args(x, y):
    return x, y


def tanh_mul(x, y):
    out = torch.empty_like(x)
    lib.tanh_mul(x, y, out, x.numel())
    return out


def replacement_func():
    return tanh_mul
'''
WRONG = RIGHT.replace("pb::tanh(a) * b", "pb::tanh(a) + b")
TOOL = {"description": "Does it.", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": {"name": name, **TOOL}} for name in ("write_file", "judge")]


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    refuse_network(monkeypatch)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a task, the exports of two trajectories on it, and a tiny model with random weights."""
    from pytest_passbench.recipes import tiny_model

    folder = tmp_path_factory.mktemp("training")
    with contextlib.chdir(folder):
        os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")
        Path("tanh-mul.task.yaml").write_text(TASK)
        trajectories = [trajectory(text, reward) for text, reward in ((RIGHT, 1.0), (WRONG, 0.2))]
        for name in ("sft", "single", "dpo", "rl"):
            write_rows(list(FORMATS[name](trajectories)), Path(f"{name}.parquet"))
        tiny_model.main(["tiny", "--data", "sft.parquet", "single.parquet"])
    return folder


def trajectory(text, reward):
    """Return a trajectory of three answers of a model: a file is written and judged."""
    task = find.single("tanh-mul.task.yaml").load()
    calls = [("write_file", {"path": "fused.py", "text": text}), ("judge", {})]
    observations = ("wrote fused.py", f"Reward: {reward}")
    messages = [{"role": "system", "content": "Work with the tools."}, {"role": "user", "content": prompt(task)}]
    for number, ((name, arguments), observation) in enumerate(zip(calls, observations, strict=True)):
        call = {"id": str(number), "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)}}  # fmt: skip
        messages += [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": observation, "name": name, "tool_call_id": str(number)},
        ]
    attempt = {"files": {"fused.py": text}, "reward": reward, "stage": "right"}
    file = str(task.path.resolve())
    return Trajectory("log", "tiny", "tanh-mul", file, 1, 100, tuple(TOOLS), tuple(messages), (attempt,))


@pytest.fixture
def train(folder, monkeypatch):
    """Return a function that runs a recipe in the folder, and returns the trainer's log, a mapping for each step."""
    monkeypatch.chdir(folder)

    def run(recipe, out, *options):
        recipe.main(["--out", out, *options])
        history = json.loads(Path(out, "trainer_state.json").read_text())["log_history"]
        return [entry for entry in history if "loss" in entry]

    return run


def preference(model):
    """Return how much likelier a saved model finds the right answer than the wrong one, as a logarithm."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(model), AutoModelForCausalLM.from_pretrained(model)
    asked = question(prompt(find.single("tanh-mul.task.yaml").load()))
    losses = []
    for text in (RIGHT, WRONG):
        answer = {"role": "assistant", "content": answer_text({"fused.py": text})}
        ids = tokenizer.apply_chat_template([*asked, answer], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            losses.append(float(model(ids, labels=ids).loss) * (ids.shape[1] - 1))
    return losses[1] - losses[0]


def test_the_loss_of_conversations_falls(train):
    from pytest_passbench.recipes import sft

    steps = train(sft, "on-sft", "--data=sft.parquet", "--model=tiny", "--steps=12", "--batch=2",
                  "--learning-rate=3e-3")  # fmt: skip
    assert len(steps) == 12
    assert steps[-1]["loss"] < steps[0]["loss"] / 2


def test_calls_are_trained_with_their_arguments_as_objects(folder):
    """A template that printed the arguments as text would quote them."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    row = load_dataset("parquet", data_files=str(folder / "sft.parquet"), split="train")[0]
    tokenizer = AutoTokenizer.from_pretrained(folder / "tiny")
    text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
    calls = [json.loads(call) for call in re.findall(r"<tool_call>\n(.*?)\n</tool_call>", text)[-2:]]
    assert calls == [{"name": "write_file", "arguments": {"path": "fused.py", "text": RIGHT}},
                     {"name": "judge", "arguments": {}}]  # fmt: skip
    assert '"name": "write_file", "description": "Does it."' in text


def test_the_better_answer_of_a_pair_becomes_likelier(train):
    from pytest_passbench.recipes import dpo

    steps = train(dpo, "on-dpo", "--data=dpo.parquet", "--model=tiny", "--steps=6", "--learning-rate=3e-4")
    assert steps[0]["loss"] == pytest.approx(0.6931, abs=1e-3)
    assert steps[-1]["loss"] < 0.6
    assert steps[-1]["rewards/margins"] > 0


def test_answers_in_one_turn_are_learnt_and_the_judge_chooses_among_them(train):
    """After SFT a model gives right and wrong answers; after training by the judge's reward, right ones."""
    from pytest_passbench.recipes import grpo, sft

    steps = train(sft, "on-single", "--data=single.parquet", "--model=tiny", "--steps=120", "--batch=2",
                  "--learning-rate=3e-3")  # fmt: skip
    assert steps[-1]["loss"] < 0.3 < steps[0]["loss"]
    steps = train(grpo, "on-grpo", "--data=rl.parquet", "--model=on-single", "--steps=6", "--group=8",
                  "--learning-rate=3e-5", "--max-tokens=100")  # fmt: skip
    assert len(steps) == 6
    assert min(entry["alike"] for entry in steps) == 0  # right and wrong answers in a group
    assert all(0 < entry["reward"] < 1.5 for entry in steps)
    assert max(entry["reward"] for entry in steps) > 0.25  # more than any wrong answer has
    assert preference("on-grpo") > preference("on-single")


def test_a_model_calls_the_tools_and_gets_the_environments_reward(train):
    from pytest_passbench.recipes import grpo, sft

    train(sft, "on-tools", "--data=sft.parquet", "--tools=environment", "--model=tiny", "--steps=60", "--batch=2",
          "--learning-rate=3e-3")  # fmt: skip
    steps = train(grpo, "on-turns", "--data=rl.parquet", "--model=on-tools", "--turns=2", "--steps=1", "--group=4",
                  "--max-tokens=1500")  # fmt: skip
    assert steps[0]["tools/call_frequency"] > 1
    assert steps[0]["reward"] > 0.15  # compiled, ran, and was compared with eager


def test_an_answer_that_was_not_judged_costs_the_others_nothing(folder, monkeypatch, capsys):
    from pytest_passbench import Evaluator
    from pytest_passbench.recipes.grpo import judge_all
    from support.told_backend import ToldBackend

    monkeypatch.chdir(folder)
    monkeypatch.setattr(ToldBackend, "_arm", staticmethod(told_arm))
    with Evaluator(backend=ToldBackend()) as evaluator:
        texts = (RIGHT, f"{RIGHT}# LOST", WRONG)
        rewards = judge_all(evaluator, [{"fused.py": text} for text in texts], "tanh-mul.task.yaml")
    assert rewards[0] > 1.0
    assert rewards[1] is None
    assert rewards[2] > 1.0
    assert "not judged: " in capsys.readouterr().out


def told_arm(text):
    from pytest_passbench.core.record import ArmResult
    from support.made_records import right

    return ArmResult("harness_fail", "time", "the machine was too noisy") if "LOST" in text else right(2.0)


def test_no_pair_beyond_the_gap_is_one_message(train):
    from pytest_passbench.core.errors import UserError
    from pytest_passbench.recipes import dpo

    with pytest.raises(UserError, match="no pair is left"):
        train(dpo, "on-none", "--data=dpo.parquet", "--model=tiny", "--min-gap=5")


def test_rewards_whose_intervals_meet_are_alike():
    from pytest_passbench.recipes.grpo import share_alike

    class Reward(float):
        def __new__(cls, low, high):
            reward = super().__new__(cls, low)
            reward.low, reward.high = low, high
            return reward

    assert share_alike([Reward(1.0, 1.2), Reward(1.1, 1.3), 0.2, 0.05], ["a", "a", "b", "b"]) == 0.5
    assert share_alike([None, 0.2, 0.2], ["a", "a", "a"]) == 1
    assert share_alike([None], ["a"]) == 1


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pytest_passbench.recipes.sft", "--data=none.parquet", "--model=m", "--out=out"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().splitlines()[-1] == f"sft: error: Unable to find '{tmp_path}/none.parquet'"
