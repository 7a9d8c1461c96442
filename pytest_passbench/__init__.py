"""Judge compiler passes: correctness at tolerance t, honest speed-ups, ES(t)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_passbench.core.exits import HARNESS_FAILED

if TYPE_CHECKING:
    from pytest_passbench.api import Evaluator, Outcome, Reward, evaluate

_LAZY = ("Evaluator", "Outcome", "Reward", "evaluate")

__all__ = ["HARNESS_FAILED", "Evaluator", "Outcome", "Reward", "evaluate"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start, with or without --passbench: nothing else may come along.
    if name in _LAZY:
        from pytest_passbench import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
