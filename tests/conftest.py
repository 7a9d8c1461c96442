"""Small tasks and candidates written on the spot, and the engine to judge them with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell has what it starts in the background ignore Ctrl+C, and so would all that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GELU_ADD = """
def forward(in_0, in_1):
    tmp_0 = torch.nn.functional.gelu(in_0)
    tmp_1 = tmp_0 + in_1
    return (tmp_1,)
"""
GELU_ADD_PASS = """
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load('''
#include <cmath>
#include <cstdint>
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];
}''')

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args(x, y):
    return (x, y)

def gelu_add(x, y):
    out = torch.empty_like(x)
    lib.gelu_add(x, y, out, x.numel())
    return out

def replacement_func():
    return gelu_add
"""


class Bench:
    """Writes task files and candidates below a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tasks = folder / "tasks"
        self.tasks.mkdir()

    def task(
        self,
        name: str = "gelu-add",
        source: str = GELU_ADD,
        shapes: tuple[tuple[int, ...], ...] = ((16, 32), (16, 32)),
        dtypes: tuple[str, ...] = ("float32",),
        ops: tuple[str, ...] = ("gelu", "add"),
        scales: tuple[int, ...] = (1,),
        stats: str = "mean: 0.0, std: 1.0, min: -5.0, max: 5.0",
    ) -> Path:
        """A task with one subgraph per dtype and scale (of the first dimension)."""
        subgraphs = [
            self._subgraph(f"{dtype}-x{scale}", dtype, [(shape[0] * scale, *shape[1:]) for shape in shapes], stats)
            for dtype in dtypes
            for scale in scales
        ]
        body = textwrap.indent(textwrap.dedent(source).strip(), "    ")
        text = (
            f"passbench: task/1\nid: {name}\nops: [{', '.join(ops)}]\nsources: [tests]\nmodality: text\n"
            f"tags: [lite]\nsubgraphs: {len(subgraphs)}\n---\ngraphs:\n  g0: |\n{body}\nsubgraphs:\n"
            + "".join(subgraphs)
        )
        path = self.tasks / f"{name}.task.yaml"
        path.write_text(text)
        return path

    @staticmethod
    def _subgraph(name: str, dtype: str, shapes: list[tuple[int, ...]], stats: str) -> str:
        lines = [f"- id: {name}", "  graph: g0", f"  dtype: {dtype}", "  source: tests", "  inputs:"]
        for index, shape in enumerate(shapes):
            lines.append(f"  - {{name: in_{index}, shape: {list(shape)}, dtype: {dtype}, {stats}}}")
        return "\n".join(lines) + "\n"

    def candidate(self, passes: Mapping[str, str], name: str = "cand", task: str = "", **helpers: str) -> Path:
        """A candidate's pass directory; with ``task`` the one for that task alone."""
        root = self.folder / name
        folder = root / task / "pass_dir" if task else root
        folder.mkdir(parents=True, exist_ok=True)
        for stem, code in passes.items():
            (folder / f"{stem}.py").write_text(textwrap.dedent(code))
        for stem, code in helpers.items():
            (folder / f"{stem}.py").write_text(textwrap.dedent(code))
        (folder / "sorted_output_pass_rule_names.json").write_text(json.dumps(list(passes)))
        return root

    def judge(self, candidate: Path | None = None, **settings: Any) -> dict[str, Any]:
        """Judge all tasks; the records by "task/subgraph"."""
        from pytest_passbench.candidate.layout import Candidate
        from pytest_passbench.core.settings import Settings
        from pytest_passbench.judge.session import Session
        from pytest_passbench.run.judging import records
        from pytest_passbench.suite.taskfile import read_task

        settings.setdefault("pipeline", "direct")
        settings.setdefault("audit", "off")
        chosen = Candidate.open(candidate or self.folder / "cand")
        told = Settings(**settings)
        with Session(told, b"a secret of the tests") as session:
            tasks = [read_task(path) for path in sorted(self.tasks.glob("*.yaml"))]
            found = [record for task in tasks for record in records(session, task, chosen, told.tolerance)]
        return {f"{record.task}/{record.subgraph}": record for record in found}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(scope="module")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One for all tests of a module, which judges once."""
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def gelu_add_pass() -> str:
    return GELU_ADD_PASS


def make_wrapper(body: str, head: str = "") -> str:
    """A pass for gelu(x) + y whose wrapper has the given body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return (
        f"import torch\n{textwrap.dedent(head)}\n"
        "def pattern(x, y):\n    return torch.nn.functional.gelu(x) + y\n\n"
        "def replacement_args(x, y):\n    return (x, y)\n\n"
        f"def kernel(x, y):\n{lines}\n\n"
        "def replacement_func():\n    return kernel\n"
    )


@pytest.fixture(scope="session")
def wrapper() -> Callable[..., str]:
    return make_wrapper


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bubblewrap: needs the strong sandbox")
    config.addinivalue_line("markers", "root: needs the superuser, and an interpreter that everybody can run")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What this machine can't run is deselected, and counted as such."""
    lacking = [name for name, there in HAS.items() if any(map(_marked(name), items)) and not there()]
    dropped = [item for item in items if any(item.get_closest_marker(name) for name in lacking)]
    if dropped:
        config.hook.pytest_deselected(items=dropped)
        items[:] = [item for item in items if item not in dropped]


def _marked(name: str) -> Callable[[pytest.Item], bool]:
    return lambda item: item.get_closest_marker(name) is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _has_bubblewrap() -> bool:
    from pytest_passbench.judge.arms import sandbox

    return sandbox.walls().strong


def _has_other_user() -> bool:
    """Whether we may become another user, who can run this interpreter too."""
    try:
        tried = subprocess.run([sys.executable, "-c", ""], user=65534, check=False) if os.geteuid() == 0 else None
        return tried is not None and tried.returncode == 0
    except OSError:
        return False


HAS = {"gpu": _has_gpu, "bubblewrap": _has_bubblewrap, "root": _has_other_user}
