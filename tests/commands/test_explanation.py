"""The tasks that a candidate's passes match, as ``passbench explain --all`` lists them."""

from __future__ import annotations

import pytest

from pytest_passbench.commands.main import main

SILU = "def forward(in_0, in_1):\n    return (torch.nn.functional.silu(in_0) + in_1,)\n"


@pytest.fixture
def several(bench, gelu_add_pass):
    bench.task("a-matches")
    bench.task("b-misses", source=SILU, ops=("silu", "add"))
    bench.task("c-faulty")
    bench.candidate({"p": gelu_add_pass})
    bench.candidate({"p": "def pattern(x):"}, task="c-faulty")
    return bench


@pytest.mark.slow
def test_tasks_that_match_or_whose_passes_are_faulty_are_listed(several, capsys):
    assert main(["explain", str(several.folder / "cand"), str(several.tasks), "--all"]) == 1
    out, err = capsys.readouterr()
    matching, faulty = out.splitlines()
    assert matching.split(maxsplit=1) == ["a-matches", "1/1 subgraphs, by p"]
    assert faulty.startswith("c-faulty   cannot be told: ")
    assert err.splitlines()[-1] == "1 of 3 tasks matched, 1 cannot be told"


@pytest.mark.slow
def test_tasks_that_no_pass_matches_are_listed_if_asked_for(several, capsys):
    command = ["explain", str(several.folder / "cand"), str(several.tasks), "--missed"]
    (several.tasks / "c-faulty.task.yaml").unlink()
    assert main(command) == 0
    assert capsys.readouterr().out == (
        "b-misses   p: nearest: add (add): argument input: expected gelu, found silu (silu)\n"
    )
    (several.tasks / "b-misses.task.yaml").unlink()
    assert main(command) == 1
    assert capsys.readouterr().out == ""


def test_options_about_plans_are_refused_in_a_list_of_tasks(bench, gelu_add_pass, capsys):
    root = bench.candidate({"p": gelu_add_pass})
    assert main(["explain", str(root), "--all", "--sanitize"]) == 1
    assert "--sanitize: is about plans, and a list of tasks has none" in capsys.readouterr().err


def test_a_candidate_that_matches_nothing(bench, gelu_add_pass, capsys):
    bench.task("misses", source=SILU, ops=("silu", "add"))
    root = bench.candidate({"p": gelu_add_pass})
    assert main(["explain", str(root), str(bench.tasks), "--all"]) == 1
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[-1]) == ("", "0 of 1 tasks matched")


@pytest.mark.slow
def test_the_share_of_a_task_that_matches_is_told(bench, gelu_add_pass, capsys):
    path = bench.task("half", dtypes=("float32", "float16"))
    used_twice = """\
  g1: |
    def forward(in_0, in_1):
        tmp_0 = torch.nn.functional.gelu(in_0)
        return (tmp_0, tmp_0 + in_1)
"""
    head, _, subgraphs = path.read_text().replace("subgraphs: 2\n---", "subgraphs: 4\n---").rpartition("subgraphs:\n")
    more = subgraphs.replace("graph: g0", "graph: g1").replace("- id: ", "- id: other-")
    path.write_text(f"{head}{used_twice}subgraphs:\n{subgraphs}{more}")
    assert main(["explain", str(bench.candidate({"p": gelu_add_pass})), str(path), "--all"]) == 0
    assert capsys.readouterr().out == "half  2/4 subgraphs, by p\n"
