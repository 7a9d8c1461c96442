"""Example inputs for tools, made from recorded statistics. The judge draws its own, secret inputs."""

from __future__ import annotations

import math

import torch

from pytest_passbench.core.task import Subgraph, TensorSpec
from pytest_passbench.suite.limits import check_memory

MAX_BOUND = 2**63 - 1
"""The greatest upper bound that torch.randint takes. The numbers that it draws are below the bound."""


def example_inputs(subgraph: Subgraph, seed: int = 0) -> list[torch.Tensor]:
    """Return a tensor per input, of its shape and dtype, in the CPU's memory; the same for the same seed.

    The record is replayed as published. Literal data is used as it is. Integers are uniform in [min, max], and
    bool is a fair coin. Floats are normal(mean, std), clamped to [min, max] if these are given.
    """
    check_memory(subgraph)
    generator = torch.Generator().manual_seed(seed)
    return [_tensor(spec, generator) for spec in subgraph.inputs]


def example_tensor(spec: TensorSpec, seed: int) -> torch.Tensor:
    """Return one input as :func:`example_inputs` makes it: the same for the same seed."""
    return _tensor(spec, torch.Generator().manual_seed(seed))


def _tensor(spec: TensorSpec, generator: torch.Generator) -> torch.Tensor:
    dtype = getattr(torch, spec.dtype)
    if spec.data is not None:
        return torch.tensor(spec.data, dtype=dtype).reshape(spec.shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, spec.shape, generator=generator).to(torch.bool)
    if not dtype.is_floating_point and not dtype.is_complex:
        low, high = int(_finite(spec.min, 0.0)), int(_finite(spec.max, 1.0))
        low, high = min(low, MAX_BOUND - 1), min(max(low, high) + 1, MAX_BOUND)
        return torch.randint(low, high, spec.shape, generator=generator).to(dtype)
    # Values are drawn in single precision, so that all dtypes of a graph get the same ones up to rounding.
    single = torch.complex64 if dtype.is_complex else torch.float32
    wide = dtype if dtype in (torch.float64, torch.complex128) else single
    values = torch.randn(spec.shape, dtype=wide, generator=generator)
    values.mul_(_finite(spec.std, 1.0)).add_(spec.mean if spec.mean is not None else 0.0)
    if (spec.min is not None or spec.max is not None) and not dtype.is_complex:
        values.clamp_(spec.min, spec.max)
    return values.to(dtype)


def _finite(value: float | None, default: float) -> float:
    """Return the recorded number: ``default`` if it is missing, 0 if it is not finite."""
    if value is None:
        return default
    return value if math.isfinite(value) else 0.0
