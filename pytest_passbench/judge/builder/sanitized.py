"""Runs a launch plan's C++ kernels as programs with sanitizers, in the compiler's sandbox, and reads their reports.

A program has the text of a library, and launches its kernels as the plan does, on memory of exactly the plan's sizes.
Floating-point arguments hold small numbers, and all others zeros. Nothing that a program prints is trusted: numbers,
and words of a known form, are all that is taken from it.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_passbench.core.plurals import counted
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.failures import ProcessLost
from pytest_passbench.judge.builder.compile import MAX_MEMORY_BYTES, TIMEOUT_SECONDS, run_compiler
from pytest_passbench.judge.builder.compile_errors import CompileFailed, SourceError
from pytest_passbench.kernels import cpp, signatures, toolchain
from pytest_passbench.plans.launch import Allocate, CppKernel, Launch, LaunchPlan, Operand

SECONDS = 60  # of CPU time, for a program
MAX_RSS_MIB = 4096
MAX_REPORTS = 5
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-omit-frame-pointer", "-g", "-O1")
_SCRATCH_BYTES = 256 << 20
_TYPES = {"pointer": "void*", "dtype": "int32_t", "float32": "float", "float64": "double", "bool": "bool"}
_ONES = {"float32": "0x3f800000u", "float64": "0x3ff0000000000000ull", "bfloat16": "uint16_t(0x3f80)",
         "float16": "uint16_t(0x3c00)"}  # fmt: skip
_HEAD = """#include <cstdint>
#include <cstdlib>
#include <cstring>
template <class T> static void passbench_fill(void* place, size_t size, T one) {
  for (size_t i = 0; i + sizeof one <= size; i += sizeof one) std::memcpy((char*)place + i, &one, sizeof one);
}
"""
_MAX_PRINTED = 64 << 10
_STARTED, _BUILT = "S", "B"
_SCRIPT = f"""
printf {_STARTED} >&2; ulimit -c 0; mkdir "$1/empty"; cd "$1/empty"; folder=$1; shift
(ulimit -v {MAX_MEMORY_BYTES >> 10}; "$@" -o "$folder/program") 2> "$folder/said"; code=$?
if [ $code != 0 ]; then head -c {_MAX_PRINTED} "$folder/said" >&2; exit $code; fi
printf {_BUILT} >&2; ulimit -t {SECONDS}
"$folder/program" > /dev/null 2> "$folder/said"
head -c {_MAX_PRINTED} "$folder/said" >&2
exit 0
"""
_UNDEFINED = re.compile(r"^\S*/kernel:(?P<line>\d+):(?P<column>\d+): runtime error: (?P<what>[^\n]{1,200})$", re.M)
_ADDRESS = re.compile(r"ERROR: AddressSanitizer: (?P<kind>[A-Za-z-]{1,40})")
_ACCESS = re.compile(r"^(?P<access>READ|WRITE) of size (?P<size>\d{1,9}) ", re.M)
_FRAME = re.compile(r"^ +#\d+ 0x[0-9a-f]+ in [^\n]{1,400}? \S*/kernel:(?P<line>\d+)", re.M)
_REGION = re.compile(r"is located (?P<bytes>\d+) bytes (?P<side>to the right|after|to the left|before)[^\n]* region")
_MEMORY = re.compile(r"^ +#\d+ 0x[0-9a-f]+ in main \S*/plan:(?P<line>\d+)", re.M)


def sanitized(plan_data: Mapping[str, Any], walls: sandbox.Walls) -> Iterator[CompileFailed]:
    """Run each C++ library of a plan with sanitizers. ``plan_data`` is a plan that was checked, as data.

    Yield the reports on each, as errors with lines of its text, in the order they came in.
    Raises CompileFailed if the compiler has no sanitizers, if bubblewrap is missing, or if the plan calls torch.
    """
    if any("operator" in step for step in plan_data["steps"]):
        raise CompileFailed("sanitizers need a plan without operators of torch's")
    if not walls.strong:
        raise CompileFailed("sanitizers need bubblewrap: a kernel's program runs in a sandbox of its own")
    plan = LaunchPlan.from_data(plan_data)
    kernels = [kernel for kernel in plan.kernels if isinstance(kernel, CppKernel)]
    for source, flags, openmp in dict.fromkeys((item.source, item.flags, item.openmp) for item in kernels):
        text, names = _program(plan, source)
        yield CompileFailed("", source, tuple(_reports(_run(text, flags, openmp, walls), names))[:MAX_REPORTS])


def _run(text: str, flags: tuple[str, ...], openmp: bool, walls: sandbox.Walls) -> str:
    """Compile and run a program, and return what its sanitizers print. Raises CompileFailed."""
    compiler = toolchain.compiler()
    left_out = {"-shared", "-fPIC", "-O3"}
    options = [flag for flag in toolchain.options(flags, openmp=openmp) if flag not in left_out]
    static = [] if "clang" in Path(compiler).name else ["-static-libasan", "-static-libubsan"]
    call = [compiler, *options, *_SANITIZERS, *static, f"-I{toolchain.INCLUDE}", "-x", "c++", "-"]
    command = sandbox.tool_command(
        ["/bin/sh", "-c", _SCRIPT, "sh", "/tmp", *call],
        walls,
        [toolchain.INCLUDE, Path(compiler).parent.parent],
        _SCRATCH_BYTES,
    )
    limits = f"hard_rss_limit_mb={MAX_RSS_MIB}:allocator_may_return_null=1"
    environment = {
        "PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": "/tmp", "HOME": "/nowhere",
        "ASAN_OPTIONS": f"color=never:detect_leaks=0:{limits}", "UBSAN_OPTIONS": "color=never",
    }  # fmt: skip
    limit = TIMEOUT_SECONDS + SECONDS
    try:
        _code, _data, output = run_compiler(command, text.encode(), environment, limit, limit, walls)
    except ProcessLost:  # the candidate's code can end this sandbox, so it is no loss of the judge's
        raise CompileFailed("the sandbox of the program with sanitizers was ended") from None
    printed = output.decode(errors="replace").removeprefix(_STARTED)
    if not printed.startswith(_BUILT):
        errors = (line for line in printed.splitlines() if "error" in line or "cannot find" in line)
        first = next(errors, printed)
        raise CompileFailed(f"{Path(compiler).name} builds no program with {_SANITIZERS[0]}: {first[:200]}")
    return printed.removeprefix(_BUILT)


def _program(plan: LaunchPlan, source: str) -> tuple[str, list[str]]:
    """Return the text of a program, and the name of the memory that each line of its main function allocates."""
    declared = signatures.parse(source)
    forms = {f"a{index}": tensor.form for index, tensor in enumerate(plan.tensors)}
    buffers = [step for step in plan.steps if isinstance(step, Allocate)]
    forms |= {f"b{index}": step.form for index, step in enumerate(buffers)}
    sizes = {name: form.nbytes for name, form in forms.items()}
    sizes |= {f"t{index}": table.nbytes for index, table in enumerate(plan.tables)}
    lines = [f"void* passbench_{name} = nullptr; posix_memalign(&passbench_{name}, 64, {max(size, 1)});"
             for name, size in sizes.items()]  # fmt: skip
    lines += [f"std::memset(passbench_{name}, 0, {size});" for name, size in sizes.items()]
    for name, form in forms.items():
        if form.dtype in _ONES and form.nbytes:
            lines.append(f"passbench_fill(passbench_{name}, {form.nbytes}, {_ONES[form.dtype]});")
    lines += [f"{{ const unsigned char data[] = {{{_bytes(table.content)}}}; std::memcpy(passbench_t{index}, data, "
              "sizeof data); }" for index, table in enumerate(plan.tables) if table.content]  # fmt: skip
    for step in plan.steps:
        kernel = plan.kernels[step.kernel] if isinstance(step, Launch) else None
        if isinstance(step, Launch) and isinstance(kernel, CppKernel) and kernel.source == source:
            lines.append(_call(kernel.function, declared[kernel.function].parameters, step.arguments))
    main = "\n".join(lines)
    return f'{_HEAD}#line 1 "/kernel"\n{source}\n#line 1 "/plan"\nint main() {{\n{main}\n}}\n', ["", *sizes]


def _bytes(content: str) -> str:
    return ",".join(map(str, bytes.fromhex(content)))


def _call(function: str, kinds: tuple[str, ...], arguments: tuple[Any, ...]) -> str:
    """Return a launch as a statement, with the function's address cast to what a launch passes."""
    types = ", ".join(_TYPES.get(kind, f"{kind}_t") for kind in kinds)
    values = ", ".join(_value(kind, value) for kind, value in zip(kinds, arguments, strict=True))
    return f"reinterpret_cast<void (*)({types})>(&{function})({values});"


def _value(kind: str, value: Any) -> str:
    if isinstance(value, Operand):
        return f"(char*)passbench_{value.source[0]}{value.index} + {value.offset}"
    if value is None:
        return "nullptr"
    if kind == "dtype":
        return str(cpp.DType.names.index(str(value).removeprefix("torch.")))
    if kind in ("float32", "float64"):
        (bits,) = struct.unpack("<q", struct.pack("<d", value))
        return f"({_TYPES[kind]})__builtin_bit_cast(double, (int64_t){bits}ll)"
    return f"({_TYPES.get(kind, f'{kind}_t')}){int(value)}{'ull' if int(value) > 0 else 'll'}"


def _reports(printed: str, names: list[str]) -> Iterator[SourceError]:
    """Yield the reports in a program's output, each with its line of the kernel's text."""
    places = set[tuple[int, int]]()
    for match in _UNDEFINED.finditer(printed):
        at = int(match["line"]), int(match["column"])
        if at not in places:
            places.add(at)
            yield SourceError(*at, f"undefined behaviour: {match['what']}")
    error, frame = _ADDRESS.search(printed), _FRAME.search(printed)
    if error is None:
        return
    access, region, memories = _ACCESS.search(printed), _REGION.search(printed), _MEMORY.findall(printed)
    verb = "" if access is None else "writes" if access["access"] == "WRITE" else "reads"
    message = f"{error['kind']}" + (f": {verb} {counted(int(access['size']), 'byte')}" if access else "")
    place = int(memories[-1]) - 1 if memories else 0  # the allocation's frame comes last
    if region is not None and 0 < place < len(names):
        side = "past the end" if region["side"] in ("to the right", "after") else "before the start"
        message += f", {int(region['bytes'])} bytes {side} of {names[place]}"
    yield SourceError(int(frame["line"]) if frame else 1, 0, message)
