"""Answers templates' requests: it turns a match of a pass into a launch plan with compiled kernels.

The dtypes and shapes that a plan returns are compared with those of the operators that it replaces.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pytest_passbench.candidate.triton import KernelText, stored
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import WRONG_CALL, Rejected, plan_refused
from pytest_passbench.core.settings import Policy
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.arms.template import Answer, Mismatch
from pytest_passbench.judge.audits.findings import describe, violation, warning
from pytest_passbench.judge.builder.build import Builder, BuiltLibrary
from pytest_passbench.judge.builder.compile_errors import CompileFailed, explained
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.planning.reader_process import VIOLATIONS, ReaderProcess, named
from pytest_passbench.judge.planning.triton_code import checked_text, machine_code
from pytest_passbench.kernels.signatures import Signature
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import (
    ITEM_BYTES,
    Allocate,
    CppKernel,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    Request,
    Result,
    TritonKernel,
    contiguous,
)
from pytest_passbench.plans.regions import check_regions, graph_module
from pytest_passbench.plans.words import steps
from pytest_passbench.plans.written import returns_written, written
from pytest_passbench.suite.allowlist import resolve

#: A place in a kernel, as Python states it: the name of its module, its own name, and a line of its text.
_KERNEL_PLACE = re.compile(r"<passbench_kernel_\w+\.(?P<name>\w+)>:(?P<line>\d{1,6})")
TOO_SLOW_BEFORE = "out"  # the phase in a record if passes were not tried, since they took too long before
MAX_LIBRARY_BYTES = 64 << 20  # of a plan's compiled kernels, and of all plans' that the judge keeps in memory


def mismatch(request: Request, plan: LaunchPlan) -> Mismatch | None:
    """Return the first value of a plan that differs from what the replaced operators give, or None if none does.

    A value may be of any form if nothing uses it, or if the form that the operators give depends on values.
    """
    for number, (operand, expected) in enumerate(zip(plan.returns, request.results, strict=False), 1):
        actual = Result(operand.form.dtype, operand.form.shape)
        if expected is None or actual == expected:
            continue
        which = f" as value {number} of {len(plan.returns)}" if len(plan.returns) > 1 else ""
        message = f"pass {request.name} returns {actual}{which}; the operators that it replaces give {expected}"
        if actual.shape != expected.shape:
            return Mismatch("shape_mismatch", message, wider=False)
        return Mismatch("type_mismatch", message, wider=ITEM_BYTES[actual.dtype] >= ITEM_BYTES[expected.dtype])
    return None


def zeros(request: Request, plan: LaunchPlan) -> dict[str, Any]:
    """Return a message whose plan, in place of ``plan``, returns zeros in the forms that the replaced operators give.

    With it the operators that follow the match still run, so the other matches of the graph are found.
    """
    pairs = zip(plan.returns, request.results, strict=True)
    forms = [x.form if expected is None else contiguous(expected.dtype, expected.shape) for x, expected in pairs]
    returns = tuple(Operand("buffer", index, 0, form) for index, form in enumerate(forms))
    zero_plan = LaunchPlan(plan.tensors, (), (), tuple(Allocate(form, 0) for form in forms), returns)
    return {"plan": zero_plan.to_data(), "kernels": [], "written": []}


@dataclass
class Planner:
    """The judge's planner for a pass directory, which is ``root`` on disk and ``folder`` within the candidate."""

    reader: ReaderProcess
    builder: Builder
    triton: TritonBuilder
    policy: Policy
    root: Path
    folder: str
    #: The passes that the case's program has asked for a plan, and those that it has asked for regions.
    asked: set[str] = field(default_factory=set)
    #: The pass that gave no answer in time, if the case ended by that.
    late: frozenset[str] = frozenset()
    #: Called with a pass's name and its answer, if a survey sets it. A plan of another shape is no failure then.
    on_answer: Callable[[str, Answer], None] | None = None
    _too_slow: Mapping[frozenset[str], str] = field(default_factory=dict)
    _answers: dict[str, Answer] = field(default_factory=dict)
    _texts: dict[str, KernelText] = field(default_factory=dict)  # of all plans, by name
    _compiled: set[bytes] = field(default_factory=set)  # kernels of all answers
    _regions: dict[str, list[list[str]]] = field(default_factory=dict)  # by pass and graph

    def begin(self, out: Mapping[frozenset[str], str]) -> None:
        """Begin a case. ``out`` maps passes that took too long together to the task's subgraph where they did so."""
        self.asked, self.late, self._too_slow = set(), frozenset(), out

    def _ask(self, name: str) -> None:
        """Note that a pass is asked. Raises ArmFailure if it, alone or with others asked, is out for this task."""
        self.asked.add(name)
        for group, subgraph in self._too_slow.items():
            if group <= self.asked:
                names = " and ".join(sorted(group))
                message = f"not tried: {names} took too long on {subgraph}, and a pass is out for a task after that"
                raise ArmFailure("timeout", TOO_SLOW_BEFORE, message)

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[None]:
        """Ask a pass within this context, and note if it gives no answer in time."""
        try:
            yield
        except ArmFailure as failure:
            if failure.status == "timeout":
                self.late = frozenset({name})
            raise

    def answer(self, data: Any, capability: int | None = None) -> Answer:
        """Return the answer to a template's request. ``capability`` is its CUDA device's, None on a CPU.

        Raises ArmFailure if there is no plan, with a finding if a rule is broken. It also raises ArmFailure if the
        plan returns another shape or a narrower dtype than the operators that it replaces, since its kernel may write
        out of bounds. The operators that follow may undo a wider dtype, so the outputs decide. With
        :attr:`on_answer` it returns an answer in place of the latter failure, with the plan of :func:`zeros`.
        """
        try:
            request = parse.request(data)
        except Rejected as error:
            raise ArmFailure("integrity", "plan", f"the template's request is not valid: {error}") from error
        self._ask(request.name)
        key = f"{capability} {request!r}"
        if key not in self._answers:
            with self._asking(request.name):
                self._answers[key] = self._record(request, capability)
        planned = self._answers[key]
        if self.on_answer is not None:
            self.on_answer(request.name, planned)
        elif planned.mismatch is not None and not planned.mismatch.wider:
            file = self.root / f"{request.name}.py"
            raise ArmFailure(planned.mismatch.status, "plan", f"{file}: {planned.mismatch.message}")
        return planned

    def regions(self, name: str, graph: str, here: bool = False) -> list[list[str]]:
        """Return the regions of a template's graph that a pass supports. Raises ArmFailure if it fails.

        ``here`` is that of :meth:`ReaderProcess.regions`. If it is set, ask this planner for no plans afterwards.

        An answer that is not regions of the graph is a violation: only a reader that was tampered with gives it.
        """
        question = f"{name} (its regions)"
        self._ask(question)
        key = f"{name} {graph}"
        if key not in self._regions:
            try:
                calls = graph_module(graph).graph
            except Rejected as error:
                raise ArmFailure("integrity", "plan", f"the template's graph is not valid: {error}") from error
            with self._asking(question):
                regions = self.reader.regions(name, graph, here)
            try:
                check_regions(calls, regions)
            except Rejected as rejected:
                refused = plan_refused("regions", f"its reader answers with {rejected.message}")
                raise self._failure(name, refused) from rejected
            self._regions[key] = regions
        return self._regions[key]

    def _record(self, request: Request, capability: int | None) -> Answer:
        try:
            plan = self.reader.record(request, self.policy)
            if isinstance(plan, str):
                return Answer({"left": plan})
            check(request, plan, self.policy)
            message, compiled, fruitful = self._kernels(plan, capability)
        except Rejected as rejected:
            if isinstance(rejected, CompileFailed) and request.region:
                words = explained(rejected, self.root, request.name)
                return Answer({"left": f"its kernel does not compile: {words}"})
            raise self._failure(request.name, rejected) from rejected
        except TimeoutError as error:
            raise self.reader.arm.late("compile", f"pass {request.name}: its kernels are not compiled") from error
        size = sum(table.nbytes for table in plan.tables)
        explanation = f"pass {request.name} brings {size} bytes of constant tables"
        findings = (warning("plan", "table", explanation),) if size else ()
        untuned = (request.name,) if capability is None and plan.tunable else ()
        data_of_plan, wrong = plan.to_data(), mismatch(request, plan)
        if wrong is not None and not wrong.wider:
            message, compiled = zeros(request, plan), ()
        else:
            message = {"plan": data_of_plan, **message}
        in_words = tuple(steps(data_of_plan))
        return Answer(message, compiled, findings, untuned, in_words, fruitful, data_of_plan, wrong)

    def located(self, message: str) -> str:
        """Return a message with the places in Triton kernels as places in the candidate's files."""
        return _KERNEL_PLACE.sub(self._place, message)

    def _place(self, match: re.Match[str]) -> str:
        text, line = self._texts.get(match["name"]), int(match["line"])
        if text is None:
            return match[0]
        return f"{self.root / text.file}:{text.lines.get(line, text.line)}"

    def _failure(self, name: str, rejected: Rejected) -> ArmFailure:
        """Return a refusal as a failure: a violation, a wrapper that no plan can express, or a compiler's error."""
        if isinstance(rejected, CompileFailed):
            return ArmFailure("compile_fail", "compile", explained(rejected, self.root, name))
        layer, rule = rejected.layer, rejected.rule
        who = "the kernel wrapper " if layer == "plan" and rule not in (WRONG_CALL, "regions") else ""
        message = f"pass {name}: {who}{rejected.message}"
        if not rule or (layer == "plan" and rule not in VIOLATIONS):
            place = f"{named(rejected.file, self.root)}:{rejected.line}: " if rejected.line else ""
            is_of_wrapper = layer == "plan" and rule != "no-kernel"
            status, phase = ("runtime_fail", "plan") if is_of_wrapper else ("compile_fail", "compile")
            return ArmFailure(status, phase, f"{place}{message}")
        file = named(rejected.file or f"{name}.py", self.folder)
        finding = violation(layer, rule, message, file, rejected.line)
        return ArmFailure("integrity", layer, describe(finding), (finding,), frozenset({name}))

    def _kernels(self, plan: LaunchPlan, capability: int | None) -> tuple[dict[str, Any], tuple[bytes, ...], bool]:
        """Return the message's part about the plan's kernels, the compiled kernels, and :attr:`Answer.fruitful`.

        Triton's interpreter takes a kernel's text. A device takes machine code, and gets no text. The part's
        ``written`` are the arguments that the plan writes to.
        """
        libraries: list[BuiltLibrary] = []
        texts: dict[int, KernelText] = {}
        entries: list[dict[str, Any]] = []
        writes: list[frozenset[int | str]] = []
        patience = partial(self.reader.arm.patience, "compile")
        for number, kernel in enumerate(plan.kernels):
            if isinstance(kernel, TritonKernel):
                texts[number] = text = checked_text(kernel, plan, number, self.root)
                self._texts.update({function.name: function for function in (text, *text.functions)})
                entries.append({"machine": text.name} if capability is not None else {"triton": text.to_json()})
                writes.append(frozenset(stored(text)))
                continue
            built = self.builder.library(kernel.source, kernel.flags, kernel.openmp, patience())
            signature = built.functions.get(kernel.function)
            if signature is None or signature.result != "void":
                raise plan_refused("kernel", f"launches {kernel.function}, which its source does not define")
            for step in plan.steps:
                if isinstance(step, Launch) and step.kernel == number:
                    _check_arguments(kernel, signature, step.arguments)
            if built not in libraries:
                libraries.append(built)
                _check_size(library.data for library in libraries)
            place = libraries.index(built)
            entries.append({"library": place, "function": kernel.function, "parameters": list(signature.parameters)})
            writes.append(frozenset(signature.written))
        message: dict[str, Any] = {"kernels": entries, "written": sorted(written(plan, writes))}
        compiled = [library.data for library in libraries]
        if texts and capability is not None:
            message["machine"], code = machine_code(plan, texts, self.triton, capability, patience)
            compiled.append(code)
        self._keep(compiled)
        return message, tuple(compiled), returns_written(plan, writes)

    def _keep(self, compiled: list[bytes]) -> None:
        """Note a plan's kernels. If all kept ones together are too large, forget earlier answers. Raises Rejected."""
        _check_size(compiled)
        self._compiled.update(compiled)
        if sum(map(len, self._compiled)) > MAX_LIBRARY_BYTES:
            self._answers.clear()
            self._compiled = set(compiled)


def _check_size(compiled: Iterable[bytes]) -> None:
    """Raise Rejected if the kernels of a plan are too large."""
    if sum(map(len, compiled)) > MAX_LIBRARY_BYTES:
        raise plan_refused("size", f"brings libraries of more than {MAX_LIBRARY_BYTES >> 20} MiB")


def check(request: Request, plan: LaunchPlan, policy: Policy) -> None:
    """Raise Rejected for a well-formed plan that ``policy`` does not allow, or that does not fit the request."""
    if len(plan.returns) != request.outputs:
        raise plan_refused(
            "result", f"returns {counted(len(plan.returns), 'value')}, and the pattern returns {request.outputs}"
        )
    operators = [step.name for step in plan.steps if isinstance(step, Operator)]
    if policy != "open":
        if operators:
            raise plan_refused("torch-op", f"computes with torch ({operators[0]})")
        if not plan.launches:
            raise plan_refused("torch-op", "launches no kernel: it only allocates, copies or hands on its arguments")
    for name in operators:
        message = f"calls {name}, which is no operator of a graph"
        try:
            operator: Any = resolve(f"torch.ops.{name}")
        except Exception as error:
            raise plan_refused("operator", message) from error
        if not isinstance(operator, torch._ops.OpOverload):  # a name of several overloads, not one operator
            raise plan_refused("operator", message)


def _check_arguments(kernel: CppKernel, signature: Signature, arguments: tuple[Any, ...]) -> None:
    parameters, name = signature.parameters, kernel.function
    if len(parameters) != len(arguments):
        raise plan_refused(
            "argument", f"launches {name} with {counted(len(arguments), 'argument')} of {len(parameters)}"
        )
    for position, (kind, value) in enumerate(zip(parameters, arguments, strict=True)):
        if not _fits(kind, value):
            raise plan_refused("argument", f"launches {name} with a wrong argument {position + 1}: no {kind}")
        if isinstance(value, Operand) and value.source == "table" and position in signature.written:
            message = f"lets {name} write to a tensor made outside the call (argument {position + 1})"
            raise plan_refused("outside", f"{message}: allocate it inside, or make the parameter a pointer to const")


def _fits(kind: str, value: Any) -> bool:
    if kind == "pointer":
        return value is None or isinstance(value, Operand)
    if kind == "dtype":
        return value in (torch.float32, torch.bfloat16, torch.float16)
    if kind in ("float32", "float64"):
        return isinstance(value, (int, float))
    if kind == "bool":
        return isinstance(value, int) and value in (0, 1)
    bounds = np.iinfo(kind)
    return isinstance(value, int) and bounds.min <= value <= bounds.max
