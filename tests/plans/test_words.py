"""Launch plans in words."""

from __future__ import annotations

import json

import torch

from pytest_passbench.plans.launch import (
    Allocate,
    Argument,
    Copy,
    CppKernel,
    Fill,
    Launch,
    LaunchPlan,
    Operand,
    Operator,
    TritonKernel,
    TritonLaunch,
    TritonType,
    Tuned,
    contiguous,
)
from pytest_passbench.plans.words import MAX_STEP_CHARACTERS, MAX_STEPS_SHOWN, steps

FORM = contiguous("float32", (2, 3))
ARGUMENT, BUFFER, TABLE = (
    Operand("argument", 0, 0, FORM),
    Operand("buffer", 1, 64, FORM),
    Operand("table", 0, 0, FORM),
)
KERNELS = (CppKernel("source", (), False, "scale"), TritonKernel(json.dumps({"name": "fused"})))


def told(*made: object, kernels=KERNELS) -> list[str]:
    plan = LaunchPlan((Argument(FORM),), (), kernels, made, (ARGUMENT,))
    return steps(json.loads(json.dumps(plan.to_data())))


def test_every_step_has_words():
    launch = TritonLaunch(
        1, (4, 1, 1), (("x", ARGUMENT), ("n", 6), ("kind", TritonType("float32"))), (("num_warps", 4),)
    )
    assert told(
        Allocate(FORM),
        Allocate(FORM, 0.0),
        Fill(BUFFER, float("inf")),
        Copy(BUFFER, TABLE),
        Launch(0, (ARGUMENT, BUFFER, None, 0.5, torch.float16, (1, 2))),
        launch,
        Tuned(((launch,), (launch,))),
        Operator("aten.mul.Tensor", (ARGUMENT, 2), (("out", BUFFER),), (BUFFER,)),
    ) == [
        "allocate b0: float32 [2, 3]",
        "allocate b1: float32 [2, 3], filled with 0.0",
        "fill b1+64 with inf",
        "copy t0 to b1+64",
        "launch scale(a0, b1+64, None, 0.5, float16, [1, 2])",
        "launch fused(x=a0, n=6, kind=float32, num_warps=4) on a grid of 4 x 1 x 1",
        "launch fused(x=a0, n=6, kind=float32, num_warps=4) on a grid of 4 x 1 x 1, the first of 2 configurations",
        "call aten.mul.Tensor(a0, 2, out=b1+64)",
    ]


def test_buffers_that_operators_make_are_counted():
    twice = Operator("aten.aminmax", (ARGUMENT,), (), (Operand("buffer", 1, 0, FORM), Operand("buffer", 2, 0, FORM)))
    assert told(
        Operator("aten.neg", (ARGUMENT,), (), (Operand("buffer", 0, 0, FORM),)), twice, twice, Allocate(FORM)
    ) == [
        "b0 = call aten.neg(a0)",
        "b1, b2 = call aten.aminmax(a0)",
        "call aten.aminmax(a0)",
        "allocate b3: float32 [2, 3]",
    ]


def test_a_long_plan_is_cut_and_a_name_cannot_steer_a_terminal():
    evil = (CppKernel("source", (), False, "scale\x1b[2J\u202e" + "x" * 500),)
    said = told(*[Launch(0, (ARGUMENT,))] * 60, kernels=evil)
    assert said[-1] == "and 20 more steps"
    assert len(said) == MAX_STEPS_SHOWN + 1
    assert all(text.isprintable() and len(text) <= MAX_STEP_CHARACTERS for text in said)
