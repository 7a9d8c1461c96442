"""Judge compiler passes: correctness at tolerance t, honest speed-ups, ES(t)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_passbench.core.exits import HARNESS_FAILED

if TYPE_CHECKING:
    from pytest_passbench.api import evaluate

__all__ = ["HARNESS_FAILED", "evaluate"]


def __getattr__(name: str) -> Any:
    # pytest imports this package at every start, with or without --passbench: nothing else may come along.
    if name == "evaluate":
        from pytest_passbench.api import evaluate

        return evaluate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
