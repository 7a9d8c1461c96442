"""``passbench profile``: how TorchInductor fares beside eager, from a stored run."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import exp, log
from pathlib import Path

import pytest

from pytest_passbench.commands.main import main
from pytest_passbench.core.record import ArmResult, GeneratedCode
from pytest_passbench.run import results_file
from support.made_records import record_of, right, run_of, speed_of


def compiled(ratio, eager_us, level=-11, width=0.02):
    """Return the result of a baseline on a subgraph that takes eager ``eager_us`` microseconds."""
    speed = speed_of(ratio, width, eager_us=eager_us, other_us=eager_us / ratio)
    return ArmResult(correct_from=[level], speed=speed)


@pytest.fixture
def stored(tmp_path):
    """Write a run of five subgraphs for two candidates. The baseline did not compile on one of them."""
    baselines = [
        ("gelu-add-1a2b", "a", "float32", ["gelu", "add"], compiled(0.5, 30.0)),
        ("gelu-add-1a2b", "b", "bfloat16", ["gelu", "add"], compiled(0.8, 40.0, -3)),
        ("conv-relu-3c4d", "c", "float32", ["conv2d", "relu"], compiled(1.0, 800.0)),
        ("sum-5e6f", "d", "float32", ["mul", "sum"], compiled(4.0, 9_000.0)),
        ("view-7a8b", "e", "float32", ["view", "permute"], ArmResult("compile_fail", message="no such luck")),
    ]
    records = [
        record_of(task, name, right(), candidate, dtype=dtype, operators=ops, baselines={"inductor": arm})
        for candidate in ("mine", "other")
        for task, name, dtype, ops, arm in baselines
    ]
    results_file.write(tmp_path, run_of(*records))
    return tmp_path


def rows(text, title):
    """Return the rows of the table of this title, by their first cell."""
    lines = text.partition(f"{title}\n")[2].splitlines()[2:]
    cells = [re.split(r"  +", line) for line in lines[: lines.index("") if "" in lines else None]]
    return {first: rest for first, *rest in cells}


def test_subgraphs_are_divided_by_time_dtype_and_class(stored, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["profile", str(stored)]) == 0
    text = capsys.readouterr().out
    assert rows(text, "inductor against eager (shares in %)")["inductor"][:5] == ["4", "50", "25", "25", "0"]
    by_time = rows(text, "By eager's time")
    assert list(by_time) == ["0.02 to 0.05 ms", "0.5 to 1 ms", "5 ms and more"]
    assert by_time["0.02 to 0.05 ms"][:5] == ["2", "100", "0", "0", "0"]
    assert by_time["0.02 to 0.05 ms"][5].startswith(f"{exp(log(0.5 * 0.8) / 2):.3f} [")
    assert by_time["0.02 to 0.05 ms"][6:] == ["50", "50"]  # without a float64 form the ladder decides
    assert by_time["5 ms and more"][:4] == ["1", "0", "0", "100"]
    assert {name: cells[0] for name, cells in rows(text, "By dtype").items()} == {"float32": "3", "bfloat16": "1"}
    classes = {name: cells[0] for name, cells in rows(text, "By class of operators").items()}
    assert classes == {"elementwise": "2", "convolution": "1", "reduction": "1"}
    assert "1 subgraph gave no speed and are in no row." in text


def test_a_narrow_terminal_leaves_intervals_out(stored, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["profile", str(stored)]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines()[:-2])) <= 80
    assert rows(text, "By eager's time")["5 ms and more"][5] == "4.000"


def test_json_has_every_subgraph_once(stored, capsys):
    assert main(["profile", str(stored), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [item["subgraph"] for item in data["subgraphs"]] == ["a", "b", "c", "d"]
    assert (data["compiler"], data["failed"], data["all"]["slower"]) == ("inductor", 1, 0.5)
    assert data["subgraphs"][1]["agrees"] is False
    assert data["groups"]["class of operators"]["reduction"]["speed_up"][0] == pytest.approx(4.0)


def test_kernels_and_the_call_path_stand_beside_the_speed(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    arms = [
        replace(compiled(2.0, 40.0), generated=GeneratedCode(kernels, call_us))
        for kernels, call_us in [(1, 5.0), (2, 10.0), (4, None)]
    ]
    records = [record_of("gelu-1a2b", f"s{n}", right(), baselines={"inductor": arm}) for n, arm in enumerate(arms)]
    results_file.write(tmp_path, run_of(*records))
    assert main(["profile", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert rows(text, "inductor against eager (shares in %)")["inductor"][-2:] == ["2", "38"]  # mean of 25 %, 50 %
    assert "2 subgraphs whose wrapper calls no operator of torch's" in " ".join(text.split())


def test_another_baseline_has_a_profile_of_its_own(stored, tmp_path, capsys):
    assert main(["profile", str(stored), "--baseline=max-autotune"]) == 1
    assert "judge with --passbench-baseline=max-autotune" in capsys.readouterr().err
    arms = {"inductor": compiled(0.5, 30.0), "max-autotune": compiled(3.0, 30.0)}
    results_file.write(tmp_path / "both", run_of(record_of("gelu-1a2b", "a", right(), baselines=arms)))
    assert main(["profile", str(tmp_path / "both"), "--baseline=max-autotune"]) == 0
    assert "max-autotune against eager" in capsys.readouterr().out


def test_the_page_has_the_tables_and_the_picture(stored, tmp_path):
    page = tmp_path / "profile.html"
    assert main(["profile", str(stored), f"--page={page}"]) == 0
    text = page.read_text()
    assert text.count("<table>") == 4
    assert "By class of operators" in text
    assert text.count("<svg") >= 1
    assert "<script" not in text


@pytest.mark.parametrize(("suffix", "head"), [("svg", b"<svg "), ("pdf", b"%PDF-")])
def test_the_picture_has_a_mark_for_each_subgraph(stored, tmp_path, capsys, suffix, head):
    picture = tmp_path / f"inductor.{suffix}"
    assert main(["profile", str(stored), f"--picture={picture}"]) == 0
    assert "By dtype" in capsys.readouterr().out
    content = picture.read_bytes()
    assert content.startswith(head)
    if suffix == "svg":
        text = content.decode()
        assert text.count("<polygon ") + text.count("<circle ") == 4 + 3  # with those of the legend
        assert "speed-up of inductor over eager" in text
        assert "mean of a group by eager" in text


def test_what_cannot_be_profiled_gets_one_message(stored, tmp_path, capsys):
    plain = tmp_path / "plain"
    results_file.write(plain, run_of(record_of("gelu-add-1a2b", "a")))
    for words, message in [
        ([str(plain)], "has no speed of the baseline inductor (judge with --passbench-baseline=inductor)"),
        ([str(tmp_path / "gone.json")], "gone.json: no such file"),
        ([str(stored), "--picture=x.png"], "x.png: the name must end in .svg or .pdf"),
        ([str(stored), "--page=x.pdf"], "x.pdf: the name must end in .html"),
        ([str(stored), f"--picture={tmp_path}/no/x.svg"], "cannot be written: No such file or directory"),
    ]:
        assert main(["profile", *words]) == 1
        assert message in capsys.readouterr().err


MODELS = """
import torch
from torch import nn


class Block(nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x) + x


class Sorts(nn.Module):
    def forward(self, x):
        return torch.sort(x)[0]
"""
SIZES = ["--input=float b 64", "--size=8,1", "--size=512,1"]


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Return the path of a module with models, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)
    return "models.py"


@pytest.mark.slow
def test_a_model_is_judged_at_each_of_its_sizes(models, capsys):
    assert main(["profile", f"{models}:Block", *SIZES, "--json", "--page=page.html"]) == 0
    subgraphs = json.loads(capsys.readouterr().out)["subgraphs"]
    assert [item["task"] for item in subgraphs] == ["models-Block"] * 2
    assert all(item["agrees"] and item["accurate"] and item["kernels"] == 1 for item in subgraphs)
    assert subgraphs[0]["eager_us"] != subgraphs[1]["eager_us"]
    assert "models-Block" in Path("page.html").read_text()


@pytest.mark.slow
def test_a_model_without_an_operator_for_the_generator_is_named(models, capsys):
    assert main(["profile", f"{models}:Sorts", *SIZES]) == 1
    assert "models/Sorts: none of its operators has a kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["full"], "full: is a suite, not a run of it (judge it with pytest --passbench --candidate=DIR"),
        (["run", "--size=1,2"], "--size: goes with a model of a file only"),
        (["models.py:Missing", *SIZES], "models.py: has no 'Missing' (it has Block, Sorts)"),
        (["models.py:Block"], "models.py: does not define the model's inputs"),
    ],
)
def test_what_is_neither_a_run_nor_a_model_is_one_message(models, capsys, arguments, message):
    assert main(["profile", *arguments]) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"passbench: error: {message}")
