"""Compiles checked Triton text to machine code that a measured process may load, and caches it by content."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.triton import KernelText
from pytest_passbench.core.paths import PACKAGE
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.core.schema import read
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.builder import triton_run
from pytest_passbench.judge.builder.refusals import LIMIT, CompileFailed, limit_reached
from pytest_passbench.judge.builder.store import Store
from pytest_passbench.judge.builder.triton_types import Specialised
from pytest_passbench.plans.machine_code import PARAMETER_BYTES, Binary

MAX_CODE_BYTES = 16 << 20
_MAX_HIDDEN = 2  # pointers to scratch memory: the kernel's own since Triton 3.2, a profiler's since Triton 3.5


@dataclass(frozen=True)
class Machine:
    """A launch's machine code, and its description for the launcher."""

    binary: Binary
    code: bytes


class TritonBuilder:
    """A compiler of launches behind ``walls``. ``cache`` is a folder of the judge's user; None keeps none on disk.

    Several builders may share a cache. Code from the cache is checked like code from the compiler.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._store = walls, Store(cache)
        self._failed: dict[str, CompileFailed] = {}  # so that no limit is reached twice

    def forget_failures(self) -> None:
        """Compile what failed once more if it is asked for again: the texts of a new run's candidates are others."""
        self._failed.clear()

    def machines(
        self, text: KernelText, launches: Sequence[Specialised], capability: int, patience: float = math.inf
    ) -> list[Machine | CompileFailed]:
        """Return the machine code of each launch of a kernel, or the failure to compile it.

        ``capability`` is the device's, such as 90 for 9.0. Raises CompileFailed if Triton's compiler does not work
        here, TimeoutError if it takes longer than ``patience`` seconds.
        """
        data = text.to_json()
        keys = [_key(data, launch, capability) for launch in launches]
        results = {key: self._stored(key, launch) for key, launch in zip(keys, launches, strict=True)}
        missing = {key: launch for key, launch in zip(keys, launches, strict=True) if results[key] is None}
        if missing:
            jobs = [launch.to_data() for launch in missing.values()]
            answers = triton_run.run(data, jobs, capability, self._walls, patience)
            for (key, launch), answer in zip(missing.items(), answers, strict=True):
                results[key] = self._compiled(key, text, launch, *answer)
        return [machine for key in keys if (machine := results[key]) is not None]

    def _stored(self, key: str, launch: Specialised) -> Machine | CompileFailed | None:
        if key in self._failed:
            return self._failed[key]
        stored = self._store.get(key)
        if stored is None:
            return None
        described, _, code = stored.partition(b"\n")
        try:
            return _checked(read(triton_run.DESCRIPTION, described), code, launch)
        except Rejected:
            return None

    def _compiled(
        self, key: str, text: KernelText, launch: Specialised, described: dict[str, Any], code: bytes
    ) -> Machine | CompileFailed:
        try:
            failure = _failure(text, described)
            if failure is not None:
                raise failure
            machine = _checked(described, code, launch)
        except CompileFailed as error:
            self._failed[key] = error.with_traceback(None)
            return error
        self._store.put(key, json.dumps(described).encode() + b"\n" + code)
        return machine


def _checked(described: dict[str, Any], code: bytes, launch: Specialised) -> Machine:
    """Return machine code whose description fits the parameters that a launch passes.

    Raises CompileFailed if there is no code, if it does not fit, or if it is too large.
    """
    if not code.startswith(b"\x7fELF"):
        raise CompileFailed("Triton's compiler made no machine code")
    if len(code) > MAX_CODE_BYTES:
        raise CompileFailed(f"the compiled kernel is larger than {MAX_CODE_BYTES >> 20} MiB", rule=LIMIT)
    fields = {name: value for name, value in described.items() if name not in ("status", "parameters")}
    sizes = tuple(described["parameters"])
    hidden = len(sizes) - len(launch.passed)
    binary = Binary(passed=tuple(launch.passed), hidden=hidden, **fields)
    if not 0 <= hidden <= _MAX_HIDDEN or binary.sizes != sizes or (binary.scratch_bytes and not hidden):
        expected = tuple(PARAMETER_BYTES[passed.kind] for passed in launch.passed)
        raise CompileFailed(
            f"this Triton compiles kernels in another form: parameters of {sizes} bytes, where the launch passes"
            f" {expected} and up to {_MAX_HIDDEN} pointers"
        )
    return Machine(binary, code)


def _failure(text: KernelText, described: dict[str, Any]) -> CompileFailed | None:
    """Return the failure that the compiler's answer describes; None if it made the code."""
    if described["status"] == "late":
        return CompileFailed(f"compiling took longer than {triton_run.TIMEOUT_SECONDS} s", rule=LIMIT)
    if described["status"] == "skipped":
        limit = triton_run.TOTAL_TIMEOUT_SECONDS
        return CompileFailed(f"compiling a kernel's configurations took longer than {limit} s", rule=LIMIT)
    if described["status"] == "error":
        message = f"{described['message']}\n{described['said']}".strip()
        return limit_reached(message) or CompileFailed(message, line=text.lines.get(described["line"], 0))
    if described["status"] == "ended":
        message = f"Triton's compiler ended with {described['ended']}: {described['said']}"
        return limit_reached(message) or CompileFailed(message)
    return None


def _key(text: dict[str, Any], launch: Specialised, capability: int) -> str:
    identity = json.dumps([text, launch.to_data(), capability, *_triton()], sort_keys=True)
    return "triton-" + hashlib.sha256(identity.encode()).hexdigest()[:40]


@functools.cache
def _triton() -> tuple[str, ...]:
    """Return what identifies Triton's compiler and this package's program that runs it. Triton is not imported."""
    spec = importlib.util.find_spec("triton")
    origin = Path(spec.origin) if spec is not None and spec.origin else Path("/")
    worker = PACKAGE / "compiling" / "main.py"
    digest = hashlib.sha256(worker.read_bytes()).hexdigest()
    return importlib.metadata.version("triton"), str(origin), str(origin.stat().st_mtime_ns), digest
