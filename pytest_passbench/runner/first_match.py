"""A process that answers, for one graph after another, which pass matches first. No verdict depends on it.

It gets the candidate's passes as data, and asks for no kernel.
"""

from __future__ import annotations

import socket
from functools import cached_property
from typing import Any, NoReturn

import torch

from pytest_passbench.core.device import is_cuda
from pytest_passbench.core.errors import explain
from pytest_passbench.plans.launch import Request
from pytest_passbench.protocol import ProtocolError, receive, send
from pytest_passbench.rewrite.apply import apply_passes
from pytest_passbench.rewrite.passes import AnyPass, PassError, passes_of
from pytest_passbench.runner.kernels import AskedKernels
from pytest_passbench.runner.program import report_data
from pytest_passbench.runner.template import enclose, open_device
from pytest_passbench.suite.build import build_graph


class _Matched(Exception):
    """The end of a search: the pass ``name`` matches."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class _GraphMatcher(AskedKernels):
    """A matcher of passes, which ``data`` holds as the judge sends them. It asks for regions only."""

    def __init__(self, channel: socket.socket, device: str, data: list[dict[str, Any]]) -> None:
        super().__init__(channel, device)
        self._data = data

    @cached_property
    def passes(self) -> list[AnyPass]:
        """The passes that the judge sent. Raises PassError if one of them is at fault."""
        return passes_of(self._data)

    def kernel(self, request: Request) -> NoReturn:
        """Raise _Matched, because a kernel is only asked for after a pass has matched."""
        raise _Matched(request.name)

    def answer(self, order: dict[str, Any]) -> dict[str, Any]:
        """Return the first pass that matches the ordered graph, all passes' reports if none matches, or a failure."""
        try:
            with torch.no_grad():
                module = build_graph(order["source"], order["origin"], device=self._device)
                inputs = [
                    torch.zeros(shape, dtype=getattr(torch, dtype), device=self._device)
                    for shape, dtype in order["inputs"]
                ]
                rewritten = apply_passes(module, self.passes, inputs, self)
        except _Matched as matched:
            return {"status": "matched", "name": matched.name}
        except ProtocolError:
            raise
        except PassError as error:
            return {"status": "compile_fail", "phase": "load", "message": str(error)}
        except Exception as error:
            return {"status": "runtime_fail", "phase": "match", "message": explain(error, lambda _file: False)}
        return {"status": "missed", "passes": [report_data(report) for report in rewritten.reports]}


def main(message: dict[str, Any], fds: list[int]) -> None:
    """Answer one order after another. Raises ProtocolError when the judge hangs up."""
    channel = socket.socket(fileno=fds[0])
    enclose(fds[1], message["limits"])
    if is_cuda(message["device"]):
        open_device(message["device"])
    matcher = _GraphMatcher(channel, message["device"], message["passes"])
    while True:
        send(channel, matcher.answer(receive(channel)[0]))
