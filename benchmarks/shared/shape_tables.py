"""A candidate with a table by the shapes of a task, which has no entry for further sizes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.task import Task
from pytest_passbench.suite import find
from pytest_passbench.suite.taskfile import read_task

HONEST = (Path(__file__).resolve().parents[2] / "candidates" / "cpu-fused" / "relu_squared.py").read_text()
CALL = "    lib.relu_squared(x, out, x.numel(), x.dtype)"


def task() -> Task:
    """Return a task with four subgraphs that all have further sizes."""
    whole = read_task(next(find.installed_tasks().rglob("relu-square-e1cb.task.yaml")))
    parts = tuple(item for item in whole.subgraphs if "nemotron_h-float32" in item.id)
    return replace(whole, subgraphs=parts)


def candidate(folder: Path, call: str, part: Task) -> Candidate:
    """Write a candidate whose wrapper has ``call`` in place of the honest call. It may use ``TABLE``, by shape."""
    assert CALL in HONEST
    shapes = {item.inputs[0].shape: item.elements for item in part.subgraphs}
    text = HONEST.replace(CALL, call).replace("def pattern", f"TABLE = {shapes!r}\n\n\ndef pattern")
    (folder / "relu_squared.py").write_text(text)
    (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(["relu_squared"]))
    return Candidate.open(folder)
