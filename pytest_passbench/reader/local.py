"""Passes that are loaded and run in this very process, for debuggers and tests. No score comes from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pytest_passbench.core.plurals import counted
from pytest_passbench.plans.launch import Request
from pytest_passbench.plans.values import decode
from pytest_passbench.reader.importing import LoadedPass
from pytest_passbench.reader.main import pass_as_data
from pytest_passbench.rewrite.apply import identifier
from pytest_passbench.rewrite.passes import Kernel, Pass


def as_passes(loaded: Iterable[LoadedPass]) -> list[Pass]:
    """Return loaded passes as a reader would send them. Raises PassError for a pattern that cannot be traced."""
    return [Pass.from_data(pass_as_data(item)) for item in loaded]


class LocalKernels:
    """Kernels that are the wrappers themselves. They are called in this process."""

    def __init__(self, loaded: Iterable[LoadedPass]) -> None:
        self._wrappers = {item.name: item.wrapper for item in loaded}

    def kernel(self, request: Request) -> Kernel:
        """Return a callable that takes the request's tensors and calls the wrapper.

        It raises RuntimeError if the wrapper returns another number of values than the pattern.
        """
        wrapper = self._wrappers[request.name]

        def call(*tensors: torch.Tensor) -> Any:
            arguments = [decode(value, lambda _tag, index: tensors[index]) for value in request.arguments]
            result = wrapper(*arguments)
            if not request.sequence:
                return result
            if isinstance(result, torch.Tensor) and request.outputs == 1:
                return (result,)
            if not isinstance(result, (tuple, list)) or len(result) != request.outputs:
                count = counted(len(result), "value") if isinstance(result, (tuple, list)) else type(result).__name__
                raise RuntimeError(
                    f"pass {request.name}: the kernel wrapper returned {count}, the pattern returns {request.outputs}"
                )
            return result

        call.__name__ = call.__qualname__ = identifier(request.name)
        return call
