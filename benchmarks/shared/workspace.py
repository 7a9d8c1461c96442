"""A folder with small tasks and candidates written on the spot, and judges for them."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.layout import Candidate
from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.session import Session
from pytest_passbench.run.judging import records
from pytest_passbench.suite.taskfile import read_task

GELU_ADD = """
def forward(in_0, in_1):
    tmp_0 = torch.nn.functional.gelu(in_0)
    tmp_1 = tmp_0 + in_1
    return (tmp_1,)
"""
GELU_ADD_KERNEL = """
extern "C" void gelu_add(const float* x, const float* y, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f)) + y[i];
}"""
#: The body of a wrapper that computes as eager does.
AS_EAGER = "return torch.nn.functional.gelu(x) + y"
MAX_JUDGES = 3


class Judges:
    """Judges that tests share: one for all tests that have the same settings.

    Only the ``MAX_JUDGES`` that were used last are kept, since each has several processes.
    """

    def __init__(self) -> None:
        self._sessions: dict[Settings, Session] = {}

    def session(self, settings: Settings) -> Session:
        """Return the judge with these settings; start it if there is none.

        It does not measure the machine's noise, and measures nothing twice.
        """
        session = self._sessions.pop(settings, None) or Session(settings, b"a secret of the tests")
        session.thorough = False
        self._sessions[settings] = session
        if len(self._sessions) > MAX_JUDGES:
            self._sessions.pop(next(iter(self._sessions))).close()
        return session

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_exception: object) -> None:
        for session in self._sessions.values():
            session.close()


class Workspace:
    """A folder with task files and candidates, and their judges: ``judges``, or a new judge for each call."""

    def __init__(self, folder: Path, judges: Judges | None = None) -> None:
        self.folder, self._judges = folder, judges
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
        """Write a task with one subgraph per dtype and scale (of the first dimension). Return its path."""
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
        """Write a candidate's pass directory, with ``task`` that of this task. Return the candidate's folder."""
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
        """Judge all tasks. Return the last record of each "task/subgraph"."""
        return {f"{record.task}/{record.subgraph}": record for record in self.records(candidate, **settings)}

    def records(self, candidate: Path | None = None, **settings: Any) -> list[Any]:
        """Judge all tasks. Return the records in order. A budget is for one run, so that run has its own judge."""
        asked = Settings(**{"pipeline": "direct", "audit": "off", **settings})
        shared = self._judges if asked.budget is None else None
        with nullcontext(shared) if shared else Judges() as judges:
            return self.judged_by(judges.session(asked), candidate)

    def judged_by(self, session: Session, candidate: Path | None = None) -> list[Any]:
        """Judge all tasks with this judge. Return the records in order."""
        chosen = Candidate.open(candidate or self.folder / "cand")
        tasks = [read_task(path) for path in sorted(self.tasks.glob("*.yaml"))]
        return [record for task in tasks for record in records(session, task, chosen, session.settings)]


def make_wrapper(body: str, head: str = "") -> str:
    """Return a pass for gelu(x) + y whose wrapper has this body."""
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    return (
        f"import torch\n{textwrap.dedent(head)}\n"
        "def pattern(x, y):\n    return torch.nn.functional.gelu(x) + y\n\n"
        "def replacement_args(x, y):\n    return (x, y)\n\n"
        f"def kernel(x, y):\n{lines}\n\n"
        "def replacement_func():\n    return kernel\n"
    )


def make_cpp_pass(kernel: str = GELU_ADD_KERNEL, out: str = "torch.empty_like(x)") -> str:
    """Return a pass for gelu(x) + y by a C++ kernel ``gelu_add(x, y, out, n)``, which writes to ``out``."""
    head = "from pytest_passbench.kernels import cpp\n\nlib = cpp.load('''\n#include <cmath>\n#include <cstdint>"
    body = f"out = {out}\nlib.gelu_add(x, y, out, x.numel())\nreturn out"
    return make_wrapper(body, f"{head}{kernel}''')")
