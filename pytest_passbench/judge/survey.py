"""The survey of a candidate without judging it (``passbench explain``).

Its passes are read in a sandbox, and its kernels are screened and compiled. With a task, the passes are also matched
as data on the task's subgraphs, which gives their launch plans. No kernel is run unless sanitizers are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.candidate.triton import KernelReference, kernel_text
from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Finding, PassReport
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.settings import Policy
from pytest_passbench.core.task import Subgraph, Task
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.arms.cuda import start_template
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.names import CANDIDATE
from pytest_passbench.judge.arms.template import Answer
from pytest_passbench.judge.audits.findings import violation
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.compile_errors import CompileFailed, located, unshown
from pytest_passbench.judge.builder.sanitized import sanitized
from pytest_passbench.judge.builder.store import cache_folder
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.inputs.pages import Pages, plan_layout
from pytest_passbench.judge.planning.candidate_readers import CandidateReaders
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.planning.reader_process import LibrarySource, named
from pytest_passbench.judge.results import pass_reports
from pytest_passbench.protocol import READ, Order
from pytest_passbench.suite.limits import check_memory

MAX_SANITIZED = 12  # plans of a task whose kernels are run with sanitizers
TIMEOUT_SECONDS = 120.0  # for each answer of the reader


@dataclass(frozen=True)
class MatchPlan:
    """The launch plan of a match: JSON-ready."""

    subgraph: str
    name: str
    plan: dict[str, Any]


@dataclass(frozen=True)
class MatchReport:
    """The effect of all passes on a subgraph.

    ``places`` has, for each match, the pass's name and the variables of the graph's text that it replaced.
    """

    subgraph: str
    passes: tuple[PassReport, ...]
    places: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass
class Survey:
    """The result: findings, the files of the passes that could be read, and the plans of their matches."""

    findings: list[Finding] = field(default_factory=list)
    passes: list[str] = field(default_factory=list)
    plans: list[MatchPlan] = field(default_factory=list)
    matched: list[MatchReport] = field(default_factory=list)
    #: The number of plans whose kernels were run with sanitizers; None if sanitizers were not asked for.
    sanitized: int | None = None

    @property
    def fault(self) -> Finding | None:
        """The first finding that is a violation or an error; None if there is none."""
        return next((finding for finding in self.findings if finding.severity in ("violation", "error")), None)


def survey(path: Path, policy: Policy = "kernels", task: Task | None = None, sanitize: bool = False) -> Survey:
    """Survey a candidate, with plans for the matches of ``task`` if one is given.

    With ``sanitize`` the C++ kernels of these plans are also run with the compiler's sanitizers.

    Raises UserError if the folder is not a candidate, or if no sandbox starts.
    """
    candidate, walls, result = Candidate.open(path), sandbox.walls(), Survey()
    builder, triton = Builder(walls, cache_folder()), TritonBuilder(walls, cache_folder())

    def start() -> Arm:
        return Arm(ArmSettings("reader", "cpu", 1, READ, walls, TIMEOUT_SECONDS))

    readers = CandidateReaders(policy, builder, triton, start)
    try:
        directories = candidate.directories if task is None else filter(None, [candidate.passes_for(task.id)])
        for passes in directories:
            looker = _Looker(candidate, passes, readers, result)
            looker.look(task)
            if sanitize:
                looker.sanitize(walls)
    finally:
        readers.close()
    return result


class _Looker:
    """The survey of a pass directory."""

    def __init__(self, candidate: Candidate, passes: PassDir, readers: CandidateReaders, result: Survey) -> None:
        self._candidate, self._passes, self._readers, self._survey = candidate, passes, readers, result
        self._folder = candidate.folder(passes)
        self._reported: set[str] = set()  # the messages of kernels' errors

    def look(self, task: Task | None) -> None:
        if self._passes.problem:
            self._survey.findings.append(Finding("load", "manifest", "error", self._passes.problem, self._folder))
            return
        for fault in self._passes.faults:
            file = named(fault.file.name, self._folder)
            self._survey.findings.append(Finding("load", "fault", "error", fault.message, file, fault.line))
        if self._passes.faults:
            return
        try:
            planner = self._readers.planner(self._candidate, self._passes)
            reports = self._readers.passes(self._candidate, self._passes)
            self._survey.findings += self._patterns(reports)
            libraries, texts = planner.reader.kernels()
            self._survey.findings += [*self._libraries(planner, libraries), *self._texts(texts)]
            if task is not None:
                self._plan(planner, reports, task)
        except ArmFailure as failure:
            self._fail(failure)

    def _fail(self, failure: ArmFailure) -> None:
        """Add the findings of a failure, each once.

        A kernel's compile error was reported before, and comes again with each match.
        """
        cause = failure.__cause__
        if isinstance(cause, Rejected) and cause.message in self._reported:
            return
        severity = "violation" if failure.status == "integrity" else "error"
        finding = Finding("load", failure.status, severity, failure.message, named("", self._folder))
        self._add(*failure.findings or (finding,))

    def _add(self, *findings: Finding) -> None:
        self._survey.findings += [finding for finding in findings if finding not in self._survey.findings]

    def _patterns(self, reports: tuple[dict[str, Any], ...]) -> Iterator[Finding]:
        for item in reports:
            file = named(f"{item['name']}.py", self._folder)
            self._survey.passes.append(file)
            for label in ("pattern", "replacement"):
                if isinstance(item.get(label), str):
                    yield Finding("load", label, "error", item[label], file)

    def _libraries(self, planner: Planner, libraries: Iterable[LibrarySource]) -> Iterator[Finding]:
        for library in libraries:
            file = named(library.file, self._folder)
            try:
                planner.builder.library(library.source, library.flags, library.openmp)
            except Rejected as refusal:
                self._reported.add(refusal.message)
                if isinstance(refusal, CompileFailed) and refusal.errors:
                    yield from self._errors(refusal, library)
                elif refusal.layer == "compile":
                    yield Finding("kernel", "compile", "error", refusal.message, file, library.line)
                else:
                    yield violation("kernel", refusal.rule, refusal.message, file or self._folder, library.line)

    def _errors(self, failed: CompileFailed, library: LibrarySource) -> Iterator[Finding]:
        """Yield the first errors of a library. The message of the last one counts the others."""
        findings = located(failed, self._passes.path, library.file or "this candidate")
        for number, error in enumerate(findings, 1):
            more = unshown(len(failed.errors)) if number == len(findings) else []
            message = "\n".join([error.generated + error.text, error.excerpt, *more])
            file, line = (error.file, error.line) if error.file else (library.file, library.line)
            yield Finding("kernel", "compile", "error", message, named(file, self._folder), line)

    def _texts(self, texts: Iterable[str]) -> Iterator[Finding]:
        for text in texts:
            try:
                kernel_text(self._passes.path, KernelReference.read(text))
            except Rejected as refusal:
                self._reported.add(refusal.message)
                rule = refusal.rule if refusal.layer == "kernel" else ""  # else the reader's reference is malformed
                file, kind = named(refusal.file, self._folder) or self._folder, "violation" if rule else "error"
                yield Finding("kernel", rule or "text", kind, refusal.message, file, refusal.line)

    def _note(self, subgraph: str, name: str, answer: Answer) -> None:
        if not answer.plan:
            return
        self._survey.plans.append(MatchPlan(subgraph, name, answer.plan))
        if answer.mismatch is not None:
            message = f"{subgraph}: {answer.mismatch.message}"
            self._add(Finding("plan", "shape", "error", message, named(f"{name}.py", self._folder)))

    def sanitize(self, walls: sandbox.Walls) -> None:
        """Run the C++ kernels of the first plans with sanitizers, and add their reports, each once."""
        with_kernels = (match for match in self._survey.plans if any("cpp" in item for item in match.plan["kernels"]))
        plans = {repr(match.plan): match for match in reversed(list(with_kernels))}
        self._survey.sanitized = self._survey.sanitized or 0
        for match in list(plans.values())[::-1][:MAX_SANITIZED]:
            try:
                for run in sanitized(match.plan, walls):
                    for error in located(run, self._passes.path, match.name):
                        file = named(error.file or f"{match.name}.py", self._folder)
                        text = "\n".join([error.generated + error.text, error.excerpt])
                        self._add(Finding("kernel", "sanitize", "error", text, file, error.line))
                self._survey.sanitized += 1
            except CompileFailed as failure:
                self._add(Finding("kernel", "sanitize", "error", failure.message, named("", self._folder)))

    def _plan(self, planner: Planner, reports: tuple[dict[str, Any], ...], task: Task) -> None:
        """Match the passes on a task's subgraphs in a sandbox, with inputs of zeros. No kernel is run."""
        arm = Arm(ArmSettings("candidate", "cpu", 1, "direct", sandbox.walls(), TIMEOUT_SECONDS, judged=True))
        try:
            for subgraph in task.subgraphs:
                planner.on_answer = partial(self._note, subgraph.id)
                try:
                    report = _report(task, subgraph, reports, arm, planner)
                    places = ((line(name), tuple(map(line, nodes))) for name, nodes in report["places"])
                    matched = MatchReport(subgraph.id, tuple(pass_reports(report["passes"])), tuple(places))
                    self._survey.matched.append(matched)
                except ArmFailure as failure:
                    self._fail(failure)
        finally:
            arm.close()


def _report(
    task: Task, subgraph: Subgraph, passes: tuple[dict[str, Any], ...], arm: Arm, planner: Planner
) -> dict[str, Any]:
    """Return a template's report on the passes, as data, matched with a subgraph. No kernel is run.

    Raises UserError for a subgraph that is too large, ArmFailure if the sandbox ``arm`` gives no answer.
    """
    check_memory(subgraph, task.path)
    order = Order(CANDIDATE, task.graphs[subgraph.graph], str(task.path), arm.settings.device, "direct", passes)
    with ExitStack() as stack:
        pages = stack.enter_context(closing(Pages(plan_layout(subgraph.inputs))))
        stack.callback(arm.end_children)
        template = start_template(arm, order, pages.layout, pages.fd)
        stack.callback(template.leave)
        return template.wait(planner)
