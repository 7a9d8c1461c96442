"""Further sizes of a subgraph: a table by shape is right only at the suite's own sizes, and accused of nothing."""

from __future__ import annotations

import pytest

from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.run.judging import records
from shared import shape_tables
from shared.shape_tables import CALL

RAISES = "    lib.relu_squared(x, out, TABLE[tuple(x.shape)], x.dtype)"
GUESSES = "    lib.relu_squared(x, out, TABLE.get(tuple(x.shape), 64), x.dtype)"


def judged(folder, call, seed):
    part = shape_tables.task()
    candidate = shape_tables.candidate(folder, call, part)
    settings = Settings(pipeline="direct", audit="off", held_out=2)
    with Session(settings, seed) as session:
        results = list(records(session, part, candidate, settings))
    assert all(record.correct and record.arm.speed is not None for record in results)
    assert not any(finding.severity == "violation" for record in results for finding in record.findings)
    assert all(len(record.held_out_judged) == 2 for record in results)
    assert all((record.held_out_speed is None) == (len(record.held_out_failures) == 2) for record in results)
    return [item for record in results for item in record.held_out], [record.held_out_failures for record in results]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [b"one", b"two", b"three"])
def test_a_table_by_shape_that_raises_elsewhere_has_no_kernel_there(tmp_path, seed):
    held_out, failures = judged(tmp_path, RAISES, seed)
    assert [item for group in failures for item in group] == held_out
    assert not any(item.has_kernel for item in held_out)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [b"one", b"two", b"three"])
def test_a_table_by_shape_that_guesses_elsewhere_is_wrong_there(tmp_path, seed):
    held_out, failures = judged(tmp_path, GUESSES, seed)
    assert [item for group in failures for item in group] == held_out
    assert all(item.has_kernel for item in held_out)


@pytest.mark.slow
def test_an_honest_pass_is_right_at_every_size(tmp_path):
    _, failures = judged(tmp_path, CALL, b"one")
    assert not any(failures)


@pytest.mark.slow
def test_a_subgraph_that_is_measured_again_has_its_further_sizes_judged_again(tmp_path):
    part = shape_tables.task()
    for name in ("fast", "slow"):
        (tmp_path / name).mkdir()
    shape_tables.candidate(tmp_path / "slow", f"{CALL}\n{CALL}\n{CALL}\n{CALL}", part)
    candidate = shape_tables.candidate(tmp_path / "fast", CALL, part)
    settings = Settings(pipeline="direct", audit="off", held_out=1, against=tmp_path / "slow")
    with Session(settings, b"one") as session:  # a difference from a reference is always measured again
        largest = max(part.subgraphs, key=lambda item: item.elements)
        every = [record for record in session.judge(part, candidate) if record.subgraph == largest.id]
    first, again = every
    assert len(first.held_out) == len(again.held_out) == 1
    assert first.held_out[0].batch == again.held_out[0].batch
    assert first.held_out[0].size == again.held_out[0].size
    assert first.held_out[0] is not again.held_out[0]
    assert again.held_out_failures == []


SMALLER_AND_SMALLER = """
import torch

def pattern(x, n):
    return x / n

def replacement_args(x, n):
    return (x, n)

def kernel(x, n):
    return {answer}

def replacement_func():
    return kernel
"""


def shrinking_task(path):
    """Write a task whose answers are so small at larger sizes, but not at its own two, that zeros pass at t = -4."""
    graphs = "".join(
        f"  g{n}: |\n    def forward(in_0):\n        tmp_0 = in_0 / {n * n}\n        return (tmp_0,)\n"
        for n in (128, 176)
    )
    subgraphs = "".join(
        f"- id: float32-b1n{n}\n  graph: g{n}\n  dtype: float32\n  source: tests (1 layer, batch 1, size {n})\n"
        f"  inputs:\n  - {{name: in_0, shape: [{n}, 64], dtype: float32, mean: 0.0, std: 1.0, min: -5.0, max: 5.0}}\n"
        for n in (128, 176)
    )
    head = "id: div\nops: [div]\nsources: [tests]\nmodality: text\ntags: [lite]\nsubgraphs: 2\n---\n"
    path.write_text(f"passbench: task/1\n{head}graphs:\n{graphs}subgraphs:\n{subgraphs}")


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["x / n", "x / n if n in (128 * 128, 176 * 176) else x * 0"])
def test_a_size_at_which_zeros_pass_is_drawn_anew(bench, answer):
    shrinking_task(bench.tasks / "div.task.yaml")
    bench.candidate({"p": SMALLER_AND_SMALLER.format(answer=answer)})
    judged = bench.records(policy="open", held_out=3, tolerance=-4)
    assert all(record.correct for record in judged)
    sizes = [(item.size, item in record.held_out_failures) for record in judged for item in record.held_out_judged]
    assert len(sizes) > 2
    assert all(size < 210 for size, _ in sizes)
    assert {failed for _, failed in sizes} == {answer != "x / n"}
