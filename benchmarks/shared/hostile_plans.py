"""Messages and plans that an attacker in the reader may send: valid ones, and mutations of them."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.judge.builder.build import BuiltLibrary
from pytest_passbench.judge.planning.planner import Planner, check
from pytest_passbench.kernels import signatures
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import Allocate, Argument, LaunchPlan, Operand, Request, contiguous
from pytest_passbench.runner.replay import replay

SHAPE = (8, 16)
MOST_BYTES = 1 << 24  # of memory that a plan allocates; plans that allocate more are not run
SOURCE = """#include <cstdint>
extern "C" void one(const float* x, const float* y, float* out, int64_t n, float eps) { }
extern "C" void two(const float* x, float* out, bool half) { }
"""
TRITON = """import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""


def request() -> Request:
    """Return the match that all plans are for."""
    form = contiguous("float32", SHAPE)
    return Request("p", ({"tensor": 0}, {"tensor": 1}), (Argument(form), Argument(form)))


def _operand(source: str, index: int, offset: int = 0, shape: Sequence[int] = SHAPE, dtype: str = "float32") -> Any:
    form = contiguous(dtype, tuple(shape))
    return {"operand": [source, index, offset, *form.to_data()]}


def _allocate(fill: Any = None, shape: Sequence[int] = SHAPE, dtype: str = "float32") -> Any:
    return {"allocate": [*contiguous(dtype, tuple(shape)).to_data(), fill]}


X, Y, OUT, SCRATCH = _operand("argument", 0), _operand("argument", 1), _operand("buffer", 0), _operand("buffer", 1)
_CPP = [{"cpp": [SOURCE, ["-O3"], False, "one"]}, {"cpp": [SOURCE, ["-O3"], True, "two"]}]
_OUTER = {"tl": {"module": "triton.language"}}
_REFERENCE = {"file": "p.py", "name": "kernel", "line": 6, "values": _OUTER, "functions": []}
_TRITON = {"triton": json.dumps(_REFERENCE)}
_NAMED = [["x_ptr", X], ["out_ptr", OUT], ["n", 128], ["BLOCK", 16]]
_LAUNCHED = {"triton": [0, [8, 1, 1], _NAMED, [["num_warps", 4]]]}
_PLAIN = {"version": 1, "tensors": [argument.to_data() for argument in request().tensors], "tables": []}

#: Valid plans: every kind of step, operand and kernel.
PLANS: list[dict[str, Any]] = [
    {
        **_PLAIN,
        "kernels": _CPP[:1],
        "steps": [_allocate(), {"launch": [0, [X, Y, OUT, 128, 1e-5]]}],
        "returns": [OUT],
    },
    {
        **_PLAIN,
        "tables": ["00" * 64],
        "kernels": _CPP,
        "steps": [
            _allocate(),
            _allocate(0.5),
            {"copy": [OUT, X]},
            {"fill": [_operand("buffer", 1, 64, (16,)), {"float": "inf"}]},
            {"launch": [1, [_operand("table", 0, 0, (16,)), SCRATCH, True]]},
            {"launch": [0, [SCRATCH, _operand("argument", 1, 64, (4, 16)), OUT, 128, 2]]},
        ],
        "returns": [_operand("buffer", 0, 0, (16, 8))],
    },
    {**_PLAIN, "kernels": [_TRITON], "steps": [_allocate(), _LAUNCHED], "returns": [OUT]},
    {
        **_PLAIN,
        "kernels": [_TRITON],
        "steps": [_allocate(), {"tuned": [[{"fill": [OUT, 0]}, _LAUNCHED], [_LAUNCHED]]}],
        "returns": [OUT],
    },
    {
        **_PLAIN,
        "kernels": _CPP[:1],
        "steps": [
            {"operator": ["aten.add.Tensor", [X, Y], [["alpha", 1]], [OUT]]},
            {"launch": [0, [X, Y, OUT, 128, 1e-5]]},
        ],
        "returns": [OUT],
    },
]
GRAPH = {
    "arguments": ["x", "y"],
    "calls": [
        ["call_function", "torch.nn.functional.gelu", [{"node": 0}], {"approximate": "none"}],
        ["call_method", "reshape", [{"node": 2}, {"tuple": [8, -1]}], {}],
        ["call_function", "operator.add", [{"node": 3}, {"node": 1}], {}],
    ],
    "result": [{"node": 4}, {"slice": [None, 2, {"float": "nan"}]}, {"dtype": "float32"}],
}
VALUES: list[Any] = [
    [1, 2.5, None, True, "text", {"tuple": [1, [2]]}, {"slice": [0, None, 2]}],
    {"complex": ["1.0", "-2.0"]},
    [{"dtype": "bfloat16"}, {"device": "cuda:0"}, {"ellipsis": True}, {"memory_format": "torch.channels_last"}],
]
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 63, 1 << 31, 1 << 40, 1 << 63, 1 << 200, -(1 << 63), 0.5, -0.0, 1e308,
    float("inf"), float("nan"), "", "x", "class", "argument", "buffer", "table", "float64", "int8", "bool",
    "aten.mul.Tensor", "__class__", "a" * 5000, "\x00", "\ufb01", "\u017f", [], {}, [[]], {"node": 0},
    {"operand": []}, {"tuple": []}, {"tl": "float32"}, {"float": "inf"}, {"device": "meta"}, {"dtype": "float32"},
    [0] * 600, {"a": 1, "b": 2}, X, Y, OUT, SCRATCH,
)  # fmt: skip


def mutated(data: Any, rng: random.Random) -> Any:
    """Return a copy of JSON-ready data with one to four things in it changed."""
    found = copy.deepcopy(data)
    for _ in range(rng.randint(1, 4)):
        found = _mutated_once(found, rng)
    return found


def _mutated_once(data: Any, rng: random.Random) -> Any:
    places = list(_places(data))
    if not places:
        return copy.deepcopy(rng.choice(_ODD))
    holder, key = rng.choice(places)
    kind = 4 if type(holder[key]) is int and rng.random() < 0.6 else rng.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1:
        other, name = rng.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif kind == 2 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == 3 and isinstance(holder, list):
        rng.shuffle(holder)
    elif kind == 4 and type(holder[key]) is int:
        holder[key] += rng.choice((-1, 1, 2, 16, 64, -64, 1 << 20))
    elif kind == 5 and isinstance(holder, dict):
        holder[str(rng.choice(_ODD))[:50]] = holder.pop(key)
    elif kind == 6:
        for _ in range(rng.choice((1, 3, 40))):
            holder[key] = [holder[key]]
    else:
        holder[key] = copy.deepcopy(rng.choice(_ODD))
    return data


def _places(data: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    waiting = [data]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, (dict, list)):
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            found += [(holder, key) for key in keys]
            waiting += [holder[key] for key in keys]
    return found


class _Builder:
    """Stands for the builder: every source is compiled already."""

    def library(self, source: str, _flags: tuple[str, ...], _openmp: bool, _patience: float) -> BuiltLibrary:
        return BuiltLibrary(b"", signatures.parse(source))


class _Reader:
    """Stands for a reader that records this plan."""

    arm = SimpleNamespace(patience=lambda _phase: 600.0)

    def __init__(self, plan: LaunchPlan) -> None:
        self._plan = plan

    def record(self, _request: Request, _policy: str) -> LaunchPlan:
        return self._plan


def answered(plan: LaunchPlan, folder: Path) -> None:
    """Have a planner answer a template's request with this plan. Raises ArmFailure for one that is refused."""
    reader: Any = _Reader(plan)
    builder: Any = _Builder()
    Planner(reader, builder, builder, "kernels", folder, "").answer(request().to_data())


def outside(plan: LaunchPlan) -> list[Operand]:
    """Return the operands of a plan that reach beyond their memory. A parsed plan has none."""
    sizes = {("argument", index): tensor.form.nbytes for index, tensor in enumerate(plan.tensors)}
    sizes |= {("table", index): table.nbytes for index, table in enumerate(plan.tables)}
    wrong: list[Operand] = []
    buffers = 0

    def look(value: Any) -> None:
        nonlocal buffers
        if isinstance(value, Allocate):
            sizes["buffer", buffers] = value.form.nbytes
            buffers += 1
        elif isinstance(value, Operand):
            if value.source == "buffer" and (value.source, value.index) not in sizes:  # an operator made it
                sizes["buffer", value.index] = value.form.nbytes
                buffers += 1
            if value.offset < 0 or value.offset + value.form.nbytes > sizes.get((value.source, value.index), -1):
                wrong.append(value)
        elif isinstance(value, (tuple, list)):
            for item in value:
                look(item)
        elif hasattr(value, "__dataclass_fields__"):
            look(tuple(vars(value).values()))

    look((plan.steps, plan.returns))
    return wrong


class _Stub:
    """A kernel that does nothing, launched as C++ or as Triton."""

    def __call__(self, *_arguments: Any, **_named: Any) -> None:
        return None

    def __getitem__(self, _grid: Any) -> _Stub:
        return self


def tried(data: Any) -> str:
    """Parse, check and replay a plan's data, with kernels that do nothing.

    Returns how far it came: "refused", "large", "raised", "ran", or "right", which must never be.
    """
    try:
        plan = parse.plan(data, request().tensors)
    except Rejected:
        return "refused"
    assert outside(plan) == []
    assert parse.plan(plan.to_data(), request().tensors) == plan or "nan" in repr(plan)
    try:
        check(request(), plan, "kernels")
    except Rejected:
        return "refused"
    one = replay(plan, [_Stub()] * len(plan.kernels), "cpu", False, [])
    if sum(step.form.nbytes for step in plan.steps if isinstance(step, Allocate)) > MOST_BYTES:
        return "large"
    inputs = [torch.randn(SHAPE) for _ in range(2)]
    expected = torch.nn.functional.gelu(inputs[0]) + inputs[1]
    try:
        got = one.call(*inputs)
    except Exception:
        return "raised"  # what torch refuses: a fill of the wrong kind, a copy onto itself
    same = got.shape == expected.shape and got.dtype == expected.dtype and torch.allclose(got, expected, atol=1e-3)
    return "right" if same else "ran"
