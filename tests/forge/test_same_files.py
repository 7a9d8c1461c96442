"""The task files of two small models, byte for byte: by ``forge --model``, and by the steps of a suite.

The files are in tests/data/forged.txt. If tasks are to change, remove it: the test then writes it anew, and fails.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_passbench.commands.main import main
from pytest_passbench.forge import curate, probe, sources
from pytest_passbench.forge.models import ModelCase, Variant
from support.paths import ROOT

EXPECTED = ROOT / "tests" / "data" / "forged.txt"
MODELS = """
import torch


class Gated(torch.nn.Module):
    def __init__(self, activation=torch.tanh):
        super().__init__()
        self.activation, self.norm = activation, torch.nn.LayerNorm(64)

    def forward(self, x, y):
        wide = (x * y).to(torch.float32)
        scaled = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
        return self.norm(self.activation(scaled) * y + 0.5) * torch.sigmoid(y)
"""
SIZES = (Variant(2, 16), Variant(1, 40))
X = "--input=float b n 64"


def _inputs(_model: torch.nn.Module, variant: Variant) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(variant.batch, variant.size, 64, generator=generator) for _ in "xy")


def _cases() -> list[ModelCase]:
    space: dict[str, Any] = {}
    exec(MODELS, space)
    makers: dict[str, Callable[[], torch.nn.Module]] = {
        "own/tanh": space["Gated"],
        "own/silu": lambda: space["Gated"](torch.nn.functional.silu),
    }
    return [ModelCase(name, "text", make, _inputs, SIZES, "small") for name, make in makers.items()]


def _least(call: object, _inputs: list[torch.Tensor]) -> float:
    return 20e-6 if isinstance(call, torch.nn.Module) else 0.0


@pytest.mark.slow
def test_both_ways_give_the_same_files_as_ever_and_verify_makes_them_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gated.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(probe, "_least", _least)  # each call takes as long as any other
    monkeypatch.setattr(curate, "too_long", lambda _probe: False)
    monkeypatch.setattr(sources, "all_cases", _cases)
    assert main(["forge", "--model=gated.py:Gated", X, X, "--size=2,16", "--size=1,40", "--out=model"]) == 0
    assert main(["forge", "--all", "--work=work", "--out=suite", "--tasks=6", "--train=2"]) == 0
    files = sorted((*(tmp_path / "model").rglob("*.yaml"), *(tmp_path / "suite").rglob("*.yaml")))
    text = "".join(f"== {path.relative_to(tmp_path)}\n{path.read_text(encoding='utf-8')}" for path in files)
    if not EXPECTED.exists():
        EXPECTED.write_text(text, encoding="utf-8")
        pytest.fail(f"{EXPECTED} was missing, and is written")
    assert text == EXPECTED.read_text(encoding="utf-8")
    assert main(["forge", "--verify=own/tanh", "--verify=own/silu", "--out=suite"]) == 0
    for case, line in zip(("own/tanh", "own/silu"), capsys.readouterr().out.splitlines()[-2:], strict=True):
        assert re.fullmatch(rf"{case}: ([1-9]\d*) of \1 subgraphs have the same hash", line)
    (changed,) = (tmp_path / "suite").rglob("silu-mul-*.yaml")
    changed.write_text(changed.read_text(encoding="utf-8").replace("silu(", "relu("), encoding="utf-8")
    assert main(["forge", "--verify=own/silu", "--out=suite"]) == 1
    assert "  not made again: silu-mul-" in capsys.readouterr().out
