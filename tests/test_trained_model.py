"""The small model of benchmarks/trained_model: laws of its parts, and the whole loop at toy size."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

if find_spec("trl") is None:  # importing it takes seconds of each process that collects tests
    pytest.skip("the extra `train` is not installed", allow_module_level=True)

from trained_model import sft, table, tokens
from trained_model.answers import answer, body_of
from trained_model.collect import graph_of, load
from trained_model.controls import distance
from trained_model.files import Journal, read, write
from trained_model.graphs import Unfit, check, runs
from trained_model.grpo import advantages
from trained_model.judged import key_of
from trained_model.pairs import right_pairs
from trained_model.random_graphs import random_graph
from trained_model.repairs import KINDS, spoiled
from trained_model.splits import assign, leaks

from pytest_passbench.dataset import shards

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def graphs():
    chance = random.Random(0)
    made = [graph_of("random", *random_graph(chance), []) for _ in range(150)]
    source = "def forward(in_0):\n    tmp_0 = torch.sigmoid(in_0)\n    return (tmp_0,)\n"
    inputs = [{"name": "in_0", "shape": [4, 512]}]
    return made + [graph_of("real", source, inputs, [f"family/{number}"]) for number in range(20)]


def test_splits_have_no_form_sequence_or_family_in_common(graphs):
    counts = assign(graphs)
    assert counts["random test"]
    assert counts["random train"]
    assert leaks(graphs) == []
    train = next(graph for graph in graphs if graph.split == "train")
    held_out = next(graph for graph in graphs if graph.split == "test")
    held_out.operators = train.operators
    assert leaks(graphs)


def test_tokenizer_gives_each_text_back(graphs):
    pairs = [(graph, answer(graph.source, graph.shapes())) for graph in graphs]
    tokenizer = tokens.train(pairs[:100])
    for graph, text in pairs:
        for written in (text, tokens.prompt(graph), 'error: "é" is no name; 1.25e-07, tmp_17'):
            assert tokens.text_of(tokenizer, tokens.encoded(tokenizer, "", written)[1]) == written
    ids = tokenizer.encode("    tmp_3 = in_1 + tmp_2\n").tokens
    assert {"tmp_3", "in_1", "tmp_2"} <= set(ids)


def test_answers_have_the_graphs_text_and_its_names(graphs):
    for graph in graphs:
        text = answer(graph.source, graph.shapes())
        compile(text, "fused.py", "exec")
        assert "\n".join(graph.source.strip().splitlines()[1:]) in text
        assert body_of(text) in text


def test_a_graph_without_a_rule_is_refused():
    source = "def forward(in_0):\n    tmp_0 = torch.cumsum(in_0, -1)\n    return (tmp_0,)\n"
    with pytest.raises(Unfit, match="no rule"):
        check(source, {"in_0": (4, 8)})


def test_runs_of_a_longer_graph_keep_their_values_inside():
    source = (
        "def forward(in_0, in_1):\n    tmp_0 = in_0 + in_1\n    tmp_1 = torch.relu(tmp_0)\n"
        "    tmp_2 = torch.cumsum(tmp_1, 0)\n    tmp_3 = tmp_2 * tmp_1\n    return (tmp_3,)\n"
    )
    texts = dict(runs(source))
    assert any("torch.relu" in text and "in_0 + in_1" in text for text in texts)
    assert not any("cumsum" in text for text in texts)


def test_spoiled_answers_differ_in_the_kernel_alone(graphs):
    chance, texts = random.Random(0), [answer(graph.source, graph.shapes()) for graph in graphs[:40]]
    for kind in KINDS:
        changed = [(text, spoiled(text, kind, chance)) for text in texts]
        assert any(old != new for old, new in changed)
        assert all(old.partition("\ndef pattern")[2] == new.partition("\ndef pattern")[2] for old, new in changed)


@pytest.mark.parametrize("call", ["softplus(in_0, beta=2)", "gelu(in_0, approximate='tanh', out=in_1)"])
def test_an_operator_with_a_keyword_that_no_rule_has_is_refused(call):
    source = f"def forward(in_0, in_1):\n    tmp_0 = torch.nn.functional.{call}\n    return (tmp_0,)\n"
    with pytest.raises(Unfit, match="no rule"):
        check(source, {"in_0": (4, 8), "in_1": (4, 8)})


def test_tables_say_which_arms_lack_answers_and_count_a_broken_rule_as_0(graphs, tmp_path, monkeypatch):
    monkeypatch.setattr(table, "right_pairs", lambda *_: [])
    rows = [{"graph": graph.id, "greedy": "", "samples": []} for graph in graphs[:2]]
    for arm, count in (("sft", 2), ("grpo", 1)):
        write(tmp_path / "answers" / f"{arm}-0.jsonl", rows[:count])
    with pytest.raises(SystemExit, match="no arm has an answer to each graph"):
        table.table(tmp_path, graphs[:2], "test.jsonl")
    verdict = {"right": False, "AS": 0.0, "staged": 0.0}
    write(tmp_path / "test.jsonl", [{"key": key_of(graph, ""), **verdict} for graph in graphs[:2]])
    text = table.table(tmp_path, graphs[:2], "test.jsonl")
    assert "Left out, since answers are lacking: grpo\n" in text
    (row,) = [line for line in text.split("## random: 2 graphs")[1].split("##")[0].splitlines() if "| sft" in line]
    assert [cell.strip() for cell in row.split("|")][4] == "0.000 [0.000, 0.000]"


def test_advantages_leave_out_what_was_not_judged():
    assert advantages([1.0, 0.0, None, 0.5, 2.0, 2.0, 2.0, 2.0], 4) == [0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert distance(["add", "relu"], ["add", "mul", "relu"]) == 1


def test_a_journal_goes_on_behind_a_line_that_was_cut(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a"')
    journal = Journal(path)
    journal.add({"a": 2})
    journal.close()
    assert read(path) == [{"a": 1}, {"a": 2}]


def test_a_training_that_was_killed_goes_on_as_if_it_had_not_been(graphs, tmp_path, monkeypatch):
    pairs = [(graph, answer(graph.source, graph.shapes())) for graph in graphs[:40]]
    tokenizer = tokens.train(pairs)
    rows = [tokens.encoded(tokenizer, tokens.prompt(graph), text) for graph, text in pairs]
    settings = sft.Training(tokens=6000, rows=4, warm_up=2, size="toy", threads=1, save_every=2)
    whole = sft.train(rows, tokenizer, tmp_path / "whole", settings)
    save = sft._save
    with monkeypatch.context() as patch:
        patch.setattr(sft, "_save", lambda *state: (save(*state), exec("raise KeyboardInterrupt")))
        with pytest.raises(KeyboardInterrupt):
            sft.train(rows, tokenizer, tmp_path / "killed", settings)
    again = sft.train(rows, tokenizer, tmp_path / "killed", settings)
    assert len(read(tmp_path / "killed" / "log.jsonl")) == len(read(tmp_path / "whole" / "log.jsonl")) > 1
    assert all(torch.equal(one, other) for one, other in zip(whole.parameters(), again.parameters(), strict=True))


def stage(name, folder, *options):
    """Run a stage as its command does, and return what it prints."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-m", "trained_model", name, str(folder), "--threads=1", "--size=toy", *options]
    place = ROOT / "benchmarks"
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_loop_at_toy_size(tmp_path):
    folder, dataset = tmp_path / "toy", tmp_path / "dataset"
    rows = [row for row in shards.read(ROOT / "dataset") if len(row.operators) <= 3]
    shards.write(random.Random(0).sample(rows, 300), dataset)
    stage("graphs", folder, f"--dataset={dataset}", "--count=60")
    assert {graph.origin for graph in load(folder)} == {"real", "random"}
    stage("judge", folder, "--most=4")
    stage("repairs", folder, "--repairs=6")
    assert right_pairs(folder, "train")
    stage("tokenizer", folder)
    stage("sft", folder, "--tokens=20000", "--repairs=6")
    stage("grpo", folder, "--steps=1")
    for arm in ("random", "sft", "grpo", "controls"):
        stage("answer", folder, f"--arm={arm}", "--split=test", "--held-out=1")
    text = stage("final", folder, "--split=test", "--held-out=1")
    assert "| teacher" in text
    assert stage("final", folder, "--split=test", "--held-out=1") == text  # nothing is judged again
