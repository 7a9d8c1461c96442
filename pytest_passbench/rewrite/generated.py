"""What TorchInductor has generated for a program: the launches of its kernels, and the cost of a call beside them."""

from __future__ import annotations

import timeit
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from pytest_passbench.core.record import GeneratedCode

KERNEL = "cpp_fused"
"""Begins the names of the kernels in a generated module."""
WITHOUT_WORK = frozenset({"assert_size_stride", "clear", "empty_strided_cpu", "reinterpret_tensor", "torch"})
"""Names in a generated wrapper that compute nothing. It has names of dtypes and kernels beside them."""
CALLS, REPEATS = 10, 10


def loaded() -> list[ModuleType]:
    """Return the modules that TorchInductor has generated and loaded in this process, the latest last."""
    from torch._inductor.codecache import PyCodeCache

    return list(PyCodeCache.modules)


def examine(
    call: Callable[..., Any], inputs: Sequence[torch.Tensor], modules: Sequence[ModuleType]
) -> GeneratedCode:
    """Return what is generated for a program, which ``modules`` hold. It is called on clones of ``inputs``.

    Without kernels an operator of torch's would get memory that nobody has written, and an index from there may lie
    anywhere. So the cost of a call is known only of a wrapper that calls nothing but kernels.
    """
    values, launches = [value.clone() for value in inputs], 0

    def counted(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def launch(*args: Any) -> Any:
            nonlocal launches
            launches += 1
            return kernel(*args)

        return launch

    with _replaced(modules, counted):
        call(*values)
    if not all(_computes_nothing(name) for module in modules for name in module.call.__code__.co_names):
        return GeneratedCode(launches)
    with _replaced(modules, lambda _kernel: _nothing):
        times = timeit.repeat(lambda: call(*values), number=CALLS, repeat=REPEATS)
    return GeneratedCode(launches, min(times) / CALLS * 1e6)


def _computes_nothing(name: str) -> bool:
    return name in WITHOUT_WORK or name.startswith(KERNEL) or isinstance(getattr(torch, name, None), torch.dtype)


def _nothing(*_args: Any) -> None:
    """Stand for a kernel in a call of which only the rest is timed."""


@contextmanager
def _replaced(
    modules: Sequence[ModuleType], substitute: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Put a substitute in each kernel's place within this context."""
    kernels = [
        (vars(module), name, kernel)
        for module in modules
        for name, kernel in vars(module).items()
        if name.startswith(KERNEL)
    ]
    for names, name, kernel in kernels:
        names[name] = substitute(kernel)
    try:
        yield
    finally:
        for names, name, kernel in kernels:
            names[name] = kernel
