"""Pipelines run a graph with its passes: alone, under ``torch.compile``, or with TorchInductor for the rest.

Build and call with gradients switched off (``torch.no_grad()``). ``torch.compile`` guards on that mode: a call in
another mode than the build's compiles again.

For code that TorchInductor generates, this module counts a call's kernel launches, and times a call without them.
"""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, cast

import torch
from torch.fx import GraphModule

from pytest_passbench.core.record import GeneratedCode, PassReport
from pytest_passbench.core.settings import BASELINES, INDUCTOR
from pytest_passbench.plans.launch import Request
from pytest_passbench.protocol import BASELINE
from pytest_passbench.rewrite.apply import Rewritten, apply_passes
from pytest_passbench.rewrite.meta import forget_values
from pytest_passbench.rewrite.opaque import opaque
from pytest_passbench.rewrite.passes import AnyPass, Kernels, Pass, PassError
from pytest_passbench.suite import batching

GraphFunction = Callable[..., tuple[Any, ...]]
MODES = {name + BASELINE: "default" if name == INDUCTOR else name for name in BASELINES}
"""The modes of ``torch.compile`` by the names of the baselines."""
KERNEL_NAME = "cpp_fused"
"""Begins the names of the kernels in a generated module."""
WITHOUT_WORK = frozenset({"assert_size_stride", "clear", "empty_strided_cpu", "reinterpret_tensor", "torch"})
"""Names in a generated wrapper that compute nothing. It has names of dtypes and kernels beside them."""
TIMED_CALLS, REPEATS = 10, 10


@dataclass
class BuiltGraph:
    """A callable, with a report of its passes. ``rewritten`` is True if at least one pass matched.

    ``places`` and ``working`` are as in :class:`~pytest_passbench.rewrite.apply.Rewritten`. ``module`` is the graph
    with its passes under ``direct``. ``generated`` is about the code of a compiling baseline.
    """

    call: GraphFunction
    reports: list[PassReport] = field(default_factory=list)
    rewritten: bool = False
    places: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    module: GraphModule | None = None
    working: set[str] = field(default_factory=set)
    generated: GeneratedCode | None = None


def build(
    pipeline: str, gm: GraphModule, passes: list[AnyPass], example_inputs: list[Any], kernels: Kernels
) -> BuiltGraph:
    """Build a graph with its passes, by the pipeline ``direct``, ``dynamo`` or ``inductor``.

    The result is called once on clones of ``example_inputs``, so nothing is left to compile. Raises PassError for a
    pass at fault, ValueError for an unknown pipeline, and passes on what a kernel raises in that call.
    """
    if pipeline == "direct":
        result = apply_passes(gm, passes, example_inputs, kernels)
        built = _built(_called(result.module.forward, example_inputs), [result])
        built.module = result.module
        return built
    if pipeline not in ("dynamo", "inductor"):
        raise ValueError(f"unknown pipeline {pipeline!r}: direct, dynamo or inductor")
    results: list[Rewritten] = []

    def backend(graph: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        result = apply_passes(graph, passes, inputs, kernels)
        results.append(result)
        if pipeline == "dynamo":
            return cast("GraphFunction", result.module.forward)
        from torch._inductor.compile_fx import compile_fx

        return cast("GraphFunction", compile_fx(opaque(result.module), inputs))

    return _built(_compiled(gm, example_inputs, backend=backend), results)


def build_baseline(name: str, gm: GraphModule, example_inputs: list[Any]) -> BuiltGraph:
    """Build a graph without passes: ``eager``, or as ``torch.compile`` does in one of :data:`MODES`.

    Raises ValueError for another name.
    """
    if name == "eager":
        return BuiltGraph(_called(gm.forward, example_inputs))
    if name not in MODES:
        raise ValueError(f"unknown baseline {name!r}: eager or {' or '.join(MODES)}")
    before = len(_generated_modules())
    call = _compiled(gm, example_inputs, mode=MODES[name])
    modules = _generated_modules()[before:]
    if not modules or any(value.device.type != "cpu" for value in example_inputs):
        return BuiltGraph(call)
    return BuiltGraph(call, generated=_generated_code(call, example_inputs, modules))


def warm_up(pipeline: str) -> None:
    """Build a small graph, so that forks find imported and cached what a first build needs. That takes seconds.

    No candidate is involved. For ``inductor-baseline``, TorchInductor compiles the graph: here it tries the
    instruction sets of the CPU and precompiles its header, so that no fork does. With ``torch.set_num_threads(1)``
    and ``TORCHINDUCTOR_COMPILE_THREADS=1`` no thread is left.
    """
    graph, place = torch.fx.Graph(), {"node": 0}
    graph.output((graph.call_function(torch.relu, (graph.placeholder("x"),)),))
    module, values = GraphModule({}, graph), [torch.zeros(2, 2)]
    calls = [["call_function", "torch.relu", [place], {}]]
    pattern = {"arguments": ["x"], "calls": calls, "result": {"node": 1}}
    arguments = {"arguments": ["x"], "calls": [], "result": {"tuple": [place]}}
    item = Pass.from_data({"name": "warm_up", "pattern": pattern, "replacement": arguments})
    with torch.no_grad():
        if pipeline.endswith(BASELINE):
            build_baseline(pipeline, module, values)
        else:
            build(pipeline, module, [item], values, _Relu())


class _Relu:
    """A source of kernels that gives torch's own ``relu``."""

    def kernel(self, _request: Request) -> Any:
        return torch.relu

    def regions(self, _name: str, _graph: str) -> list[list[str]]:
        return []


def _compiled(gm: GraphModule, example_inputs: list[Any], **options: Any) -> GraphFunction:
    """Return the ``torch.compile`` of a graph, captured and compiled by a call."""
    torch.hub.tqdm.monitor_interval = 0  # else a progress bar in FX, though disabled, starts a thread
    try:
        return _called(torch.compile(gm, dynamic=False, **options), example_inputs)
    except torch._dynamo.exc.BackendCompilerFailed as error:
        raise _pass_error(error) or error from None


def _pass_error(error: BaseException) -> PassError | None:
    """Return the PassError that a backend raised below Dynamo's own exception, or None."""
    step: BaseException | None = getattr(error, "inner_exception", None) or error.__cause__
    while step is not None and not isinstance(step, PassError):
        step = step.__cause__
    return step


def _called(call: Callable[..., Any], example_inputs: list[Any]) -> GraphFunction:
    """Return ``call`` after a call on clones, which an in-place graph may change."""
    with batching.closing():
        call(*[value.clone() if isinstance(value, torch.Tensor) else value for value in example_inputs])
    return call


def _built(call: GraphFunction, results: list[Rewritten]) -> BuiltGraph:
    reports = _summed([report for result in results for report in result.reports])
    modules = [result.module for result in results if result.matches]
    for module in modules:
        forget_values(module)
    places = [place for result in results for place in result.places]
    working = {name for result in results for name in result.working}
    return BuiltGraph(call, reports, bool(modules), places, working=working)


def _summed(reports: list[PassReport]) -> list[PassReport]:
    """Return a report per pass over all graphs. A miss counts only if no graph matched: the nearest one."""
    total: dict[str, PassReport] = {}
    for report in reports:
        sum_of = total.setdefault(report.name, PassReport(report.name, kind=report.kind))
        sum_of.matches += report.matches
        sum_of.operators += report.operators
        sum_of.computed += report.computed
        sum_of.left += report.left
        if sum_of.matches:
            sum_of.miss, sum_of.nearness = "", 0.0
        elif not sum_of.miss or report.nearness > sum_of.nearness:
            sum_of.miss, sum_of.nearness = report.miss, report.nearness
    return list(total.values())


def _generated_modules() -> list[ModuleType]:
    """Return the modules that TorchInductor has generated and loaded in this process, the latest last."""
    from torch._inductor.codecache import PyCodeCache

    return list(PyCodeCache.modules)


def _generated_code(
    call: Callable[..., Any], inputs: Sequence[torch.Tensor], modules: Sequence[ModuleType]
) -> GeneratedCode:
    """Return facts about the generated code of a program, in ``modules``. Call it on clones of ``inputs``.

    Without kernels, an operator of torch would read memory that nothing has written, and an index in it may point
    anywhere. So the cost of a call is only measured for a wrapper that calls nothing but kernels.
    """
    values, launches = [value.clone() for value in inputs], 0

    def counted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*args: Any) -> Any:
            nonlocal launches
            launches += 1
            return kernel(*args)

        return launch

    with _replaced(modules, counted):
        call(*values)
    if not all(_computes_nothing(name) for module in modules for name in module.call.__code__.co_names):
        return GeneratedCode(launches)
    with _replaced(modules, lambda _kernel: lambda *_arguments: None):
        times = timeit.repeat(lambda: call(*values), number=TIMED_CALLS, repeat=REPEATS)
    return GeneratedCode(launches, min(times) / TIMED_CALLS * 1e6)


def _computes_nothing(name: str) -> bool:
    return name in WITHOUT_WORK or name.startswith(KERNEL_NAME) or isinstance(getattr(torch, name, None), torch.dtype)


@contextmanager
def _replaced(
    modules: Sequence[ModuleType], substitute: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Put a substitute in each kernel's place within this context."""
    kernels = [
        (vars(module), name, kernel)
        for module in modules
        for name, kernel in vars(module).items()
        if name.startswith(KERNEL_NAME)
    ]
    for names, name, kernel in kernels:
        names[name] = substitute(kernel)
    try:
        yield
    finally:
        for names, name, kernel in kernels:
            names[name] = kernel
