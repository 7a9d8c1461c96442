"""A candidate looked over without being judged: its passes read in a sandbox, its kernels screened and compiled.

With a task also its launch plans: the passes are matched, as data, on that task's subgraphs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..candidate.layout import Candidate, PassDir
from ..candidate.triton import KernelReference, KernelRefusal, kernel_text
from ..kernels.errors import CompileError
from ..plans.launch import Request
from ..protocol import READ
from ..report.record import Finding
from ..rewrite.apply import apply_passes
from ..rewrite.errors import PassError
from ..rewrite.passes import Pass
from ..settings import Policy
from ..suite.build import build_graph
from ..suite.instantiate import example_inputs
from ..suite.model import Task
from . import sandbox
from .arm import Arm, ArmSettings
from .audits.layers import violation, warning
from .builder.build import Builder
from .builder.refusals import CompileFailed, KernelRefused
from .failures import ArmFailure
from .planning import Planner
from .reading import named
from .readings import Readings, folder

TIMEOUT = 120.0  # seconds for any answer of the reader


@dataclass(frozen=True)
class Planned:
    """The launch plan of one match: JSON-ready."""

    subgraph: str
    name: str
    plan: dict[str, Any]


@dataclass
class Survey:
    """Findings, the passes that could be read, and the plans of their matches."""

    findings: list[Finding] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    plans: list[Planned] = field(default_factory=list)


def survey(path: Path, policy: Policy = "kernels", task: Task | None = None) -> Survey:
    """Look a candidate over. Raises UserError for a folder that is no candidate, or if no sandbox starts."""
    candidate, walls, found = Candidate.open(path), sandbox.walls(), Survey()
    builder = Builder(walls, None)

    def start(folder: Path) -> Arm:
        return Arm(ArmSettings("reader", "cpu", 1, READ, walls, TIMEOUT, folder))

    readings = Readings(policy, builder, start, sandbox.CANDIDATE_MOUNT if walls.strong else "")
    try:
        chosen = candidate.directories if task is None else filter(None, [candidate.passes_for(task.id)])
        for passes in chosen:
            _Looker(candidate, passes, readings, builder, found).look(task)
    finally:
        readings.close()
    return found


class _Looker:
    """One pass directory."""

    def __init__(
        self, candidate: Candidate, passes: PassDir, readings: Readings, builder: Builder, found: Survey
    ) -> None:
        self._candidate, self._passes, self._readings = candidate, passes, readings
        self._builder, self._found = builder, found
        self._folder = folder(candidate, passes)

    def look(self, task: Task | None) -> None:
        for fault in self._passes.faults:
            file = named(fault.file.name, self._folder)
            self._found.findings.append(Finding("load", "fault", "violation", fault.message, file, fault.line))
        if self._passes.faults:
            return
        try:
            planner = self._readings.planner(self._candidate, self._passes)
            told = self._readings.passes(planner, self._passes)
            self._found.findings += self._patterns(told)
            self._found.findings += [*self._libraries(planner), *self._texts(planner)]
            if task is not None:
                self._plan(planner, told, task)
        except ArmFailure as failure:
            self._fail(failure)

    def _fail(self, failure: ArmFailure) -> None:
        said = violation("load", failure.status, failure.message, named("", self._folder))
        self._found.findings += failure.findings or (said,)

    def _patterns(self, told: tuple[dict[str, Any], ...]) -> Iterator[Finding]:
        for item in told:
            file = named(f"{item['name']}.py", self._folder)
            self._found.passes.append(file)
            for label in ("pattern", "replacement"):
                if isinstance(item[label], str):
                    yield violation("load", label, item[label], file)

    def _libraries(self, planner: Planner) -> Iterator[Finding]:
        for source, flags, openmp in planner.reader.kernels().libraries:
            try:
                self._builder.library(source, flags, openmp)
            except KernelRefused as refusal:
                yield violation("kernel", refusal.rule, refusal.message, self._folder)
            except (CompileFailed, CompileError) as error:
                yield warning("kernel", "compile", str(error))

    def _texts(self, planner: Planner) -> Iterator[Finding]:
        for text in planner.reader.kernels().triton:
            try:
                kernel_text(self._passes.path, KernelReference.from_json(json.loads(text)))
            except KernelRefusal as refusal:
                file = named(refusal.file, self._folder)
                kind = "violation" if refusal.rule else "warning"
                yield Finding("kernel", refusal.rule or "text", kind, refusal.message, file, refusal.line)
            except (ValueError, RecursionError) as error:
                yield warning("kernel", "text", f"a Triton kernel is named in a form that is none: {error}")

    def _plan(self, planner: Planner, told: tuple[dict[str, Any], ...], task: Task) -> None:
        for subgraph in task.subgraphs:
            gm = build_graph(task.graphs[subgraph.graph], str(task.path))
            kernels = _Noting(planner, subgraph.id, self._found.plans)
            try:
                passes = [Pass.from_data(item) for item in told]
                apply_passes(gm, passes, example_inputs(subgraph), kernels)
            except ArmFailure as failure:
                self._fail(failure)
            except PassError as error:
                self._found.findings.append(violation("load", "pattern", str(error), named("", self._folder)))
            except Exception as error:  # a pattern is the candidate's, and may be such that nothing can be said of it
                said = f"the passes cannot be matched: {type(error).__name__}: {error}"
                self._found.findings.append(violation("load", "pattern", said, named("", self._folder)))


@dataclass(frozen=True)
class _Noting:
    """Kernels that are noted and never run."""

    planner: Planner
    subgraph: str
    plans: list[Planned]

    def kernel(self, request: Request) -> Any:
        answer = self.planner.answer(request.to_data())
        self.plans.append(Planned(self.subgraph, request.name, answer.message["plan"]))
        return _never


def _never(*_tensors: Any) -> Any:
    raise RuntimeError("a kernel was called while a candidate is only looked over")
