"""``passbench try``: a whole model with passes, beside eager and TorchInductor, and what is refused."""

from __future__ import annotations

import json
import re

import pytest

from pytest_passbench.commands.main import main

MODELS = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x):
        return self.last(torch.nn.functional.gelu(self.first(x)) + x)


class Breaks(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * 0.5
        if y.sum().item() > 0:
            y = y + 1
        return torch.sigmoid(y) * torch.relu(x)


class Raises(nn.Module):
    def forward(self, x):
        raise ValueError("no such luck")


class Nothing(nn.Module):
    def forward(self, x):
        return x


class Disabled(nn.Module):
    def forward(self, x):
        return torch.compiler.disable(torch.relu)(torch.nn.functional.gelu(x) + x)


class Draws(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) + torch.rand_like(x)
"""
INPUT = ["--input=float b 64", "--size=8,1"]


@pytest.fixture
def model(tmp_path, monkeypatch):
    """Write the models, and return a function that gives the command line's name of one of them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    return "models.py:{}".format


@pytest.mark.slow
def test_a_model_is_judged_beside_eager_and_inductor(bench, model, gelu_add_pass, capsys):
    folder = bench.candidate({"gelu_add": gelu_add_pass})
    words = ["try", model("Block"), *INPUT, "--size=16,1", f"--candidate={folder}", "--pipeline=direct", "--json"]
    assert main(words) == 0
    reports = json.loads(capsys.readouterr().out)
    assert [report["size"] for report in reports] == ["b8n1", "b16n1"]
    for report in reports:
        assert report["programs"].keys() == {"inductor", "cand"}
        for program in report["programs"].values():
            ratio, low, high = program["speed_up"]
            assert low <= ratio <= high
            assert program["agrees"] is program["accurate"] is True
        low, high = report["inductor_to_passes"][1:]
        assert low < high
        assert (report["operators"], report["replaced"], report["matches"]) == (4, 2, {"gelu_add": 1})
        replaced = [operator for operator, _, is_replaced in report["calls"] if is_replaced]
        assert replaced == ["gelu", "add"]
        assert 0 < report["left_share"] < 1


@pytest.mark.slow
def test_a_wrong_pass_is_named_and_its_speed_does_not_count(bench, model, gelu_add_pass, capsys):
    folder = bench.candidate({"gelu_add": gelu_add_pass.replace("+ y[i]", "+ y[i] * 1.5f")})
    assert main(["try", model("Block"), *INPUT, f"--candidate={folder}", "--pipeline=direct"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "models.py:Block: b8n1, float32"
    assert re.fullmatch(r"cand +\S+ +- +no: at no t +no", next(text for text in lines if "cand" in text))
    assert any(text.startswith("worst element: output 0[") for text in lines)
    assert re.search(r"^gelu +1 +1 ", "\n".join(lines), re.M)
    assert re.search(r"^linear +2 +0 ", "\n".join(lines), re.M)
    assert "as fast as TorchInductor" not in "\n".join(lines)
    assert "Kernels replace 2 of 4 operators, with " in "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Breaks", "models/Breaks: torch.compile breaks it into 2 graphs: Unsupported Tensor.item()"),
        ("Disabled", "models/Disabled: torch.compile does not capture all of it: "),
        ("Raises", "forward fails on float32 [8, 64]: ValueError: no such luck"),
        ("Nothing", "models/Nothing: torch.compile captures no operator of it"),
        ("Draws", "models/Draws: it draws random numbers (rand_like), so no two answers agree"),
        ("Missing", "models.py: has no 'Missing' (it has Block, Breaks, Raises, Nothing, Disabled, Draws)"),
    ],
)
def test_a_model_that_cannot_be_judged_gets_one_message(bench, model, gelu_add_pass, capsys, name, message):
    folder = bench.candidate({"gelu_add": gelu_add_pass})
    assert main(["try", model(name), *INPUT, f"--candidate={folder}"]) == 1
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("passbench: error: ")]
    assert len(errors) == 1
    assert message in errors[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("torch.nn.functional.gelu(x) +", "torch.tanh(x) +", r"cand: no pass matches models-Block: gelu_add: .*tanh"),
        ("out[i] =", "out[i] = nonsense +", r"passbench: error: gelu_add.py:\d+: .*nonsense"),
    ],
    ids=["no match", "no kernel"],
)
def test_a_candidate_of_no_use_is_refused_before_anything_is_measured(
    bench, model, gelu_add_pass, capsys, old, new, message
):
    folder = bench.candidate({"gelu_add": gelu_add_pass.replace(old, new)})
    assert main(["try", model("Block"), *INPUT, f"--candidate={folder}"]) == 1
    errors = capsys.readouterr().err
    assert re.search(message, errors)
    assert "building and measuring" not in errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "try: one model is to be named (give FILE.py:NAME, or --hub)"),
        (["gone.py:Block"], "gone.py: no such file (write FILE.py:NAME)"),
        (["models.py:Block", "--hub=x"], "try: one model is to be named"),
        (["--hub=x", "--size=1,128"], "--size: goes with a model of a file only (name it as FILE.py:NAME)"),
    ],
)
def test_a_model_has_to_be_named(bench, model, gelu_add_pass, capsys, words, message):
    folder = bench.candidate({"gelu_add": gelu_add_pass})
    assert main(["try", *words, f"--candidate={folder}"]) == 1
    assert message in capsys.readouterr().err


def test_a_folder_that_is_missing_is_named_before_the_model_is_captured(model, capsys):
    assert main(["try", model("Block"), *INPUT, "--candidate=gone"]) == 1
    said = capsys.readouterr().err
    assert "gone: the candidate directory does not exist" in said
    assert "capturing" not in said
