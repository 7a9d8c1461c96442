"""Kernels for a template. The judge is asked for each match, and answers with a launch plan and compiled libraries.

This module, not the candidate, also measures the configurations of a tuned launch and chooses the fastest.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import LaunchPlan, Request, Tuned
from pytest_passbench.protocol import receive, send
from pytest_passbench.rewrite.passes import LeftToEager, PassError
from pytest_passbench.runner.cuda.libcuda import Driver
from pytest_passbench.runner.cuda.machine_code import PlanBinaries
from pytest_passbench.runner.engine import loaded
from pytest_passbench.runner.replay import Replayed, cpp_function, replay

REPEATS = 10  # timed calls of a configuration


class AskedKernels:
    """A source of kernels that asks the judge. ``triton`` is True if a plan launches Triton kernels.

    ``engine`` executes the steps of the plans. It is None if Python executes them.
    """

    def __init__(self, channel: socket.socket, device: str) -> None:
        self._channel, self._device = channel, device
        self._plans: dict[Request, Replayed] = {}
        self._left: dict[Request, str] = {}
        self._libraries: dict[bytes, ctypes.CDLL] = {}  # by the digest of the file
        self.engine = loaded() if device == "cpu" else None
        self.triton = False

    @property
    def replayed(self) -> list[Replayed]:
        """The plans of all matches so far."""
        return list(self._plans.values())

    def kernel(self, request: Request) -> Any:
        """Return the callable of the plan for a match. Raises ProtocolError if the judge has no plan and hangs up.

        Raises LeftToEager if a region pass wants no kernel.
        """
        key = replace(request, arguments=(repr(request.arguments),))
        if key in self._left:
            raise LeftToEager(self._left[key])
        if key not in self._plans:
            try:
                self._plans[key] = self._request_plan(request)
            except LeftToEager as reason:
                self._left[key] = str(reason)
                raise
        return self._plans[key].call

    def regions(self, name: str, graph: str) -> list[list[str]]:
        """Return the regions of a graph that a pass supports.

        Raises PassError if the pass fails, ProtocolError if the judge hangs up.
        """
        send(self._channel, {"status": "regions", "name": name, "graph": graph})
        regions: list[list[str]] | None = receive(self._channel)[0]["regions"]
        if regions is None:
            raise PassError(name, "it cannot tell its regions")
        return regions

    def _request_plan(self, request: Request) -> Replayed:
        message: dict[str, Any] = {"status": "wanted", "request": request.to_data()}
        if torch.device(self._device).type == "cuda":
            major, minor = torch.cuda.get_device_capability(self._device)
            message["capability"] = 10 * major + minor
        send(self._channel, message)
        answer, descriptors = receive(self._channel)
        if "left" in answer:
            raise LeftToEager(answer["left"])
        try:
            plan = parse.plan(answer["plan"], request.tensors)
            kernels = [self._kernel(entry, descriptors) for entry in answer["kernels"]]
            code = None
            if "machine" in answer:
                data = Path(f"/proc/self/fd/{descriptors[-1]}").read_bytes()
                code = PlanBinaries(data, answer["machine"], Driver.on(self._device), self._device)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        self.triton |= plan.uses_triton
        choices = [0] * sum(isinstance(step, Tuned) for step in plan.steps)  # Triton's interpreter takes the first
        if choices and code is not None:
            choices = tune(plan, kernels, self._device, code)
        written = frozenset(answer["written"])
        replayed = replay(plan, kernels, self._device, request.sequence, choices, written, code, self.engine)
        replayed.rest()
        return replayed

    def _kernel(self, description: dict[str, Any], descriptors: Sequence[int]) -> Any:
        if "machine" in description:
            return None  # each launch has machine code of its own
        if "triton" in description:
            from pytest_passbench.runner.triton_kernels import make_kernel

            return make_kernel(description["triton"])
        library = self._library(descriptors[description["library"]])
        return cpp_function(library, description["function"], description["parameters"])

    def _library(self, descriptor: int) -> ctypes.CDLL:
        """Return the library in a file, and load it if it is not loaded yet.

        The loader takes two files of one name for the same library, and numbers of descriptors are used again. So
        each name has one slash more than the last.
        """
        key = hashlib.sha256(Path(f"/proc/self/fd/{descriptor}").read_bytes()).digest()
        if key not in self._libraries:
            slashes = "/" * (1 + len(self._libraries))
            self._libraries[key] = ctypes.CDLL(f"/proc/self/fd{slashes}{descriptor}")
        return self._libraries[key]


def tune(plan: LaunchPlan, kernels: Sequence[Any], device: str, code: PlanBinaries) -> list[int]:
    """Return the index of the fastest configuration for each tuned launch, measured on tensors of zeros.

    The launches are tuned in order, each with the choices for the launches before it. A configuration that cannot be
    compiled or launched is left out. Raises RuntimeError, with the last configuration's message, if none is left.
    """
    tensors = [
        torch.empty_strided(form.shape, form.strides, dtype=getattr(torch, form.dtype), device=device).zero_()
        for form in (tensor.form for tensor in plan.tensors)
    ]
    choices: list[int] = []
    for step in [step for step in plan.steps if isinstance(step, Tuned)]:
        seconds, failure = dict[int, float](), RuntimeError("no configuration")
        for number in range(len(step.choices)):
            try:
                call = replay(plan, kernels, device, True, [*choices, number], code=code).call
                seconds[number] = _seconds(call, tensors)
            except Exception as error:
                failure = RuntimeError(f"no configuration of the kernel can be launched; the last one says: {error}")
        if not seconds:
            raise failure
        choices.append(min(seconds, key=seconds.__getitem__))
    return choices


def _seconds(call: Callable[..., Any], tensors: list[torch.Tensor]) -> float:
    """Return the mean seconds of a call on the device, after a first call that is not timed."""
    call(*tensors)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(REPEATS):
        call(*tensors)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / REPEATS / 1e3
