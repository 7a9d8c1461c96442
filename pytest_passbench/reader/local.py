"""Passes that are loaded and run in this very process, for debuggers and tests. No score comes from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pytest_passbench.core.plurals import counted
from pytest_passbench.plans.launch import Request
from pytest_passbench.plans.regions import check_regions, graph_module
from pytest_passbench.plans.values import decode
from pytest_passbench.reader.importing import AnyLoaded
from pytest_passbench.reader.main import pass_as_data
from pytest_passbench.reader.regions import regions
from pytest_passbench.rewrite.passes import AnyPass, Kernel, PassError, passes_of
from pytest_passbench.rewrite.splice import identifier


def as_passes(loaded: Iterable[AnyLoaded]) -> list[AnyPass]:
    """Return loaded passes as a reader would send them. Raises PassError for a pattern that cannot be traced."""
    return passes_of(map(pass_as_data, loaded))


class LocalKernels:
    """Kernels that are the wrappers themselves. They are called in this process."""

    def __init__(self, loaded: Iterable[AnyLoaded]) -> None:
        self._passes = {item.name: item for item in loaded}

    def regions(self, name: str, graph: str) -> list[list[str]]:
        """Return the regions of a graph that a pass supports. Raises PassError if it fails."""
        try:
            names = regions(self._passes[name], graph)
            check_regions(graph_module(graph).graph, names)
        except Exception as error:
            raise PassError(name, f"supported raised {type(error).__name__}: {error}") from error
        return names

    def kernel(self, request: Request) -> Kernel:
        """Return a callable that takes the request's tensors and calls the wrapper.

        It raises RuntimeError if the wrapper returns another number of values than the pattern.
        """
        wrapper, region = self._passes[request.name].wrapper, request.region

        def call(*tensors: torch.Tensor) -> Any:
            arguments = [decode(value, lambda _tag, index: tensors[index]) for value in request.arguments]
            result = wrapper(*([graph_module(region)] if region else []), *arguments)
            values = request.values(result)
            if values is None:
                count = counted(len(result), "value") if isinstance(result, (tuple, list)) else type(result).__name__
                raise RuntimeError(
                    f"pass {request.name}: the kernel wrapper returned {count}, the pattern returns {request.outputs}"
                )
            return values if request.sequence else result

        call.__name__ = call.__qualname__ = identifier(request.name)
        return call
