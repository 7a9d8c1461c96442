"""Stand-ins for ``kernels.cpp`` and Triton's launchers: they note a launch in the recording and make none."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.kernels import cpp, signatures
from pytest_passbench.plans.launch import CppKernel, Launch, TritonKernel, TritonLaunch, TritonType, Tuned
from pytest_passbench.reader import streams
from pytest_passbench.reader.importing import PACKAGE
from pytest_passbench.reader.recording import Recording, Refused
from pytest_passbench.reader.triton_reference import reference_of

#: The recording of this process, while a wrapper runs.
_current: list[Recording] = []


class active:  # noqa: N801 - a context, used as a function
    """Have launches noted in ``recording``, as a context."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __enter__(self) -> None:
        _current.append(self._recording)

    def __exit__(self, *_exception: object) -> None:
        _current.pop()


def _recording() -> Recording:
    if not _current:
        raise RuntimeError("a kernel was launched outside of its wrapper; while passes are read, none can run")
    return _current[-1]


# -- C++ --------------------------------------------------------------------------------------------------------


class RecordedLibrary:
    """A C++ source as :func:`pytest_passbench.kernels.cpp.load` returns it; its functions note their launches."""

    def __init__(self, source: str, flags: tuple[str, ...], openmp: bool) -> None:
        self.source, self.flags, self.openmp = source, flags, openmp
        self._signatures = signatures.parse(source)

    def build(self) -> RecordedLibrary:
        """Do nothing: the judge's side compiles."""
        return self

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("_") or name not in self._signatures:
            have = ", ".join(self._signatures) or "none"
            raise AttributeError(
                f'the source has no function written as `extern "C" ... {name}(...) {{` (it has: {have})'
            )
        kernel, signature = CppKernel(self.source, self.flags, self.openmp, name), self._signatures[name]
        if signature.result != "void":
            raise Refused("kernel-result", f"uses the number that the kernel {name} returns")

        def launch(*arguments: Any) -> None:
            if len(arguments) != len(signature.parameters):
                raise TypeError(f"{name} takes {len(signature.parameters)} arguments, not {len(arguments)}")
            recording = _recording()
            with torch._C.DisableTorchFunction():
                values = [
                    _cpp_argument(recording, value, kind, f"argument {position} of {name}")
                    for position, (value, kind) in enumerate(zip(arguments, signature.parameters, strict=True), 1)
                ]
            recording.steps.append(Launch(recording.kernel(kernel), tuple(values)))

        return launch


def _cpp_argument(recording: Recording, value: Any, kind: str, where: str) -> Any:
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
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{where}: a tensor, an address or None is needed here, not {type(value).__name__}")
    if not value.is_contiguous():
        raise TypeError(
            f"{where}: a tensor of shape {tuple(value.shape)} and strides {value.stride()} is not contiguous"
            " (pass x.data_ptr() and hand the strides to the kernel)"
        )
    return recording.operand(value)


#: Every library that the candidate's modules have loaded, for whoever wants to look at all of them.
libraries: list[RecordedLibrary] = []


def _load(source: str, *, flags: tuple[str, ...] = (), openmp: bool = False) -> RecordedLibrary:
    library = RecordedLibrary(source, tuple(flags), bool(openmp))
    libraries.append(library)
    return library


# -- Triton -----------------------------------------------------------------------------------------------------


def _triton_value(recording: Recording, value: Any, where: str) -> Any:
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


class TritonRecorder:
    """What replaces ``JITFunction.run`` and ``Autotuner.run``; ``folder`` is the candidate's."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def run(self, function: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> None:
        """Note one launch."""
        recording = _recording()
        if warmup:
            raise Refused("warm-up", "compiles a kernel without launching it (.warmup)")
        names = set(function.signature.parameters)
        options = {key: kwargs.pop(key) for key in list(kwargs) if key not in names}
        bound = function.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = dict(bound.arguments)
        sizes = _grid(grid, values)
        with torch._C.DisableTorchFunction():
            named = tuple((name, _triton_value(recording, value, name)) for name, value in values.items())
            chosen = tuple((name, recording.constant(value, name)) for name, value in options.items())
        reference = json.dumps(reference_of(function, self._folder))
        number = recording.kernel(TritonKernel(reference))
        recording.steps.append(TritonLaunch(number, sizes, named, chosen))

    def tune(self, tuner: Any, *args: Any, **kwargs: Any) -> None:
        """Note a launch in every configuration that can be launched."""
        recording = _recording()
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        choices, failed = [], None
        for config in self._configurations(tuner, kwargs):
            before = len(recording.steps)
            try:
                self._hook(tuner, config, args, kwargs)
                tuner.fn.run(*args, **kwargs, **config.all_kwargs())
                choices.append(tuple(recording.steps[before:]))
            except (TypeError, ValueError, KeyError, ZeroDivisionError) as error:
                failed = error
            del recording.steps[before:]
        if not choices:
            raise failed or ValueError("triton.autotune has no configuration left")
        recording.steps.append(Tuned(tuple(choices)))

    @staticmethod
    def _configurations(tuner: Any, kwargs: dict[str, Any]) -> list[Any]:
        pruned = getattr(tuner, "early_config_prune", None) or getattr(tuner, "perf_model", None)
        return list(tuner.prune_configs(kwargs) if pruned else tuner.configs)

    @staticmethod
    def _hook(tuner: Any, config: Any, args: Any, kwargs: dict[str, Any]) -> None:
        """Do what happens before a launch in this configuration: memory is reset."""
        named = {**dict(zip(tuner.arg_names, args, strict=False)), **kwargs, **config.kwargs}
        if config.pre_hook is not None:
            config.pre_hook(named)
        for name in getattr(tuner, "reset_to_zero", None) or ():
            named[name].zero_()


def triton_kernels(folder: Path) -> list[str]:
    """Return references (JSON) to all Triton kernels in the candidate's modules."""
    found: dict[str, None] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == PACKAGE:
            for value in list(vars(module).values()):
                with contextlib.suppress(TypeError, ValueError):
                    if type(value).__module__.startswith("triton."):
                        found[json.dumps(reference_of(value, folder))] = None
    return list(found)


def _grid(grid: Any, values: dict[str, Any]) -> tuple[int, int, int]:
    sizes = grid(values) if callable(grid) else grid
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, (int, float)) for size in sizes):
        raise TypeError(f"a grid is one to three numbers, not {sizes!r}")
    if not all(math.isfinite(size) for size in sizes):
        raise ValueError(f"a grid of {sizes!r}")
    first, second, third = itertools.islice(itertools.chain((int(size) for size in sizes), (1, 1)), 3)
    return first, second, third


def install(folder: Path) -> None:
    """Put the stand-ins in place, before anything of the candidate is imported."""
    cpp.load = _load  # type: ignore[assignment]
    torch.compile = _no_compile
    streams.install()
    try:
        from triton.runtime import autotuner, jit
    except ImportError:
        return
    recorder = TritonRecorder(folder)

    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.run(self, *args, **kwargs)

    def tune(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.tune(self, *args, **kwargs)

    jit.JITFunction.run, autotuner.Autotuner.run = run, tune


def _no_compile(model: Any = None, **_options: Any) -> Any:
    """Stand for ``torch.compile``, as a call and as a decorator."""

    def compiled(*_args: Any, **_kwargs: Any) -> Any:
        raise Refused("torch-compile", "calls torch.compile inside a wrapper")

    return (lambda _function: compiled) if model is None else compiled
