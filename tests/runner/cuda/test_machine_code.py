"""The measured process's side of Triton on CUDA, with a library in libcuda's place that writes its arguments down.

The machine code for compute capability 9.0 is real, but no device runs it here.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import os
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_passbench.judge.arms import replies, sandbox
from pytest_passbench.judge.arms.template import Answer
from pytest_passbench.judge.arms.wire import hear
from pytest_passbench.judge.builder.triton_build import TritonBuilder
from pytest_passbench.judge.planning.planner import Planner
from pytest_passbench.judge.scratch import sealed
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import Argument, LaunchPlan, Operand, Request, TritonLaunch, Tuned, contiguous
from pytest_passbench.plans.machine_code import Binary, Passed
from pytest_passbench.protocol import send
from pytest_passbench.runner import kernels
from pytest_passbench.runner.cuda.libcuda import Driver, DriverError
from pytest_passbench.runner.cuda.machine_code import PlanBinaries
from pytest_passbench.runner.kernels import AskedKernels
from pytest_passbench.runner.plan_runtime import WrongArgument
from pytest_passbench.runner.replay import replay
from shared.pretended_cuda import compiled_stub

STREAM = 0x57
KERNEL = """import triton
import triton.language as tl


@triton.jit
def scale(x, out, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)
"""
COUNT = 40
FORM = contiguous("float32", (COUNT,))
PART = contiguous("float32", (COUNT - 4,))
X, OUT = Operand("argument", 0, 0, FORM), Operand("buffer", 0, 0, FORM)
REQUEST = Request("p", ({"tensor": 0},), (Argument(FORM),))
HIDDEN = 2  # parameters that Triton adds to the made-up binaries below


class Launched(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("attributes", ctypes.c_uint), ("ids", ctypes.c_uint * 4), ("values", ctypes.c_uint * 3 * 4),
        ("stream", ctypes.c_ulonglong), ("hidden", ctypes.c_ulonglong * 2),
    )  # fmt: skip


class Stub:
    """The library, and the arguments that it has written down."""

    def __init__(self, path: Path) -> None:
        self.library = ctypes.CDLL(str(path))
        self.driver = Driver(self.library, lambda: STREAM)
        for name in ("count", "modules", "shared", "clusters", "carveout", "fails"):
            self.number(name).value = 0
        self.parameters([8, 8, 4, 4, 8, 8])

    def number(self, name: str) -> ctypes.c_int:
        return ctypes.c_int.in_dll(self.library, f"stub_{name}")

    def parameters(self, sizes: list[int]) -> None:
        (ctypes.c_ulonglong * 16).in_dll(self.library, "stub_sizes")[: len(sizes)] = sizes
        self.number("parameters").value = len(sizes)

    @property
    def launches(self) -> list[Launched]:
        kept = (Launched * 16).in_dll(self.library, "stub_launches")
        return list(kept[: self.number("count").value])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library: Path) -> Stub:
    return Stub(library)


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidate")
    (folder / "p.py").write_text(KERNEL)
    return folder


def launch(grid: tuple[int, int, int] = (8, 1, 1), **values: Any) -> TritonLaunch:
    options = {name: values.pop(name) for name in ("num_warps",) if name in values}
    named = {"x": X, "out": OUT, "n": COUNT, "factor": 0.5, "BLOCK": 16, **values}
    return TritonLaunch(0, grid, tuple(named.items()), tuple(options.items()))


def plan_of(*steps: Any) -> LaunchPlan:
    reference = {"file": "p.py", "name": "scale", "line": 5, "values": {"tl": {"module": "triton.language"}},
                 "functions": []}  # fmt: skip
    data = {
        "version": 1,
        "tensors": [],
        "tables": [],
        "kernels": [{"triton": json.dumps(reference)}],
        "steps": [{"allocate": [*FORM.to_data(), 0.0]}, *(step.to_data() for step in steps)],
        "returns": [OUT.to_data()],
    }
    return parse.plan(data, REQUEST.tensors)


class Reader:
    """Stands for a reader that records one plan."""

    arm = SimpleNamespace(patience=lambda _phase: 600.0)

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan

    def record(self, _request: Any, _policy: str) -> LaunchPlan:
        return self._plan


def answer(plan: LaunchPlan, folder: Path) -> Answer:
    """Return the judge's answer to a template on a device of compute capability 9.0."""
    nobody: Any = None
    reader: Any = Reader(plan)
    builder = TritonBuilder(sandbox.Walls(False, "asked for"), None)
    return Planner(reader, nobody, builder, "kernels", folder, "").answer(REQUEST.to_data(), 90)


# ---- real machine code


def test_a_plan_is_replayed_with_what_the_builder_compiled(stub: Stub, candidate: Path) -> None:
    part = Operand("argument", 0, 16, PART)
    plan = plan_of(launch(num_warps=8), launch((1, 2, 3), x=part, n=COUNT - 4, factor=2.0), launch((0, 1, 1)))
    told = answer(plan, candidate)
    code = PlanBinaries(told.compiled[0], told.message["machine"], stub.driver, "cpu")
    replayed = replay(plan, [None], "cpu", False, [], code=code)
    x = torch.arange(COUNT, dtype=torch.float32)
    expected = x * 0.5
    expected[: COUNT - 4] = x[4:] * 2
    for _ in range(2):
        assert torch.equal(replayed.call(x), expected)
    first, second = stub.launches[:2]
    assert stub.number("count").value == 4  # an empty grid is no launch
    assert (tuple(first.grid), tuple(first.block)) == ((8, 1, 1), (256, 1, 1))
    assert (tuple(second.grid), tuple(second.block)) == ((1, 2, 3), (128, 1, 1))
    assert (first.stream, first.attributes, tuple(first.hidden)) == (STREAM, 0, (0, 0))
    assert stub.number("modules").value == 2  # loaded once each, not for each launch or call


def test_an_argument_that_lies_otherwise_than_it_was_compiled_for_is_refused(stub: Stub, candidate: Path) -> None:
    plan = plan_of(launch())
    told = answer(plan, candidate)
    code = PlanBinaries(told.compiled[0], told.message["machine"], stub.driver, "cpu")
    call = replay(plan, [None], "cpu", False, [], code=code).call
    with pytest.raises(WrongArgument):
        call(torch.zeros(COUNT + 1)[1:])


def test_a_template_on_a_device_tells_its_capability_and_makes_no_kernel_of_text(
    stub: Stub, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (9, 0))
    monkeypatch.setattr(Driver, "on", lambda _device: stub.driver)
    monkeypatch.setitem(sys.modules, "pytest_passbench.runner.triton_kernels", None)
    told = answer(plan_of(launch()), candidate)
    ours, theirs = socket.socketpair()
    asked = AskedKernels(theirs, "cuda")
    heard: list[Any] = []

    def reply() -> None:
        heard.append(hear(ours, replies.BUILT, "build"))
        descriptors = tuple(map(sealed, told.compiled))
        send(ours, told.message, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)

    judge = threading.Thread(target=reply)
    judge.start()
    asked.kernel(REQUEST)
    judge.join()
    assert heard[0]["capability"] == 90
    assert stub.number("modules").value == 1
    assert "l0(p_a0, p_b0)" in inspect.getsource(asked.replayed[0].call)
    for end in (ours, theirs):
        end.close()


def test_configurations_are_timed_without_those_that_cannot_be_had(
    stub: Stub, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([3.0, 1.0, 2.0])

    class Event:
        def __init__(self, enable_timing: bool) -> None: ...

        def record(self) -> None: ...

        def synchronize(self) -> None: ...

        def elapsed_time(self, _other: Any) -> float:
            return next(seconds)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    sizes = (16, 3, 32, 64)  # a block of 3 elements cannot be compiled
    plan = plan_of(Tuned(tuple((launch(BLOCK=size),) for size in sizes)))
    told = answer(plan, candidate)
    code = PlanBinaries(told.compiled[0], told.message["machine"], stub.driver, "cpu")
    assert "power of 2" in told.message["machine"]["launches"][1]
    assert kernels.tune(plan, [None], "cpu", code) == [2]


# ---- what a binary needs


def prepared(stub: Stub, grid: tuple[int, int, int] = (4, 1, 1), **needs: Any) -> Callable[..., None]:
    kinds = {"x": "pointer", "out": "pointer", "n": "i32", "factor": "fp32"}
    passed = tuple(Passed((name,), kind) for name, kind in kinds.items())
    plain = {"shared": 0, "num_warps": 4, "num_ctas": 1, "scratch_bytes": 0, "cooperative": False, "dependent": False}
    binary = Binary("scale", passed, HIDDEN, **{**plain, **needs})
    told = {"binaries": [{"binary": binary.to_data(), "place": [3, 8]}], "launches": [0]}
    return PlanBinaries(b"...\x7fELF....", told, stub.driver, "cpu").prepare(0, launch(grid, n=0))


def test_shared_memory_beyond_the_usual_is_asked_for(stub: Stub) -> None:
    prepared(stub, shared=48 << 10)(0, 0)
    assert (stub.number("shared").value, stub.number("carveout").value) == (0, 0)
    prepared(stub, shared=100 << 10)(0, 0)
    assert (stub.number("shared").value, stub.number("carveout").value) == (100 << 10, 1)
    assert [one.shared for one in stub.launches] == [48 << 10, 100 << 10]
    with pytest.raises(DriverError, match="give scale 262144 bytes of shared memory: invalid argument"):
        prepared(stub, shared=256 << 10)


def test_attributes_of_a_launch_are_those_of_the_toolkit(stub: Stub) -> None:
    prepared(stub, num_ctas=16, cooperative=True, dependent=True)(0, 0)
    (found,) = stub.launches
    assert tuple(found.grid) == (64, 1, 1)
    ids = dict(zip(found.ids[: found.attributes], [tuple(one) for one in found.values], strict=False))
    assert ids[2][0] == 1  # cooperative
    assert ids[4] == (16, 1, 1)  # a cluster's form
    assert ids[5][0] == 1  # clusters are spread
    assert ids[6][0] == 1  # begins before the last launch has ended
    assert stub.number("clusters").value == 1


def test_scratch_memory_is_there_for_every_program(stub: Stub) -> None:
    prepared(stub, (4, 2, 1), scratch_bytes=256)(0, 0)
    scratch, profile = stub.launches[0].hidden
    assert scratch != 0
    assert profile == 0


@pytest.mark.parametrize("sizes", [[8, 8, 4, 4], [8, 8, 4, 4, 8, 8, 8], [8, 8, 8, 4, 8, 8], []])
def test_machine_code_with_other_parameters_is_refused(stub: Stub, sizes: list[int]) -> None:
    stub.parameters(sizes)
    with pytest.raises(DriverError, match=r"scale has parameters of .*, and is launched with \[8, 8, 4, 4, 8, 8\]"):
        prepared(stub)


def test_what_the_driver_refuses_is_said(stub: Stub) -> None:
    call = prepared(stub)
    stub.number("fails").value = 1
    with pytest.raises(DriverError, match="cannot launch the kernel scale: unspecified launch failure"):
        call(0, 0)
