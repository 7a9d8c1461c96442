"""Triton on the judge's side: it compiles checked text and a plan's launches to machine code without a device.

The compiler runs for real, for compute capability 9.0: Triton brings the assembler.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_passbench.candidate.triton import KernelReference, KernelText, kernel_text
from pytest_passbench.compiling import main as compiling
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.judge.arms import sandbox
from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.builder import triton_build
from pytest_passbench.judge.builder.build import BuiltLibrary
from pytest_passbench.judge.builder.compile_errors import LIMIT, CompileFailed
from pytest_passbench.judge.builder.triton_build import CompiledLaunch, Specialised, TritonBuilder, specialise
from pytest_passbench.judge.planning import planner as planner_module
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.kernels.signatures import Signature
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import Argument, Operand, TritonLaunch, TritonType, contiguous
from pytest_passbench.plans.machine_code import ANSWER

HOPPER = 90
WEAK = sandbox.Walls(False, "asked for")
WALLS = {"strong": sandbox.walls(), "weak": WEAK}
KERNELS = """import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def everything(x, out, one, flag, pair, wide: tl.int64, half: tl.float16, nothing, kind: tl.constexpr,
               B: tl.constexpr):
    at = tl.arange(0, B)
    value = tl.load(x + at).to(kind) * pair[0] + tl.load(pair[1]) + half
    if flag:
        value += wide + one
    if nothing is None:
        tl.store(out + at, value)


@triton.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["m"])
def plain(x, n, m):
    tl.store(x + n, m)


@triton.jit
def mistaken(x, B: tl.constexpr):
    # A comment, and lines that the checked text does not have.

    at = tl.arange(0, B)
    value = (
        tl.load(x + at)
    )
    if B > 1:
        value += tl.zeros([3], tl.float32)
    tl.store(x + at, value)


@triton.jit
def endless(x, B: tl.constexpr):
    for step in tl.static_range(0, B):
        tl.store(x + step, step)
"""
FORM = contiguous("float32", (1000,))
TENSORS = (Argument(FORM, "cuda:0"), Argument(FORM, "cuda:0", misaligned=4))
X, OUT = Operand("argument", 0, 0, FORM), Operand("buffer", 0, 0, FORM)
SCALE = {"x": X, "out": OUT, "n": 1000, "factor": 0.5, "BLOCK": 128}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("candidate")
    (made / "p.py").write_text(KERNELS)
    return made


def reference(name: str) -> dict[str, Any]:
    line = KERNELS[: KERNELS.index(f"def {name}(")].count("\n") + 1
    return {"file": "p.py", "name": name, "line": line, "values": {"tl": {"module": "triton.language"}},
            "functions": []}  # fmt: skip


def text(folder: Path, name: str) -> KernelText:
    return kernel_text(folder, KernelReference.from_json(reference(name)))


def special(text: KernelText, values: dict[str, Any], **options: int) -> Specialised:
    return specialise(text, TritonLaunch(0, (8, 1, 1), tuple(values.items()), tuple(options.items())), TENSORS)


# ---- what a launch is compiled for


def test_ones_are_constants_and_multiples_of_16_are_told(folder: Path) -> None:
    found = special(text(folder, "scale"), {**SCALE, "n": 1}, num_warps=2)
    assert dict(found.signature) == {
        "x": "*fp32", "out": "*fp32", "n": "constexpr", "factor": "fp32", "BLOCK": "constexpr",
    }  # fmt: skip
    assert found.constants == [([2], 1), ([4], 128)]
    assert found.multiples == [[0], [1]]
    assert found.options == {"num_warps": 2}
    assert [passed.path for passed in found.passed] == [("x",), ("out",), ("factor",)]


@pytest.mark.parametrize(
    ("n", "kind", "multiple"),
    [(0, "i32", True), (48, "i32", True), (47, "i32", False), (-(1 << 31), "i32", True), (1 << 31, "i64", True),
     (True, "u1", False), ((1 << 63) - 1, "i64", False), (1.0, "fp32", False), (1 << 63, "u64", True)],
)  # fmt: skip
def test_a_number_has_the_type_that_triton_gives_it(folder: Path, n: Any, kind: str, multiple: bool) -> None:
    found = special(text(folder, "scale"), {**SCALE, "n": n})
    assert dict(found.signature)["n"] == kind
    assert ([2] in found.multiples) is multiple


def test_an_address_is_a_multiple_of_16_only_where_replay_sees_to_it(folder: Path) -> None:
    shown = [Operand("argument", index, offset, contiguous("float32", (900,))) for index, offset in
             ((0, 0), (0, 64), (0, 4), (1, 0), (1, 12))]  # fmt: skip
    found = [special(text(folder, "scale"), {**SCALE, "x": operand}).multiples for operand in shown]
    assert [[0] in multiples for multiples in found] == [True, True, False, False, True]


def test_what_a_kernel_says_of_its_parameters_counts(folder: Path) -> None:
    found = special(text(folder, "plain"), {"x": X, "n": 1, "m": 32})
    assert dict(found.signature) == {"x": "*fp32", "n": "i32", "m": "i32"}
    assert found.multiples == [[0]]


@pytest.mark.parametrize(
    ("values", "said"),
    [({"n": None, "factor": object()}, "object is no constant"),
     ({"x": Operand("buffer", 0, 0, contiguous("complex64", (3,)))}, "no pointer to complex64"),
     ({"BLOCK": X}, "Operand is no constant")],
)  # fmt: skip
def test_what_no_kernel_takes_is_refused_with_its_name(folder: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(Rejected, match=said):
        special(text(folder, "scale"), {**SCALE, **values})


def test_a_launch_without_a_parameter_is_refused(folder: Path) -> None:
    with pytest.raises(Rejected, match="launches scale without its parameter factor"):
        special(text(folder, "scale"), {name: value for name, value in SCALE.items() if name != "factor"})


# ---- compiling


def machine(found: CompiledLaunch | CompileFailed) -> CompiledLaunch:
    assert isinstance(found, CompiledLaunch), found
    return found


@pytest.mark.parametrize("walls", [pytest.param("strong", marks=pytest.mark.bubblewrap), "weak"])
def test_a_kernel_becomes_machine_code_for_a_device_that_is_not_here(folder: Path, walls: str) -> None:
    wanted = [special(text(folder, "scale"), {**SCALE, "n": n}, num_warps=warps) for n, warps in ((1000, 4), (1, 8))]
    found = TritonBuilder(WALLS[walls], None).machines(text(folder, "scale"), wanted, HOPPER)
    first, second = (machine(one) for one in found)
    assert int.from_bytes(first.code[18:20], "little") == 190  # the ELF header's machine: CUDA
    assert b"sm_90" in first.code
    assert (first.binary.name, first.binary.num_warps, second.binary.num_warps) == ("scale", 4, 8)
    assert first.binary.sizes[:4] == (8, 8, 4, 4)
    assert second.binary.sizes[:3] == (8, 8, 4)  # n is 1: nothing to pass
    assert first.binary.hidden == second.binary.hidden


def test_every_kind_of_argument_is_compiled(folder: Path) -> None:
    values = {
        "x": X, "out": OUT, "one": 1, "flag": True, "pair": (3, Operand("argument", 1, 0, FORM), 1),
        "wide": 5, "half": 0.5, "nothing": None, "kind": TritonType("float32"), "B": 64,
    }  # fmt: skip
    kernel = text(folder, "everything")
    (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, values)], HOPPER)
    paths = [passed.path for passed in machine(found).binary.passed]
    assert paths == [("x",), ("out",), ("flag",), ("pair", 0), ("pair", 1), ("wide",), ("half",)]


def test_a_mistake_has_its_line_and_costs_no_other_configuration(folder: Path) -> None:
    kernel = text(folder, "mistaken")
    wanted = [special(kernel, {"x": X, "B": size}) for size in (64, 1)]
    mistake, right = TritonBuilder(WEAK, None).machines(kernel, wanted, HOPPER)
    assert isinstance(mistake, CompileFailed)
    assert KERNELS.splitlines()[mistake.line - 1].strip() == "value += tl.zeros([3], tl.float32)"
    assert "CompilationError" in str(mistake)
    machine(right)


def test_more_shared_memory_than_usual_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def dot(x, out, B: tl.constexpr):\n"
        "    at = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]\n"
        "    tl.store(out + at, tl.dot(tl.load(x + at), tl.load(x + at + 8)))\n"
    )
    kernel = kernel_text(tmp_path, KernelReference.from_json({**reference("scale"), "name": "dot"}))
    half = Operand("argument", 0, 0, contiguous("float16", (128, 128)))
    values = {"x": half, "out": Operand("buffer", 0, 0, contiguous("float32", (128, 128))), "B": 128}
    (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, values)], HOPPER)
    assert machine(found).binary.shared > 48 << 10


# ---- limits


def test_compiling_without_end_is_stopped_and_costs_no_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_build, "TIMEOUT_SECONDS", 2)
    kernel = text(folder, "endless")
    wanted = [special(kernel, {"x": X, "B": size}) for size in (1 << 20, 2)]
    builder = TritonBuilder(WEAK, None)
    late, right = builder.machines(kernel, wanted, HOPPER)
    assert isinstance(late, CompileFailed)
    assert late.rule == LIMIT
    assert "longer than 2 s" in str(late)
    machine(right)
    assert builder.machines(kernel, wanted[:1], HOPPER)[0] is late  # not tried twice


def test_a_compilation_that_has_hardly_begun_is_stopped_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "setpgid", lambda *_numbers: time.sleep(60))
    began = time.monotonic()
    assert compiling._in_fork(None, {}, HOPPER, tmp_path, 0.01) == ({"status": "late"}, b"")
    assert time.monotonic() - began < 10


def test_configurations_that_nobody_has_time_for_are_a_limit_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_build, "TOTAL_TIMEOUT_SECONDS", 0.5)
    kernel = text(folder, "endless")
    found = TritonBuilder(WEAK, None).machines(
        kernel, [special(kernel, {"x": X, "B": 1 << n}) for n in (20, 1)], HOPPER
    )
    assert [one.rule for one in found] == [LIMIT] * 2
    assert "configurations took longer than 0.5 s" in str(found[1])


def test_compiling_in_too_little_memory_is_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = triton_build._SCRIPT.replace(str(triton_build.MAX_MEMORY_BYTES >> 10), str(280 << 10))
    monkeypatch.setattr(triton_build, "_SCRIPT", script)
    kernel = text(folder, "endless")
    (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, {"x": X, "B": 1 << 15})], HOPPER)
    assert isinstance(found, CompileFailed)
    assert found.rule == LIMIT
    assert "more memory" in str(found)


@pytest.mark.parametrize(
    ("described", "rule"),
    [
        ({"message": "CompilationError: at 2:4:\ndef scale(x):\n    Killed\n    ^\nNameError", "line": 2}, ""),
        ({"message": "MemoryError: at 2:4:\ndef scale(x):\n    Killed\n    ^\nNameError", "line": 2}, LIMIT),
        ({"message": "OSError: [Errno 28] No space left on device", "line": 0}, LIMIT),
        ({"message": "RuntimeError: PassManager::run failed", "line": 0, "said": "LLVM ERROR: out of memory"}, LIMIT),
    ],
)
def test_a_line_of_a_kernel_names_no_limit(
    folder: Path, monkeypatch: pytest.MonkeyPatch, described: dict[str, Any], rule: str
) -> None:
    failed = said({"status": "error", "said": "", **described}, code=b"")
    monkeypatch.setattr(triton_build, "run_compiler", lambda *_arguments: (0, failed, b""))
    kernel = text(folder, "scale")
    (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, SCALE)], HOPPER)
    assert isinstance(found, CompileFailed)
    assert found.rule == rule


def test_a_triton_in_a_package_of_another_name_is_known_by_its_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    version, *others = triton_build._triton.__wrapped__()
    assert version == ""
    assert all(others)


# ---- a compiler with unexpected answers


def said(described: Any, code: bytes = b"\x7fELF", **changed: Any) -> bytes:
    form = json.dumps({**described, **changed}).encode() if isinstance(described, dict) else described
    return ANSWER.pack(len(form), len(code)) + form + code


MADE: dict[str, Any] = {
    "status": "made", "name": "scale", "parameters": [8, 8, 4, 4, 8, 8], "shared": 0, "num_warps": 4, "num_ctas": 1,
    "scratch_bytes": 0, "cooperative": False, "dependent": False,
}  # fmt: skip


@pytest.mark.parametrize(
    "answer",
    [b"", b"\x00" * 7, b"\xff" * 64, said(MADE)[:-1], said(b"{"), said(b"[" * 5000), said(b"[]"), said({}),
     said({"status": "late", "more": 1}), said(MADE, shared=-1), said(MADE, num_warps=1 << 70), said(MADE, name=3),
     said(MADE, code=b"#!/bin/sh"), said(MADE) + said(MADE), said(MADE, parameters=[8, 8, 4, 4, 8, 8, 8]),
     said(MADE, parameters=[8, 8, 4]), said(MADE, parameters=[8, 8, 8, 4]),
     said(MADE, parameters=[8, 8, 4, 4], scratch_bytes=8)],
)  # fmt: skip
def test_whatever_a_compiler_says_no_other_machine_code_comes_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    kernel = text(folder, "scale")
    monkeypatch.setattr(triton_build, "run_compiler", lambda *_arguments: (0, said(MADE), b""))
    (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, SCALE)], HOPPER)
    assert machine(found).binary.hidden == 2
    monkeypatch.setattr(triton_build, "run_compiler", lambda *_arguments: (0, answer, b""))
    try:
        (found,) = TritonBuilder(WEAK, None).machines(kernel, [special(kernel, SCALE)], HOPPER)
    except CompileFailed as error:
        found = error
    assert isinstance(found, CompileFailed)


# ---- the cache


def test_the_cache_serves_other_builders_and_is_checked(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, kernel = tmp_path / "cache", text(folder, "scale")
    wanted = [special(kernel, SCALE)]
    (built,) = TritonBuilder(WEAK, cache).machines(kernel, wanted, HOPPER)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    (entry,) = cache.iterdir()
    stored = entry.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(triton_build, "run", None)
        assert TritonBuilder(WEAK, cache).machines(kernel, wanted, HOPPER) == [built]
        for other in (special(kernel, SCALE, num_warps=2), special(kernel, {**SCALE, "n": 48})):
            with pytest.raises(TypeError):
                TritonBuilder(WEAK, cache).machines(kernel, [other], HOPPER)
        with pytest.raises(TypeError):
            TritonBuilder(WEAK, cache).machines(kernel, wanted, 80)
    entry.write_bytes(stored[:-1] + b"x")
    assert TritonBuilder(WEAK, cache).machines(kernel, wanted, HOPPER) == [built]
    assert entry.read_bytes() == stored


# ---- what a template is told


class Reader:
    """Stands for a reader that records one plan."""

    arm = SimpleNamespace(patience=lambda _phase: 600.0)

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan

    def record(self, request: Any, _policy: str) -> Any:
        return parse.plan(self._plan, request.tensors)


REQUEST: dict[str, Any] = {
    "name": "p", "arguments": [{"tensor": 0}], "tensors": [TENSORS[0].to_data()],
    "outputs": 1, "sequence": False, "results": [], "region": "",
}  # fmt: skip


def launched(name: str = "scale", **values: Any) -> dict[str, Any]:
    named = {**SCALE, **values} if name == "scale" else values
    return TritonLaunch(0, (8, 1, 1), tuple(named.items()), ()).to_data()


def answer(folder: Path, steps: list[Any], name: str = "scale", capability: int | None = HOPPER) -> Any:
    plan = {
        "version": 1,
        "tensors": [],
        "tables": [],
        "kernels": [{"triton": json.dumps(reference(name))}],
        "steps": [{"allocate": [*FORM.to_data(), None]}, *steps],
        "returns": [OUT.to_data()],
    }
    nobody: Any = None
    reader: Any = Reader(plan)
    planner = Planner(reader, nobody, TritonBuilder(WEAK, None), "kernels", folder, "")
    return planner.answer(REQUEST, capability)


def test_a_device_gets_machine_code_and_no_text(folder: Path) -> None:
    steps = [launched(), launched(n=1), launched()]
    told = answer(folder, steps)
    assert "tl." not in json.dumps({**told.message, "plan": None})
    (code,) = told.compiled
    assert code.startswith(b"\x7fELF")
    machine = told.message["machine"]
    assert machine["launches"] == [0, 1, 0]
    assert [one["place"][0] for one in machine["binaries"]] == [0, machine["binaries"][0]["place"][1]]


def test_the_interpreter_gets_the_text_and_nothing_is_compiled(folder: Path) -> None:
    told = answer(folder, [launched()], capability=None)
    assert "tl.load" in told.message["kernels"][0]["triton"]["source"]
    assert told.compiled == ()
    assert "machine" not in told.message


def test_a_mistake_is_a_failure_of_compiling_with_file_and_line(folder: Path) -> None:
    with pytest.raises(ArmFailure) as caught:
        answer(folder, [launched("mistaken", x=OUT, B=64)], "mistaken")
    line = KERNELS[: KERNELS.index("value += tl.zeros")].count("\n") + 1
    assert (caught.value.status, caught.value.phase) == ("compile_fail", "compile")
    assert caught.value.message.startswith(f"{folder}/p.py:{line}: pass p: kernel mistaken: CompilationError")


def test_a_configuration_may_fail_and_not_all_of_them(folder: Path) -> None:
    wrong, right = (launched("mistaken", x=OUT, B=size) for size in (64, 1))
    told = answer(folder, [{"tuned": [[wrong], [right]]}], "mistaken")
    first, second = told.message["machine"]["launches"]
    assert "CompilationError" in first
    assert second == 0
    with pytest.raises(ArmFailure, match="CompilationError"):
        answer(folder, [{"tuned": [[wrong], [wrong]]}], "mistaken")


@pytest.mark.parametrize(("capability", "untuned"), [(None, ("p",)), (HOPPER, ())], ids=["interpreter", "device"])
def test_configurations_that_nobody_measures_are_told(folder: Path, capability: int | None, untuned: Any) -> None:
    choices = [[launched(BLOCK=size)] for size in (64, 128)]
    assert answer(folder, [{"tuned": choices}], capability=capability).untuned == untuned
    assert answer(folder, [{"tuned": choices[:1]}], capability=capability).untuned == ()


def test_a_launch_that_does_not_fit_its_kernel_is_a_failure_of_the_plan(folder: Path) -> None:
    with pytest.raises(ArmFailure, match="launches plain without its parameter m") as caught:
        answer(folder, [launched("plain", x=OUT, n=3)], "plain")
    assert caught.value.status == "runtime_fail"


def test_the_kernels_of_many_plans_are_no_reason_to_refuse_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [{"allocate": [*FORM.to_data(), None]}, {"launch": [0, [OUT.to_data()]]}]
    plan = {"version": 1, "tensors": [], "tables": [], "kernels": [], "steps": steps, "returns": [OUT.to_data()]}
    asked: list[str] = []

    def library(source: str, *_options: Any) -> BuiltLibrary:
        asked.append(source)
        return BuiltLibrary(source.encode() * 10, {"f": Signature("void", ("pointer",), frozenset({0}))})

    monkeypatch.setattr(planner_module, "MAX_LIBRARY_BYTES", 250)
    reader: Any = Reader(plan)
    builder: Any = SimpleNamespace(library=library)
    planner = Planner(reader, builder, TritonBuilder(WEAK, None), "kernels", folder, "")

    def answers(*sources: str, name: str = "p") -> None:
        plan["kernels"] = [{"cpp": [source * 10, [], False, "f"]} for source in sources]
        planner.answer({**REQUEST, "name": name}, None)

    for number in range(5):
        answers(str(number), name=f"p{number}")
        answers(str(number), name=f"p{number}")
    assert asked == [str(number) * 10 for number in range(5)]  # a second request gets the first one's answer
    answers("0", name="p0")
    assert asked[5:] == ["0" * 10]  # later plans took the place of its library
    with pytest.raises(ArmFailure, match="brings libraries of more than 0 MiB"):
        answers("5", "6", "7")
