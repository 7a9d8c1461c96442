"""A pass as data: what it looks for, what it hands to its kernel wrapper, and how to get at a kernel for a match."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from pytest_passbench.plans.graphs import Traced, from_data
from pytest_passbench.plans.launch import Request
from pytest_passbench.plans.values import ValueRefused
from pytest_passbench.rewrite.errors import PassError
from pytest_passbench.rewrite.inplace import thread_inplace

Kernel = Callable[..., Any]


class Kernels(Protocol):
    """Kernels for matches, by whatever means."""

    def kernel(self, request: Request) -> Kernel:
        """Return a callable that takes the wrapper's arguments and returns its value.

        It returns a sequence of ``request.outputs`` values if the pattern returns a tuple. Raises PassError.
        """


@dataclass(frozen=True, eq=False)
class Pass:
    """One pass, equal to itself alone.

    ``pattern`` and ``replacement`` are traced functions; in place of one that could not be traced stands why. The
    latter counts only once a place matches.
    """

    name: str
    pattern: Traced
    replacement: Traced | str

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Pass:
        """Return the pass that a reader wrote down. Raises PassError if it could not trace the pattern."""
        name = str(data["name"])
        try:
            pattern = from_data(data["pattern"]) if isinstance(data["pattern"], dict) else str(data["pattern"])
            told = data["replacement"]
            replacement = from_data(told) if isinstance(told, dict) else str(told)
        except ValueRefused as error:
            raise PassError(name, f"the pass as data is malformed: {error}") from error
        if isinstance(pattern, str):
            raise PassError(name, pattern)
        for traced in (pattern, replacement):
            if isinstance(traced, Traced):
                thread_inplace(traced.graph)
        return cls(name, pattern, replacement)

    @cached_property
    def arguments(self) -> Traced:
        """The traced ``replacement_args``. Raises PassError if there is none."""
        if isinstance(self.replacement, str):
            raise PassError(self.name, self.replacement)
        if not isinstance(self.replacement.result, (tuple, list)):
            raise PassError(self.name, "replacement_args must return a tuple of the kernel wrapper's arguments")
        return self.replacement
