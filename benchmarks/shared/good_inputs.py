"""Small good inputs of every kind: a task, a published sample, a candidate, results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_passbench.core import seed as seeds
from pytest_passbench.core.record import Against, ArmResult, PassReport, Record, Speed, Stored
from pytest_passbench.core.run import Run
from pytest_passbench.timing.estimate import estimate

MANIFEST = "sorted_output_pass_rule_names.json"
SOURCE = """def forward(in_0, in_1):
    tmp_0 = torch.nn.functional.gelu(in_0)
    tmp_1 = tmp_0 + in_1
    return (tmp_1,)
"""
HEAD = """passbench: task/1
id: gelu-add
ops: [gelu, add]
sources: [tests]
modality: text
tags: [lite]
subgraphs: 1
"""
SUBGRAPH = """- id: float32-x1
  graph: g0
  dtype: float32
  source: tests
  inputs:
  - {name: in_0, shape: [16, 32], dtype: float32, mean: 0.0, std: 1.0, min: -5.0, max: 5.0}
  - {name: in_1, shape: [16, 32], dtype: float32, mean: 0.0, std: 1.0}
"""
PASS = """import torch
from pytest_passbench.kernels import cpp

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args(x, y):
    return (x, y)

def replacement_func():
    return torch.add
"""
MODEL = "import torch\n\nclass GraphModule(torch.nn.Module):\n    def forward(self, in_0, in_1):\n" + "".join(
    f"        {line.strip()}\n" for line in SOURCE.splitlines()[1:]
)
WEIGHTS = "\n".join(
    f"class Program_weight_tensor_meta_{name}:\n\tname = {name!r}\n\tshape = [16, 32]\n"
    '\tdtype = "torch.float32"\n\tdevice = "cpu"\n\tmean = 0.0\n\tstd = 1.0\n'
    for name in ("in_0", "in_1")
)


def task_text(source: str = SOURCE, subgraphs: str = SUBGRAPH, head: str = HEAD) -> str:
    """Return the text of a task file with one graph."""
    graph = "".join(f"    {line}\n" for line in source.splitlines())
    return f"{head}---\ngraphs:\n  g0: |\n{graph}subgraphs:\n{subgraphs}"


def write_task(folder: Path, text: str | bytes | None = None) -> Path:
    """Write a task file and return its path."""
    path = folder / "gelu-add.task.yaml"
    text = task_text() if text is None else text
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path


def write_sample(folder: Path) -> Path:
    """Write a published sample of one subgraph and return its folder."""
    inner = folder / "sample" / "sub"
    inner.mkdir(parents=True)
    (inner.parent / "graph_list.txt").write_text("sub\n")
    (inner / "model.py").write_text(MODEL)
    (inner / "weight_meta.py").write_text(WEIGHTS)
    (inner / "input_meta.py").write_text("")
    constraints = "dynamic_dim_constraint_symbol2example_value = {S0: 16}\n"
    (inner / "input_tensor_constraints.py").write_text(constraints)
    (inner / "graph_net.json").write_text(
        '{"framework": "torch", "model_name": "m", "passbench": {"tags": ["lite"]}}'
    )
    return inner.parent


def write_candidate(folder: Path) -> Path:
    """Write a candidate of one pass and return its folder."""
    path = folder / "cand"
    path.mkdir()
    (path / MANIFEST).write_text('["fuse"]')
    (path / "fuse.py").write_text(PASS)
    return path


def results() -> dict[str, Any]:
    """Return a results file's contents: one candidate, two subgraphs, a baseline."""
    pairs = [[0.5, 0.51, 0.49], [0.52, 0.5, 0.51]]
    found = estimate(pairs)
    speed = Speed(found.ratio, found.low, found.high, "FASTER", 10.0, 6.0, pairs)
    seed = bytes(32)
    records = [
        Record(
            task="gelu-add",
            subgraph=name,
            candidate="cand",
            dtype="float32",
            dtypes=["float32"],
            eager_error64=[1e-7],
            arm=ArmResult(correct_from=[-6], error64=[1e-7], speed=speed),
            baselines={"inductor": ArmResult(correct_from=[-11], speed_note="not measured")},
            passes=[PassReport("fuse", 1, ["gelu", "add"])],
            operators=["gelu", "add"],
            durations={"read": 0.5, "blocks": 1.0},
            against=Against(ArmResult(correct_from=[-6], speed=speed), speed),
            stored=Stored("ran", True, speed, speed),
        )
        for name in ("float32-x1", "float32-x2")
    ]
    run = Run(
        settings={"tolerance": -5, "device": "cpu", "score": {"b": 0.1, "p": 0.0, "interpretation": "default"}},
        environment={"cpu": "one"},
        tasks=["gelu-add"],
        records=records,
        candidates=[{"name": "cand", "path": "cand", "content_hash": "0" * 64}],
        seed={"commitment": seeds.commitment(seed), "revealed": seed.hex()},
        noise={"width": 0.02, "offset": 0.0, "sessions": 2},
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:10:00+00:00",
        selected={"cand": {"gelu-add": 2}},
        hashes={"tasks": {}, "harness": ""},
        against={"name": "old", "path": "old", "content_hash": "1" * 64},
        compared={"file": "old.json", "candidates": {"cand": "cand"}, "noise": {"delta": 0.02}, "subgraphs": 2},
    )
    data: dict[str, Any] = run.to_json()
    return data


def write_results(folder: Path, data: Any, name: str = "results.json") -> Path:
    """Write JSON, or text as it is, and return the path."""
    path = folder / name
    text = data if isinstance(data, str | bytes) else json.dumps(data)
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path
