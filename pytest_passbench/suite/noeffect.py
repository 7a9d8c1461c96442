"""Calls in captured graphs that do nothing to values: bookkeeping of torch's own, which a graph here does without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NONE = frozenset(
    {
        "torch.autograd.function.FunctionCtx",  # the context of a backward pass, which no graph here has
        "torch._C._log_api_usage_once",
        "torch._C._set_grad_enabled",  # no graph here records gradients
        "torch.set_grad_enabled",
        "torch._functorch.predispatch.lazy_load_decompositions",
        "torch._functorch.vmap.lazy_load_decompositions",
        "torch.amp.autocast_mode._exit_autocast",
    }
)
_ENTER = "torch.amp.autocast_mode._enter_autocast"


def has_no_effect(dotted: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True for a call that changes no value. Entering autocast is one if it is not enabled."""
    if dotted != _ENTER:
        return dotted in _NONE
    return kwargs.get("enabled", args[2] if len(args) > 2 else True) is False
