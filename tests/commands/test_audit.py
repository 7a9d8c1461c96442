"""``passbench audit``: a candidate looked over, its kernels compiled, its launch plans shown, and nothing judged."""

from __future__ import annotations

import json

import pytest

from pytest_passbench.commands.main import main


@pytest.fixture
def honest(bench, gelu_add_pass):
    return bench.candidate({"p": gelu_add_pass}, name="honest")


def test_an_honest_candidate_has_nothing_against_it(honest, capsys):
    assert main(["audit", str(honest)]) == 0
    assert capsys.readouterr().out == "1 passes read, 0 violations, 0 warnings\n"


def test_launch_plans_are_shown_for_a_task(bench, honest, capsys):
    task = bench.task()
    assert main(["audit", str(honest), "--task", str(task)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "float32-x1: p: 2 steps",
        "    allocate float32 [16, 32]",
        "    launch gelu_add with 4 arguments",
        "1 passes read, 0 violations, 0 warnings",
    ]
    main(["audit", str(honest), "--task", str(task), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["findings"] == []
    assert told["plans"][0]["plan"]["kernels"][0]["cpp"][3] == "gelu_add"


def test_the_task_is_named_by_its_id_or_by_the_path_that_pytest_prints(honest, capsys, monkeypatch):
    monkeypatch.chdir(honest)
    for word in ("gelu-add-mul", "tasks/text/gelu-add-mul.task.yaml"):
        assert main(["audit", str(honest), "--task", word]) == 1
        assert "passbench: error: " in capsys.readouterr().err
    for word in ("silu-mul-e747", "tasks/text/silu-mul-e747.task.yaml"):
        assert main(["audit", str(honest), "--task", word]) == 0
        assert capsys.readouterr().out == "1 passes read, 0 violations, 0 warnings\n"


@pytest.mark.parametrize(
    ("exchange", "rule"),
    [
        ((("#include <cmath>", "#include <sys/syscall.h>\n#include <cmath>"),), "native-include"),
        ((("{\n    for", "{\n    static int64_t calls; calls++;\n    for"),), "native-state"),
        ((("def replacement_func", "def replacement_fun"),), "fault"),
        ((("functional.gelu(x) + y", "functional.glue(x) + y"),), "pattern"),
    ],
)
def test_what_speaks_against_a_candidate_is_found_without_a_task(bench, gelu_add_pass, capsys, exchange, rule):
    text = gelu_add_pass
    for old, new in exchange:
        assert old in text
        text = text.replace(old, new)
    folder = bench.candidate({"p": text}, name="foul")
    assert main(["audit", str(folder), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert (finding["rule"], finding["severity"]) == (rule, "violation")


def test_a_wrapper_that_computes_with_torch_is_found_on_a_task(bench, wrapper, capsys):
    folder = bench.candidate({"p": wrapper("return torch.nn.functional.gelu(x) + y")}, name="foul")
    task = bench.task()
    assert main(["audit", str(folder)]) == 0
    assert main(["audit", str(folder), "--policy", "open", "--task", str(task)]) == 0
    capsys.readouterr()
    assert main(["audit", str(folder), "--task", str(task)]) == 1
    assert "p.py:10: violation [torch-op] pass p: the kernel wrapper computes with torch" in capsys.readouterr().out


def test_a_folder_that_is_no_candidate_is_told_of(tmp_path, capsys):
    assert main(["audit", str(tmp_path)]) == 1
    assert "the candidate directory is empty" in capsys.readouterr().err
