"""Judge compiler passes: correctness at tolerance t, honest speed-ups, ES(t)."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pytest_passbench.core.errors import HARNESS_FAILED

if TYPE_CHECKING:
    from pytest_passbench.api import Evaluator, Outcome, Reward, evaluate
    from pytest_passbench.deploy import backend, inductor_pass

_LAZY = {
    **dict.fromkeys(("Evaluator", "Outcome", "Reward", "evaluate"), "pytest_passbench.api"),
    **dict.fromkeys(("backend", "inductor_pass"), "pytest_passbench.deploy"),
}

__all__ = ["HARNESS_FAILED", "Evaluator", "Outcome", "Reward", "backend", "evaluate", "inductor_pass"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start, with or without --passbench: nothing else may come along.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
