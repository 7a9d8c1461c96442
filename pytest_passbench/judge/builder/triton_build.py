"""Compiles checked Triton text to machine code that a measured process may load, and caches it by content.

The compiler's sandbox has Python, Triton, and this package without its judge. It has no file of a candidate, and no
device. Without bubblewrap, the compiler runs with the same limits and environment in a new empty folder.

A launch is compiled for the types, constants and alignments that Triton's own launcher finds: the number 1 is a
constant, and the compiler may use that addresses and numbers are multiples of 16. A launch plan holds all of this:
its numbers are exact, and replay refuses an argument with another alignment.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_passbench.candidate.triton import KernelText, check_options
from pytest_passbench.core.paths import IMPORTED_FROM, PACKAGE
from pytest_passbench.core.rejected import Rejected, plan_refused
from pytest_passbench.core.schema import Fields, Flag, Items, Kinds, Text, Whole, read
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.judge.builder.compile import run_compiler
from pytest_passbench.judge.builder.compile_errors import LIMIT, CompileFailed, limit_reached
from pytest_passbench.judge.builder.store import ContentStore
from pytest_passbench.judge.scratch import Scratch
from pytest_passbench.plans.launch import Argument, Operand, TritonLaunch, TritonType
from pytest_passbench.plans.machine_code import ANSWER, PARAMETER_BYTES, Binary, Passed, fits

TIMEOUT_SECONDS = 60  # for each launch
TOTAL_TIMEOUT_SECONDS = 300  # for all launches of a kernel that are ordered at once
MAX_MEMORY_BYTES = 4 << 30  # of each process
SCRATCH_BYTES = 256 << 20
_MAX_FILE_BYTES = 64 << 20
MAX_OUTPUT_BYTES = 128 << 20
_MESSAGE = Text(1 << 16)
#: The compiler's answer about a launch: a description of its code, or why there is no code.
DESCRIPTION = Kinds(
    "status",
    {
        "made": Fields(
            {
                "name": Text(400),
                "parameters": Items(Whole(1, 1 << 10), most=1 << 10),
                "shared": Whole(0, 1 << 20),
                "num_warps": Whole(1, 64),
                "num_ctas": Whole(1, 64),
                "scratch_bytes": Whole(0, 1 << 30),
                "cooperative": Flag(),
                "dependent": Flag(),
            }
        ),
        "error": Fields({"message": _MESSAGE, "line": Whole(0, 1 << 31), "said": _MESSAGE}),
        "ended": Fields({"ended": Whole(-64, 255), "said": _MESSAGE}),
        "late": Fields({}),
        "skipped": Fields({}),  # the launches before it took all the time
    },
)
_START = (
    f"import sys; sys.path.insert(0, {str(IMPORTED_FROM)!r}); "
    "from pytest_passbench.compiling.main import main; main()"
)
_SCRIPT = f"""
ulimit -c 0; ulimit -t {TIMEOUT_SECONDS}; ulimit -v {MAX_MEMORY_BYTES >> 10}; ulimit -f {_MAX_FILE_BYTES >> 9}
"$@" | head -c {MAX_OUTPUT_BYTES}
"""
MAX_CODE_BYTES = 16 << 20
_MULTIPLE = 16  # the compiler may use that this divides an address (in bytes) or a number
_SHORT = {
    "int1": "u1",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float64": "fp64",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}
_POINTED = {**_SHORT, "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5"}
_MAX_HIDDEN = 2  # pointers to scratch memory: the kernel's own since Triton 3.2, a profiler's since Triton 3.5


def specialise(text: KernelText, launch: TritonLaunch, tensors: Sequence[Argument]) -> Specialised:
    """Return ``launch`` in the compiler's form. ``tensors`` are its plan's arguments. Raises Rejected."""
    values = dict(launch.arguments)
    for name in text.parameters:
        if name not in values:
            raise plan_refused("argument", f"launches {text.name} without its parameter {name}")
    specialised = Specialised(text, tensors, check_options(dict(launch.options)))
    for number, name in enumerate(text.parameters):
        specialised.add(number, name, values[name])
    return specialised


@dataclass
class Specialised:
    """A launch of ``text`` in the form that the compiler takes. ``passed`` are the values to launch it with.

    ``signature`` has a type for each parameter, ``"constexpr"``, or a list of these for a tuple. The paths of
    ``constants`` and of ``multiples`` of 16 begin with the parameter's number.
    """

    text: KernelText
    tensors: Sequence[Argument]
    options: dict[str, int | bool]
    signature: list[tuple[str, Any]] = field(default_factory=list)
    constants: list[tuple[list[int], Any]] = field(default_factory=list)
    multiples: list[list[int]] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)

    def to_data(self) -> dict[str, Any]:
        """Return the compiler's part as JSON-ready data."""
        return {
            "signature": [[name, kind] for name, kind in self.signature],
            "constants": [[path, value] for path, value in self.constants],
            "multiples": self.multiples,
            "options": self.options,
        }

    def add(self, number: int, name: str, value: Any) -> None:
        """Add the value of a parameter, in order. Raises Rejected."""
        if name in self.text.constexprs:
            kind: Any = self._constant([number], name, value)
        elif name in self.text.types:
            kind = self._typed(number, name, value)
        else:
            free = not self._listed("do_not_specialize", number, name)
            aligned = free and not self._listed("do_not_specialize_on_alignment", number, name)
            kind = self._kind([number], (name,), value, free, aligned)
        self.signature.append((name, kind))

    def _listed(self, option: str, number: int, name: str) -> bool:
        listed = self.text.options.get(option, ())
        return name in listed or number in listed

    def _typed(self, number: int, name: str, value: Any) -> str:
        """Return the type in the parameter's annotation. Raises Rejected if the value does not fit it."""
        stated = self.text.types[name]
        kind = _SHORT.get(stated, stated)
        if kind not in PARAMETER_BYTES or not fits(kind, value):
            raise plan_refused("argument", f"launches {self.text.name} with a wrong argument {name}: no tl.{stated}")
        plain = kind == "u1" or kind.startswith(("fp", "bf"))
        skipped = any(
            self._listed(option, number, name) for option in ("do_not_specialize", "do_not_specialize_on_alignment")
        )
        if not plain and not skipped and value % _MULTIPLE == 0:
            self.multiples.append([number])
        self.passed.append(Passed((name,), kind))
        return kind

    def _kind(self, path: list[int], names: tuple[str | int, ...], value: Any, free: bool, aligned: bool) -> Any:
        if isinstance(value, tuple):
            return [
                self._kind([*path, place], (*names, place), item, free, aligned) for place, item in enumerate(value)
            ]
        if isinstance(value, Operand):
            begins = self.tensors[value.index].misaligned if value.source == "argument" else 0  # others are aligned
            kind, passed, multiple = self._pointer(names, value), "pointer", (begins + value.offset) % _MULTIPLE == 0
        elif isinstance(value, bool):
            kind, passed, multiple = "u1", "u1", False
        elif isinstance(value, int) and not (free and value == 1):
            kind = passed = next(kind for kind in ("i32", "i64", "u64") if fits(kind, value))
            multiple = value % _MULTIPLE == 0
        elif isinstance(value, float):
            kind, passed, multiple = "fp32", "fp32", False
        else:
            return self._constant(path, str(names[0]), value)
        if multiple and aligned:
            self.multiples.append(path)
        self.passed.append(Passed(names, passed))
        return kind

    def _pointer(self, names: tuple[str | int, ...], operand: Operand) -> str:
        pointed = _POINTED.get(operand.form.dtype)
        if pointed is None:
            start = f"launches {self.text.name} with a wrong argument {names[0]}"
            raise plan_refused("argument", f"{start}: Triton has no pointer to {operand.form.dtype}")
        return f"*{pointed}"

    def _constant(self, path: list[int], name: str, value: Any) -> str:
        try:
            self.constants.append((path, _literal(value)))
        except ValueError as error:
            start = f"launches {self.text.name} with a wrong argument {name}"
            raise plan_refused("argument", f"{start}: {error} is no constant of a Triton kernel") from None
        return "constexpr"


def _literal(value: Any) -> Any:
    """Return a constant as JSON-ready data. Raises ValueError naming its type."""
    if isinstance(value, (tuple, list)):
        return [_literal(item) for item in value]
    if isinstance(value, TritonType):
        return {"tl": value.name}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ValueError(type(value).__name__)


def run(
    text: dict[str, Any],
    launches: Sequence[dict[str, Any]],
    capability: int,
    walls: sandbox.Walls,
    patience: float = math.inf,
) -> list[tuple[dict[str, Any], bytes]]:
    """Return a description (see :data:`DESCRIPTION`) and the machine code of each launch of a checked text.

    Raises :class:`CompileFailed` if the compiler does not start, or gives an answer of another form. Raises
    TimeoutError if it takes longer than the caller's ``patience`` in seconds, ProcessLost if it was killed or stopped
    from outside.
    """
    job = {
        "text": text,
        "launches": list(launches),
        "capability": capability,
        "seconds": TIMEOUT_SECONDS,
        "seconds_in_all": TOTAL_TIMEOUT_SECONDS,
    }
    folder_context = contextlib.nullcontext(Path("/tmp")) if walls.strong else Scratch()
    with folder_context as folder:
        scratch = str(folder)
        program = ["/bin/sh", "-c", _SCRIPT, "sh", sandbox.interpreter(), "-P", "-W", "ignore", "-c", _START, scratch]
        command = sandbox.command(program, walls, devices=False, scratch_bytes=SCRATCH_BYTES)
        folders = {"HOME": scratch, "TMPDIR": scratch, "TRITON_CACHE_DIR": f"{scratch}/cache"}
        environment = sandbox.environment(1, "cuda", folders)
        limit = TIMEOUT_SECONDS + TOTAL_TIMEOUT_SECONDS
        _, data, output = run_compiler(command, json.dumps(job).encode(), environment, limit, patience, walls)
    answers = list(_answers(data))
    if len(answers) != len(launches):
        message = output.decode(errors="replace").strip()[-2000:] or "it said nothing"
        raise CompileFailed(f"Triton's compiler gave {len(answers)} answers of {len(launches)}: {message}")
    return answers


def _answers(data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the description and code of each complete answer. Raises CompileFailed for an answer of another form."""
    place = 0
    while place + ANSWER.size <= len(data):
        described, code = ANSWER.unpack_from(data, place)
        place += ANSWER.size
        if place + described + code > len(data):
            return
        try:
            form = read(DESCRIPTION, data[place : place + described])
        except Rejected as error:
            raise CompileFailed(f"Triton's compiler gave an invalid answer: {error}") from error
        place += described + code
        yield form, data[place - code : place]


@dataclass(frozen=True)
class CompiledLaunch:
    """A launch's machine code, and its description for the launcher."""

    binary: Binary
    code: bytes


class TritonBuilder:
    """A compiler of launches behind ``walls``. ``cache`` is a folder of the judge's user; None keeps none on disk.

    Several builders may share a cache. Code from the cache is checked like code from the compiler.
    """

    def __init__(self, walls: Walls, cache: Path | None) -> None:
        self._walls, self._store = walls, ContentStore(cache)
        self._failed: dict[str, CompileFailed] = {}  # so that no limit is reached twice

    def forget_failures(self) -> None:
        """Forget what failed, so that it is compiled again if asked for: a new run's candidates have other texts."""
        self._failed.clear()

    def machines(
        self, text: KernelText, launches: Sequence[Specialised], capability: int, patience: float = math.inf
    ) -> list[CompiledLaunch | CompileFailed]:
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
            answers = run(data, jobs, capability, self._walls, patience)
            for (key, launch), answer in zip(missing.items(), answers, strict=True):
                results[key] = self._compiled(key, text, launch, *answer)
        return [machine for key in keys if (machine := results[key]) is not None]

    def _stored(self, key: str, launch: Specialised) -> CompiledLaunch | CompileFailed | None:
        if key in self._failed:
            return self._failed[key]
        stored = self._store.get(key)
        if stored is None:
            return None
        described, _, code = stored.partition(b"\n")
        try:
            return _checked(read(DESCRIPTION, described), code, launch)
        except Rejected:
            return None

    def _compiled(
        self, key: str, text: KernelText, launch: Specialised, described: dict[str, Any], code: bytes
    ) -> CompiledLaunch | CompileFailed:
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


def _checked(described: dict[str, Any], code: bytes, launch: Specialised) -> CompiledLaunch:
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
    return CompiledLaunch(binary, code)


def _failure(text: KernelText, described: dict[str, Any]) -> CompileFailed | None:
    """Return the failure that the compiler's answer describes; None if it made the code."""
    if described["status"] == "late":
        return CompileFailed(f"compiling took longer than {TIMEOUT_SECONDS} s", rule=LIMIT)
    if described["status"] == "skipped":
        limit = TOTAL_TIMEOUT_SECONDS
        return CompileFailed(f"compiling a kernel's configurations took longer than {limit} s", rule=LIMIT)
    if described["status"] == "error":
        message, line, output = described["message"], described["line"], described["said"]
        unquoted = message.partition("\n")[0] if line else message  # the other lines quote the kernel
        failure = CompileFailed(f"{message}\n{output}".strip(), line=text.lines.get(line, 0))
        return limit_reached(f"{unquoted}\n{output}") or failure
    if described["status"] == "ended":
        message = f"Triton's compiler ended with {described['ended']}: {described['said']}"
        return limit_reached(message) or CompileFailed(message)
    return None


def _key(text: dict[str, Any], launch: Specialised, capability: int) -> str:
    identity = json.dumps([text, launch.to_data(), capability, *_triton()], sort_keys=True)
    return "triton-" + hashlib.sha256(identity.encode()).hexdigest()[:40]


@functools.cache
def _triton() -> tuple[str, ...]:
    """Return what identifies Triton's compiler and this package's program that runs it, without importing Triton."""
    spec = importlib.util.find_spec("triton")
    origin = Path(spec.origin) if spec is not None and spec.origin else Path("/")
    worker = PACKAGE / "compiling" / "main.py"
    digest = hashlib.sha256(worker.read_bytes()).hexdigest()
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:  # a nightly torch brings it in a package of another name
        version = ""
    return version, str(origin), str(origin.stat().st_mtime_ns), digest
