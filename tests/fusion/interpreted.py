"""Runs the generator's Triton kernels in Triton's interpreter, which has to be on when the process starts.

    python tests/fusion/interpreted.py NAME ...

Prints a line for each result that does not agree with eager's at t = -5.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from pytest_passbench.core.ladder import T_STRICT, tolerances
from pytest_passbench.fusion.schedule import schedule
from pytest_passbench.fusion.trace import trace
from pytest_passbench.fusion.triton import HEAD, WIDEST, triton_kernels
from pytest_passbench.fusion.triton_text import helpers

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "elementwise, with a broadcast": lambda x, y: (torch.where(x > y, (x + y).sigmoid(), -x) / 3, x > 0.5, x**3),
    "functions": lambda x, y: (x.tanh(), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), x.erf(), x.expm1()),
    "more functions": lambda x, y: ((x.abs() + 1).log(), x.abs().log1p(), F.softplus(x), F.leaky_relu(x), x.sin()),
    "what is nearly nothing": lambda x, y: F.softplus(x.float() - 20) * 1e8,
    "NaN and bools": lambda x, y: (torch.where(x > 0, x, math.nan), torch.maximum(x > 0, y > 0)),
    "limits": lambda x, y: (x.clamp(-0.5, 0.5), torch.maximum(x, y), F.relu(x), F.hardswish(x), F.hardtanh(x)),
    "moved": lambda x, y: ((x + 1).transpose(0, 1).contiguous(), (x * y).flip(0), torch.cat([x, y.expand(x.shape)])),
    "sums": lambda x, y: (x.sum(-1), x.mean(0, keepdim=True), x.float().sum(), x.amax(-1), (x * y).amin(0)),
    "extremes of doubles, and of rows with NaN": lambda x, y: (
        (x.double() * 1e20).amax(-1),
        x.double().amin(0),
        torch.where(x > 1, math.nan, x).amax(-1),
        torch.where(x > 1, math.nan, x).amin(-1),
    ),
    "places of the greatest": lambda x, y: (x.argmax(-1), (x + y).argmin(0), (x > 1).int().argmax(-1)),
    "norm of what lies apart": lambda x, y: F.layer_norm(x.transpose(0, 1), (x.shape[0],)).transpose(0, 1),
    "softmax": lambda x, y: (x + y).softmax(-1),
    "softmax of columns": lambda x, y: (x * 2).softmax(0),
    "norms": lambda x, y: (F.layer_norm(x, (x.shape[-1],)), F.rms_norm(x + y, (x.shape[-1],)), x.float().var(-1)),
    "batch norm": lambda x, y: F.batch_norm(x, y[0], y[0].abs() + 1, y[0], y[0]),
    "group norm": lambda x, y: F.group_norm(x[:, :6].reshape(5, 6, 1), 2).relu(),
    "sums so far": lambda x, y: x.float().cumsum(-1),
    "whole numbers": lambda x, y: (chosen(x), (x > y).sum(-1), torch.arange(x.shape[-1]) + x, x.tril()),
    "windows": lambda x, y: (F.max_pool2d(x[None], 2), F.avg_pool2d(y.expand(x.shape)[None], (1, 3), 1)),
    "scatters": lambda x, y: (
        x[:, :4].scatter(1, places(x), 0.5),
        x[:, :4].scatter(1, places(x), -x),
        (x[:, :4] > 0).scatter(1, places(x), False),
        x[:3].histc(7, -1, 2),
        F.fold(x[None, :4, :6], (4, 6), 2, stride=2),
    ),
    "a long row": lambda x, y: (x.repeat(1, 700).float() * 0.5).softmax(-1),
}


def chosen(x: torch.Tensor) -> torch.Tensor:
    """Return rows that an index of integers selects, times two."""
    return x[torch.arange(x.shape[0]).flip(0) % 3] * 2


def places(x: torch.Tensor) -> torch.Tensor:
    """Return integers from 0 to 3, two in each row, with repeated ones."""
    return (x[:, :2].float().abs() * 3).long() % 4


def run(function: Callable[..., Any], inputs: Any, folder: Path) -> Any:
    """Return what Triton kernels compute for a function."""
    recorded = trace(function, inputs)
    kernels = triton_kernels("k", schedule(recorded))
    path = folder / "kernels.py"
    body = "\n\n".join(kernel.text for kernel in kernels)
    path.write_text("\n\n".join([HEAD, *helpers(body), body]))
    spec = importlib.util.spec_from_file_location("kernels", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    memory = {value.buffer: tensor for value, tensor in zip(recorded.inputs, inputs, strict=True)}
    for kernel in kernels:
        for buffer in kernel.buffers:
            if buffer not in memory:
                memory[buffer] = torch.empty_strided(buffer.sizes, buffer.strides, dtype=buffer.dtype)
        operands = [*(memory[buffer] for buffer in kernel.buffers), *kernel.sizes]
        block = 64 if kernel.rows is None else 1 << (min(kernel.columns, WIDEST) - 1).bit_length()
        height = {} if kernel.rows is None else {"HEIGHT": 4}
        programs = -(-kernel.columns // block) if kernel.rows is None else -(-kernel.rows // 4)
        getattr(module, kernel.name)[(programs,)](*operands, BLOCK=block, **height)
    results = [memory[v.buffer].as_strided(v.sizes, v.strides, v.offset) for v in recorded.results]
    return results[0] if recorded.single else tuple(results)


def wrong(name: str, dtype: torch.dtype, folder: Path) -> list[str]:
    """Return a line for each result of a function that does not agree with eager's."""
    draws = torch.Generator().manual_seed(3)
    inputs = [torch.randn(sizes, generator=draws).to(dtype) for sizes in ((5, 33), (1, 33))]
    eager, ours = FUNCTIONS[name](*inputs), run(FUNCTIONS[name], inputs, folder)
    if isinstance(eager, torch.Tensor):
        eager, ours = (eager,), (ours,)
    sentences = []
    for place, (expected, actual) in enumerate(zip(eager, ours, strict=True)):
        rtol, atol = tolerances(str(expected.dtype).removeprefix("torch."), T_STRICT)
        same_form = (expected.shape, expected.dtype) == (actual.shape, actual.dtype)
        if not same_form or not torch.allclose(actual, expected, rtol, atol, equal_nan=True):
            sentences.append(f"{name}: result {place} in {dtype}: {actual} for {expected}")
    return sentences


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        for each in sys.argv[1:] or FUNCTIONS:
            for kind in DTYPES:
                print("\n".join(wrong(each, kind, Path(place))))
    print("all were run")
