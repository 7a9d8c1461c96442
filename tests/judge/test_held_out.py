"""Further sizes of a subgraph: a table by shape is right at the suite's alone, and accused of nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.run.judging import records
from pytest_passbench.suite import find
from pytest_passbench.suite.taskfile import read_task
from support.paths import ROOT

HONEST = (ROOT / "candidates" / "cpu-fused" / "relu_squared.py").read_text()
CALL = "    lib.relu_squared(x, out, x.numel(), x.dtype)"
RAISES = "    lib.relu_squared(x, out, TABLE[tuple(x.shape)], x.dtype)"
GUESSES = "    lib.relu_squared(x, out, TABLE.get(tuple(x.shape), 64), x.dtype)"


def judged(folder, call, seed):
    path = next(find.installed_tasks().rglob("relu-square-e1cb.task.yaml"))
    task = read_task(path)
    part = replace(task, subgraphs=tuple(item for item in task.subgraphs if "nemotron_h-float32" in item.id))
    shapes = {item.inputs[0].shape: item.elements for item in part.subgraphs}
    assert CALL in HONEST
    text = HONEST.replace(CALL, call).replace("def pattern", f"TABLE = {shapes!r}\n\n\ndef pattern")
    (folder / "relu_squared.py").write_text(text)
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(["relu_squared"]))
    settings = Settings(pipeline="direct", audit="off", held_out=2)
    with Session(settings, seed) as session:
        results = list(records(session, part, Candidate.open(folder), settings.tolerance))
    assert all(record.correct and record.arm.speed is not None for record in results)
    assert not any(finding.severity == "violation" for record in results for finding in record.findings)
    assert all(len(record.held_out_judged) == 2 for record in results)
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
