"""The choice of a tuned launch's configuration. The harness measures them; the candidate does not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_passbench.plans.launch import LaunchPlan, Tuned
from pytest_passbench.runner.replay import Code, replay

REPEATS = 10  # timed calls of a configuration


def tune(plan: LaunchPlan, kernels: Sequence[Any], device: str, code: Code) -> list[int]:
    """Return the index of the fastest configuration for each tuned launch, measured on tensors of zeros.

    The launches are tuned one after another, each with those before it as chosen. A configuration that cannot be
    compiled or launched is left out. Raises RuntimeError, with the last configuration's message, if none is left.
    """
    tensors = [
        torch.empty_strided(form.shape, form.strides, dtype=getattr(torch, form.dtype), device=device).zero_()
        for form in (tensor.form for tensor in plan.tensors)
    ]
    choices: list[int] = []
    for step in [step for step in plan.steps if isinstance(step, Tuned)]:
        choices.append(_fastest(plan, kernels, device, code, choices, len(step.choices), tensors))
    return choices


def _fastest(
    plan: LaunchPlan,
    kernels: Sequence[Any],
    device: str,
    code: Code,
    choices: list[int],
    count: int,
    tensors: list[torch.Tensor],
) -> int:
    best, fastest, failed = -1, math.inf, RuntimeError("no configuration")
    for number in range(count):
        try:
            seconds = _seconds(replay(plan, kernels, device, True, [*choices, number], code=code).call, tensors)
        except Exception as error:
            failed = RuntimeError(f"no configuration of the kernel can be launched; the last one says: {error}")
            continue
        if seconds < fastest:
            best, fastest = number, seconds
    if best < 0:
        raise failed
    return best


def _seconds(call: Callable[..., Any], tensors: list[torch.Tensor]) -> float:
    """Return the mean seconds of a call on the device, after a first call that is not timed."""
    call(*tensors)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPEATS):
        call(*tensors)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / REPEATS / 1e3
