"""Patterns that a module registers with TorchInductor: ``register_replacement`` notes them, and registers nothing.

The search function is traced as TorchInductor does it, through its decompositions, but with sizes as symbols. The
replacement is a kernel wrapper like any other. The body of a ``CustomGraphPass`` is never called.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_passbench.plans.graphs import Traced
from pytest_passbench.rewrite.decomposed import traced_operators
from pytest_passbench.rewrite.passes import PassError

MATCHER = "torch._inductor.pattern_matcher"


@dataclass(frozen=True)
class Registration:
    """A call of ``register_replacement``: the search function, its replacement, and example inputs of the search."""

    search: Callable[..., Any]
    replace: Callable[..., Any]
    inputs: tuple[Any, ...]


_pending: list[Registration] = []


def install() -> None:
    """Import TorchInductor's matcher, and have it note registrations. It takes seconds and memory."""
    import torch._inductor.pattern_matcher as matcher

    matcher.register_replacement = _register_replacement


def take() -> tuple[Registration, ...]:
    """Return what was registered since the last call."""
    registrations = tuple(_pending)
    _pending.clear()
    return registrations


def _register_replacement(
    search_fn: Callable[..., Any],
    replace_fn: Callable[..., Any],
    example_inputs: Sequence[Any],
    trace_fn: Callable[..., Any],
    pass_dicts: Any,  # noqa: ARG001
    **options: Any,
) -> bool:
    """Stand in for TorchInductor's function of this name. Raises ValueError for what no data can state."""
    if trace_fn is not sys.modules[MATCHER].fwd_only:
        raise ValueError("register_replacement takes fwd_only as its trace_fn here")
    options.pop("skip_duplicates", None)
    if options:
        raise ValueError(f"register_replacement takes no {', '.join(sorted(options))} here: a pass is read as data")
    _pending.append(Registration(search_fn, replace_fn, tuple(example_inputs)))
    return True


def searched(name: str, registration: Registration) -> Traced:
    """Return the operators that a registration looks for. Raises PassError if they cannot be traced."""
    arguments = list(inspect.signature(registration.search).parameters)
    if len(arguments) != len(registration.inputs):
        mismatch = f"register_replacement got {len(registration.inputs)} inputs"
        raise PassError(name, f"the search function takes {', '.join(arguments)}; {mismatch}")
    try:
        with torch.no_grad():
            module = traced_operators(registration.search, registration.inputs, symbolic=True)
    except Exception as error:
        raise PassError(name, f"the search function cannot be traced: {type(error).__name__}: {error}") from error
    traced = Traced(module.graph)
    for node, argument in zip(traced.placeholders, arguments, strict=True):
        node.target = argument
    return traced
