"""Stand-ins for streams, graphs and synchronisation of ``torch.cuda``.

A launch plan has no steps for streams and graphs. A module may make them while it is imported. Using one raises
Rejected. Synchronising and choosing a device do nothing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pytest_passbench.core.rejected import plan_refused


class _Unused:
    """An object that can be made but not used: reading an attribute raises Rejected."""

    rule, what = "streams", "uses streams"

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise plan_refused(self.rule, self.what)


class _GraphStandIn(_Unused):
    rule, what = "graphs", "uses CUDA graphs"


def _refusing(rule: str, what: str) -> Callable[..., NoReturn]:
    def refuse(*_arguments: Any, **_options: Any) -> NoReturn:
        raise plan_refused(rule, what)

    return refuse


def _nothing(*_arguments: Any, **_options: Any) -> None:
    return None


class _Here(contextlib.nullcontext[None]):
    """The stand-in for ``torch.cuda.device(...)``. It does nothing, because a request has one device."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        super().__init__()


def install() -> None:
    """Put the stand-ins into ``torch.cuda``."""
    streams, graphs = _refusing("streams", _Unused.what), _refusing("graphs", _GraphStandIn.what)
    replaced: dict[str, Any] = {
        "Stream": _Unused,
        "ExternalStream": _Unused,
        "Event": _Unused,
        "CUDAGraph": _GraphStandIn,
        **dict.fromkeys(("stream", "current_stream", "default_stream", "set_stream"), streams),
        **dict.fromkeys(("graph", "make_graphed_callables", "graph_pool_handle"), graphs),
        **dict.fromkeys(("synchronize", "set_device"), _nothing),
        **dict.fromkeys(("device", "device_of"), _Here),
    }
    for name, value in replaced.items():
        setattr(torch.cuda, name, value)
