"""Passes of TorchInductor's own form: they are read as data, and matched after its decompositions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_passbench import evaluate
from pytest_passbench.reader.importing import LoadedInductorPass
from pytest_passbench.reader.main import pass_as_data
from pytest_passbench.reader.registrations import Registration
from pytest_passbench.rewrite.passes import PassError

GATE = """
def forward(in_0):
    tmp_0 = in_0[..., :16]
    tmp_1 = in_0[..., 16:]
    tmp_2 = torch.nn.functional.silu(tmp_0)
    tmp_3 = tmp_2 * tmp_1
    return (tmp_3,)
"""
KERNELS = '''
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""
#include "passbench.h"
using pb::vec;
extern "C" void gate(const float* x, float* out, int64_t rows, int64_t d) {
  for (int64_t r = 0; r < rows; ++r, x += 2 * d, out += d)
    pb::map(d, out, [](vec a, vec b) { return pb::silu(a) * b; }, x, x + d);
}""")


def gate(x):
    d = x.shape[-1] // 2
    out = torch.empty((*x.shape[:-1], d), dtype=x.dtype)
    lib.gate(x, out, x.numel() // (2 * d), d)
    return out
'''
PASS = """
import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch._inductor.pattern_matcher import PatternMatcherPass, fwd_only, register_replacement

from .kernels import gate


class Gate(CustomGraphPass):
    def __init__(self):
        self.patterns = PatternMatcherPass(pass_name="gate")
        for dtype in (torch.bfloat16, torch.float32):
            self.register(dtype)

    def register(self, dtype):
        def search(x):
            d = x.shape[-1] // 2
            return torch.nn.functional.silu(x[..., :d]) * x[..., d:]

        def replace(x):
            return gate(x)

        register_replacement(search, replace, [torch.empty(5, 8, dtype=dtype)], fwd_only, self.patterns)

    def __call__(self, graph):
        raise RuntimeError("nobody calls it")

    def uuid(self):
        return "gate"


Gate()
"""


def judged(bench: Any, text: str, **settings: Any) -> Any:
    bench.task("gate", GATE, shapes=((4, 32),), ops=("silu", "mul"))
    bench.candidate({"gate": text}, kernels=KERNELS)
    (record,) = bench.judge(**{"pipeline": "inductor", **settings}).values()
    return record


@pytest.mark.slow
def test_a_registered_replacement_is_matched_behind_decompositions(bench: Any) -> None:
    record = judged(bench, PASS)
    assert record.arm.status == "ran", record.arm.message
    assert record.correct
    (report,) = [item for item in record.passes if item.matches]
    assert (report.name, report.operators) == ("gate", ["slice", "slice", "neg", "exp", "add", "div", "mul"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("fwd_only, self", "print, self", "register_replacement takes fwd_only as its trace_fn here"),
        ("self.patterns)\n\n", "self.patterns, extra_check=print)\n\n", "takes no extra_check here: a pass is read"),
        ("\n\nGate()\n", "\n", "importing gate.py never calls register_replacement"),
        ("def replace", "torch.ops._C.scaled_fp8_quant.default\n        def replace", "scaled_fp8_quant"),
    ],
)
def test_what_no_data_can_state_is_refused_by_name(bench: Any, old: str, new: str, message: str) -> None:
    record = judged(bench, PASS.replace(old, new))
    assert record.arm.status == "compile_fail"
    assert message in record.arm.message


@pytest.mark.slow
def test_a_constant_tensor_in_a_search_function_is_a_mistake_of_the_pass(tmp_path: Path) -> None:
    def search(x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, torch.tensor(2.0))

    item = LoadedInductorPass("add", (Registration(search, search, (torch.empty(2),)),), tmp_path / "add.py")
    with pytest.raises(PassError, match="pass add: the search function: "):
        pass_as_data(item)


@pytest.mark.parametrize("trusted", [False, True])
def test_another_pipeline_is_refused_with_the_remedy(bench: Any, trusted: bool) -> None:
    task = bench.task("gate", GATE, shapes=((4, 32),), ops=("silu", "mul"))
    candidate = bench.candidate({"gate": PASS}, kernels=KERNELS)
    (record,) = evaluate(candidate, task, pipeline="direct", trusted=trusted).records
    assert record.arm.status == "compile_fail"
    assert "--passbench-pipeline=inductor is needed" in record.arm.message
