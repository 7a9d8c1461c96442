"""A working folder for tests of the pytest plugin: candidates, task files, and a judge that returns what they say."""

from __future__ import annotations

import json
import textwrap

import pytest

# Imported here so that every inner run in this process shares them: pytester forgets modules of its runs.
import pytest_passbench.plugin.active
import pytest_passbench.plugin.plan
import pytest_passbench.report.html  # noqa: F401
from pytest_passbench.suite import find
from support.forked_pytest import ForkedPytest

OK: dict = {}

LEAN = [f"-pno:{name}" for name in ("anyio", "hypothesispytest", "timeout")]
"""Other plugins that may be installed: loading them again takes longer than most of the runs here."""

CONFTEST = """
import os, signal, time
from pathlib import Path
import pytest
from pytest_passbench.core.record import Against, ArmResult, Finding, PassReport, Record, Speed
from pytest_passbench.suite import find

find.installed_tasks = lambda: Path(__file__).parent / "installed" / "tasks"


class Judge:
    def __init__(self, settings, seed):
        self.seed = seed

    def environment(self):
        return {"sandbox": "fake"}

    def noise(self):
        return {}

    def touches(self, ref, candidate):
        return all(subgraph.meta.get("status") != "pass_miss" for subgraph in ref.load().subgraphs)

    def judge(self, task, candidate):
        for subgraph in task.subgraphs:
            yield record(task, subgraph, candidate, dict(subgraph.meta))

    def close(self):
        pass


def record(task, subgraph, candidate, told):
    if told.get("sleep"):
        time.sleep(told["sleep"])
    if told.get("interrupt"):
        raise KeyboardInterrupt
    if told.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if told.get("raise"):
        raise RuntimeError(told["raise"])
    found = Record(task.id, subgraph.id, candidate.name, dtypes=["float32"])
    ratio = told.get("ratio", 1.5)
    if ratio is not None and told.get("status", "ran") == "ran":
        found.arm.speed = Speed(ratio, ratio - 0.1, ratio + 0.1, "FASTER", 10.0, 10.0 / ratio)
        import math
        found.arm.speed.pairs = [[math.log(ratio)] * 2] * 3
    found.arm.correct_from = list(told.get("correct_from", [-11]))
    for name in ("status", "phase", "message", "output", "worst"):
        setattr(found.arm, name, told.get(name, getattr(found.arm, name)))
    found.arm.greatest_ratio64 = found.arm.mean_ratio64 = told.get("ratios64", [])
    found.arm.error64, found.eager_error64 = told.get("error64", []), told.get("eager_error64", [])
    found.passes = [PassReport("fuse", miss=told["miss"])] if "miss" in told else []
    found.findings = [Finding(*told["finding"])] if "finding" in told else []
    found.durations = told.get("durations", {})
    if "against" in told:
        ratio = told["against"]
        verdict = "SLOWER" if ratio < 1 else "FASTER"
        found.against = Against(ArmResult(correct_from=[-11]),
                                Speed(ratio, ratio - 0.01, ratio + 0.01, verdict, 10.0 * ratio, 10.0))
    return found


@pytest.hookimpl(tryfirst=True)
def pytest_passbench_make_session(config, settings, seed):
    return Judge(settings, seed)
"""

PASS = """
import torch
def pattern(x): return torch.relu(x)
def replacement_args(x): return (x,)
def kernel(x): return x
def replacement_func(): return kernel
"""


def task_text(name: str, *told: dict, tags: str = "lite") -> str:
    """Return a task file. The ``meta`` of each subgraph states what the judge returns for it."""
    header = f"passbench: task/1\nid: {name}\nops: [relu]\nsources: [made-up]\nmodality: text\ntags: [{tags}]\n"
    graph = "graphs:\n  g0: |\n    def forward(in_0):\n        return (torch.relu(in_0),)\n"
    inputs = "  inputs:\n  - {name: in_0, shape: [4], dtype: float32, mean: 0.0, std: 1.0}\n"
    rows = [
        f"- id: s{index}\n  graph: g0\n  dtype: float32\n  source: made-up\n  meta: {json.dumps(say)}\n{inputs}"
        for index, say in enumerate(told or (OK,))
    ]
    return f"{header}subgraphs: {len(rows)}\n---\n{graph}subgraphs:\n{''.join(rows)}"


class PytestFolder:
    """A folder to run pytest in, with the candidate ``passes`` and no tasks yet."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester, self.path = pytester, pytester.path
        # The inner conftest.py replaces this function. After a run in this process, monkeypatch restores it.
        monkeypatch.setattr(find, "installed_tasks", find.installed_tasks)
        self.conftest("")
        self.file("pytest.ini", "[pytest]\n")
        self.candidate("passes")

    def file(self, name: str, text: str):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def conftest(self, more: str) -> None:
        self.file("conftest.py", CONFTEST + textwrap.dedent(more))

    def candidate(self, name: str) -> None:
        self.file(f"{name}/fuse.py", PASS)
        self.file(f"{name}/sorted_output_pass_rule_names.json", '["fuse"]')

    def text(self, name: str, *told: dict, tags: str = "lite") -> str:
        return task_text(name, *told, tags=tags)

    def task(self, name: str, *told: dict, tags: str = "lite", family: str = "family") -> None:
        """Write an installed task."""
        self.file(f"installed/tasks/{family}/{name}.task.yaml", task_text(name, *told, tags=tags))

    def run(self, *args: str) -> pytest.RunResult:
        """Run ``pytest --passbench ARGS`` in this process, which saves a second. Ctrl+C in it ends only that run."""
        return self.pytester.runpytest_inprocess("--passbench", *LEAN, *args, no_reraise_ctrlc=True)

    def run_apart(self, *args: str) -> pytest.RunResult:
        """Run ``pytest --passbench ARGS`` in a process of its own."""
        return self.start_apart(*args).result()

    def start_apart(self, *args: str) -> ForkedPytest:
        """Start ``pytest --passbench ARGS`` in a process of its own."""
        return ForkedPytest(self.path, "--passbench", *LEAN, *args)
