"""Stand-ins for ``kernels.cpp`` and Triton's launchers. They record a launch instead of making it.

A launch plan has no steps for streams and graphs of ``torch.cuda``. A module may make them while it is imported.
Using one raises Rejected. Synchronising and choosing a device do nothing here.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any, NoReturn

import torch

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import plan_refused
from pytest_passbench.kernels import cpp, signatures
from pytest_passbench.plans.launch import CppKernel, Launch, TritonKernel, TritonLaunch, TritonType, Tuned
from pytest_passbench.reader.importing import PACKAGE
from pytest_passbench.reader.recording import Recording
from pytest_passbench.reader.triton_reference import reference_of

#: The recordings that are active in this process: one while a wrapper runs, none otherwise.
_current: list[Recording] = []


class _Unused:
    """An object that can be made but not used: reading an attribute raises Rejected."""

    rule, what = "streams", "uses streams"

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise plan_refused(self.rule, self.what)


class _GraphStandIn(_Unused):
    rule, what = "graphs", "uses CUDA graphs"


def _refusing(rule: str, what: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise plan_refused(rule, what)

    return refuse


class _Here(contextlib.nullcontext[None]):
    """The stand-in for ``torch.cuda.device(...)``. It does nothing, because a request has one device."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        super().__init__()


_STREAMS = "stream", "current_stream", "default_stream", "set_stream"
_GRAPHS = "graph", "make_graphed_callables", "graph_pool_handle"


def _install_streams() -> None:
    """Put the stand-ins into ``torch.cuda``.

    Each name gets a function of its own: Dynamo, imported later, refuses one function under two names.
    """
    replaced: dict[str, Any] = {
        "Stream": _Unused,
        "ExternalStream": _Unused,
        "Event": _Unused,
        "CUDAGraph": _GraphStandIn,
        **{name: _refusing("streams", _Unused.what) for name in _STREAMS},
        **{name: _refusing("graphs", _GraphStandIn.what) for name in _GRAPHS},
        **{name: lambda *_arguments, **_options: None for name in ("synchronize", "set_device")},
        **dict.fromkeys(("device", "device_of"), _Here),
    }
    for name, value in replaced.items():
        setattr(torch.cuda, name, value)


@contextlib.contextmanager
def active(recording: Recording) -> Iterator[None]:
    """Note launches in ``recording`` while the context lasts."""
    _current.append(recording)
    try:
        yield
    finally:
        _current.pop()


def current() -> Recording:
    """Return the active recording. Raises RuntimeError if there is none."""
    if not _current:
        raise RuntimeError("a kernel was launched outside of its wrapper; no kernel can run while passes are read")
    return _current[-1]


class RecordedLibrary:
    """The stand-in for a library that ``kernels.cpp.load`` returns. Its functions record their launches."""

    def __init__(self, source: str, flags: tuple[str, ...], openmp: bool, loaded: tuple[str, int] = ("", 0)) -> None:
        """Read the signatures in a source. ``loaded`` are the file and line of the call that loads it."""
        self.source, self.flags, self.openmp, self.loaded = source, flags, openmp, loaded
        self._signatures = signatures.parse(source)

    def build(self) -> RecordedLibrary:
        """Return the library itself. The judge's side compiles it."""
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name not in self._signatures:
            names = ", ".join(self._signatures) or "none"
            raise AttributeError(
                f'the source has no function written as `extern "C" ... {name}(...) {{` (it has: {names})'
            )
        kernel, signature = CppKernel(self.source, self.flags, self.openmp, name), self._signatures[name]
        if signature.result != "void":
            raise plan_refused("kernel-result", f"uses the number that the kernel {name} returns")

        def launch(*arguments: Any) -> None:
            if len(arguments) != len(signature.parameters):
                raise TypeError(
                    f"{name} takes {counted(len(signature.parameters), 'argument')}, not {len(arguments)}"
                )
            recording = current()
            with torch._C.DisableTorchFunction():
                values = [
                    _cpp_argument(recording, value, kind, f"argument {position} of {name}")
                    for position, (value, kind) in enumerate(zip(arguments, signature.parameters, strict=True), 1)
                ]
            recording.steps.append(Launch(recording.kernel(kernel), tuple(values)))

        return launch


def _cpp_argument(recording: Recording, value: Any, kind: str, where: str) -> Any:
    """Return an argument in the form that a plan stores. Raises TypeError if it is not of its parameter's kind."""
    if kind == "pointer":
        return _pointer(recording, value, where)
    if kind == "dtype":
        if not isinstance(value, torch.dtype):
            raise TypeError(f"{where}: a torch.dtype is needed here, not {type(value).__name__}")
        return value
    number = recording.constant(value, where)
    if kind in ("float32", "float64"):
        if not isinstance(number, (int, float)):
            raise TypeError(f"{where}: a number is needed here, not {type(value).__name__}")
        return float(number)
    if not isinstance(number, int):
        raise TypeError(f"{where}: an integer is needed here, not {type(value).__name__}")
    return number


def _pointer(recording: Recording, value: Any, where: str) -> Any:
    if value is None:
        return None
    if type(value) is int:
        return recording.address(value)
    try:
        cpp.Pointer.from_param(value)
    except TypeError as error:
        raise TypeError(f"{where}: {error}") from None
    return recording.operand(value)


#: The libraries that the candidate's modules have loaded.
libraries: list[RecordedLibrary] = []


def load_library(source: str, *, flags: tuple[str, ...] = (), openmp: bool = False) -> RecordedLibrary:
    """Stand for :func:`pytest_passbench.kernels.cpp.load`: return a library that records its launches."""
    caller = sys._getframe(1)
    loaded = caller.f_code.co_filename, caller.f_lineno
    library = RecordedLibrary(source, tuple(flags), bool(openmp), loaded)
    libraries.append(library)
    return library


def _triton_value(recording: Recording, value: Any, where: str) -> Any:
    """Return an argument of a Triton kernel in the form that a plan stores."""
    if isinstance(value, torch.Tensor):
        return recording.operand(value)
    kind = f"{type(value).__module__}.{type(value).__name__}"
    if kind == "triton.language.core.constexpr":
        return _triton_value(recording, value.value, where)
    if kind == "triton.language.core.dtype":
        return TritonType(str(value.name))
    if isinstance(value, (tuple, list)):
        return tuple(_triton_value(recording, item, where) for item in value)
    return recording.constant(value, where)


def _run(function: Any, folder: Path, /, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
    """Record a launch, in place of ``JITFunction.run``. ``folder`` is the candidate's.

    Raises Rejected for what a plan cannot hold, TypeError or ValueError for a bad grid.
    """
    recording = current()
    if warmup:
        raise plan_refused("warm-up", "compiles a kernel without launching it (.warmup)")
    names = set(function.signature.parameters)
    options = {key: kwargs.pop(key) for key in list(kwargs) if key not in names}
    bound = function.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    values = dict(bound.arguments)
    sizes = _grid(grid, values)
    with torch._C.DisableTorchFunction():
        named = tuple((name, _triton_value(recording, value, name)) for name, value in values.items())
        constants = tuple((name, recording.constant(value, name)) for name, value in options.items())
    number = recording.kernel(TritonKernel(json.dumps(reference_of(function, folder))))
    recording.steps.append(TritonLaunch(number, sizes, named, constants))


def _tune(tuner: Any, /, *args: Any, **kwargs: Any) -> None:
    """Record a launch in each configuration that can be launched, in place of ``Autotuner.run``.

    Raises the last error if none can be.
    """
    recording = current()
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
    choices, failed = [], None
    pruned = getattr(tuner, "early_config_prune", None) or getattr(tuner, "perf_model", None)
    for config in list(tuner.prune_configs(kwargs) if pruned else tuner.configs):
        before = len(recording.steps)
        try:
            _before_launch(tuner, config, args, kwargs)
            tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            choices.append(tuple(recording.steps[before:]))
        except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
            failed = error
        del recording.steps[before:]
    if not choices:
        raise failed or ValueError("triton.autotune has no configuration left")
    recording.steps.append(Tuned(tuple(choices)))


def _before_launch(tuner: Any, config: Any, args: Any, kwargs: dict[str, Any]) -> None:
    """Run a configuration's hook and reset memory to zero, as Triton does before a launch."""
    named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs, **config.kwargs}
    if config.pre_hook is not None:
        config.pre_hook(named)
    for name in getattr(tuner, "reset_to_zero", None) or ():
        named[name].zero_()


def triton_kernels(folder: Path) -> list[str]:
    """Return references (JSON texts) to the Triton kernels in the candidate's modules."""
    kernels: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for value in list(vars(module).values()):
                with contextlib.suppress(TypeError, ValueError):
                    if type(value).__module__.startswith("triton."):
                        kernels[json.dumps(reference_of(value, folder))] = None
    return list(kernels)


def _grid(grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
    """Return the grid's three sizes. Raises TypeError or ValueError for anything but one to three numbers."""
    sizes = grid(values) if callable(grid) else grid
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, (int, float)) for size in sizes):
        raise TypeError(f"a grid is one to three numbers, not {sizes!r}")
    if not all(math.isfinite(size) for size in sizes):
        raise ValueError(f"a grid is one to three finite numbers, not {sizes!r}")
    first, second, third = itertools.islice(itertools.chain((int(size) for size in sizes), (1, 1)), 3)
    return first, second, third


def install(folder: Path) -> None:
    """Put the stand-ins in place. Call it before anything of the candidate is imported."""
    cpp.load = load_library  # type: ignore[assignment]
    torch.compile = _no_compile
    _install_streams()
    from triton.runtime import autotuner, jit

    jit.JITFunction.run, autotuner.Autotuner.run = partialmethod(_run, folder), _tune


def _no_compile(model: Any = None, **_options: Any) -> Any:
    """Return a function that raises Rejected, in place of ``torch.compile`` as a call or as a decorator."""

    def compiled(*_args: Any, **_kwargs: Any) -> Any:
        raise plan_refused("torch-compile", "calls torch.compile inside a wrapper")

    return (lambda _function: compiled) if model is None else compiled
