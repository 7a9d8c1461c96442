"""The passes of a candidate, loaded into this process, and kernels for their matches."""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.candidate.layout import Candidate, PassDir
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.paths import ENGINE
from pytest_passbench.judge.native_library import compiled
from pytest_passbench.kernels import cpp, signatures
from pytest_passbench.kernels.toolchain import CompileError
from pytest_passbench.plans.launch import CppKernel, LaunchPlan, Request, Result
from pytest_passbench.plans.written import written
from pytest_passbench.reader import launches
from pytest_passbench.reader.importing import load_passes
from pytest_passbench.reader.local import LocalKernels, as_passes
from pytest_passbench.reader.main import record
from pytest_passbench.rewrite.passes import AnyPass, Kernel, LeftToEager, PassError
from pytest_passbench.runner.engine import Engine
from pytest_passbench.runner.plan_runtime import WrongArgument
from pytest_passbench.runner.replay import cpp_function, replay


class DeployedPasses:
    """The passes of a directory, as data, and a source of kernels for their matches.

    A kernel is the replayed launch plan of its wrapper, as the judge measures it, if the wrapper launches kernels in
    C++ and does nothing else, and if all its tensors are on the CPU. Any other wrapper is called directly.
    """

    def __init__(self, directory: PassDir) -> None:
        """Import the passes of a directory. Raises PassError for one that cannot be imported."""
        stems = list(directory.stems)
        with recorded_libraries():
            self._recorded = {item.name: item for item in load_passes(directory.path, stems)}
        loaded = load_passes(directory.path, stems)
        self._local = LocalKernels(loaded)
        self._plans: dict[str, tuple[LaunchPlan, list[CppKernel]]] = {}
        #: The passes in the order of the manifest.
        self.passes: list[AnyPass] = as_passes(loaded)

    def regions(self, name: str, graph: str) -> list[list[str]]:
        """Return the regions of a graph that a pass supports. Raises PassError if it fails."""
        return self._local.regions(name, graph)

    def kernel(self, request: Request) -> Kernel:
        """Return a callable that takes the request's tensors.

        Raises PassError for a launch plan that returns another dtype or shape than the matched operators do, or that
        cannot be built. If a wrapper that is called does so, or raises, the callable raises PassError. Raises
        LeftToEager for a region without a kernel that compiles.
        """
        key = repr(request)  # the layers of a model make equal requests
        try:
            if key not in self._plans:
                with recorded_libraries():
                    self._plans[key] = recorded(request, self._recorded[request.name].wrapper)
            plan, kernels = self._plans[key]
        except Exception as error:  # a wrapper may do more in this process than a plan can hold
            if request.region and isinstance(error, NotImplementedError):
                raise LeftToEager(str(error)) from error
            return _checked(request, self._local.kernel(request))
        _check(request, [Result(operand.form.dtype, operand.form.shape) for operand in plan.returns])
        try:
            return replayed(request, plan, kernels, _engine())
        except (PassError, WrongArgument) as error:
            message = error.message if isinstance(error, PassError) else str(error)
            raise LeftToEager(message) if request.region else PassError(request.name, message) from error


def recorded(request: Request, wrapper: Kernel) -> tuple[LaunchPlan, list[CppKernel]]:
    """Return a wrapper's launch plan, and its kernels. Raises any error if they are not a plan in C++ for the CPU.

    The wrapper's libraries must have been loaded within :func:`recorded_libraries`.
    """
    plan: LaunchPlan = record(request, wrapper, "kernels", random.Random(0))
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel, CppKernel)]
    if len(kernels) < len(plan.kernels) or any(tensor.device != "cpu" for tensor in request.tensors):
        raise PassError(request.name, "launches kernels that are not in C++, or on a device")
    return plan, kernels


def replayed(request: Request, plan: LaunchPlan, launched: list[CppKernel], engine: Engine | None) -> Kernel:
    """Return a plan as a callable, whose steps the engine runs if there is one.

    Raises PassError if a kernel does not compile.
    """
    kernels, parameters = list[Any](), list[frozenset[int | str]]()
    for kernel in launched:
        signature = signatures.parse(kernel.source)[kernel.function]
        parameters.append(frozenset(signature.written))
        kernels.append(cpp_function(_library(request.name, kernel), kernel.function, signature.parameters))
    arguments = written(plan, parameters)
    call: Kernel = replay(plan, kernels, "cpu", request.sequence, [], arguments, engine=engine).call
    return call


@cache
def _library(name: str, kernel: CppKernel) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(str(cpp.load(kernel.source, flags=kernel.flags, openmp=kernel.openmp).path))
    except Exception as error:
        raise PassError(name, f"a kernel cannot be compiled: {error}") from error


@cache
def _engine() -> Engine | None:
    """Return the engine that runs the steps of plans. Return None if it cannot be compiled or loaded here."""
    with contextlib.suppress(CompileError, OSError), compiled(ENGINE) as path:
        return Engine(str(path))
    return None


def _checked(request: Request, wrapper: Kernel) -> Kernel:
    """Return a wrapper whose exceptions and unfit results are PassErrors."""

    def call(*tensors: torch.Tensor) -> Any:
        try:
            values = wrapper(*tensors)
        except Exception as error:
            raise PassError(request.name, f"its wrapper raised {type(error).__name__}: {error}") from error
        results = values if request.sequence else (values,)
        _check(request, [Result(str(value.dtype).removeprefix("torch."), tuple(value.shape)) for value in results])
        return values

    return call


def _check(request: Request, returned: Iterable[Result]) -> None:
    """Raise PassError unless a wrapper's results are what the matched operators give."""
    for actual, expected in zip(returned, request.results, strict=False):
        if expected is not None and actual != expected:
            raise PassError(request.name, f"its wrapper returns {actual}, the graph needs {expected}")


@contextlib.contextmanager
def recorded_libraries() -> Iterator[None]:
    """Make C++ libraries that are loaded in this context record their launches."""
    load = cpp.load
    try:
        cpp.load = launches.load_library  # type: ignore[assignment]
        yield
    finally:
        cpp.load = load


def open_directory(path: str | Path, task: str | None) -> PassDir:
    """Return the pass directory of the candidate at ``path``: that for all tasks, or that for ``task``.

    Raises UserError if there is none, or if it has mistakes.
    """
    candidate = Candidate.open(Path(path))
    directory = candidate.common if task is None else candidate.passes_for(task)
    if directory is None:
        problem = "the candidate has no passes for all tasks" if task is None else f"no passes for the task {task}"
        names = ", ".join(sorted(candidate.by_task)[:5])
        raise UserError(problem, where=path, remedy=f"name one of its tasks, as task=...: {names}")
    if directory.mistakes:
        raise UserError(directory.mistakes, where=directory.path)
    if "inductor" in directory.kinds:
        remedy = "give them to TorchInductor itself: torch._inductor.config.post_grad_custom_post_pass"
        raise UserError("its passes call register_replacement", where=directory.path, remedy=remedy)
    return directory
