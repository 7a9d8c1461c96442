"""A template builds an arm's program for a subgraph and warms it up. Measured runners are forked from it.

It works with one thread, because a fork after multi-threaded work hangs. It ends with its subgraph, and with it
everything that a pass left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import random
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from pytest_passbench.core.device import gpu_index, is_cuda
from pytest_passbench.core.errors import explain
from pytest_passbench.protocol import Layout, Order, ProtocolError, receive, send, to_the_end
from pytest_passbench.rewrite.passes import PassError
from pytest_passbench.rewrite.pipelines import BuiltGraph
from pytest_passbench.runner import memory
from pytest_passbench.runner.engine import loaded
from pytest_passbench.runner.kernels import AskedKernels
from pytest_passbench.runner.native_code import NotNative
from pytest_passbench.runner.native_graph import NativeBlock, native_graph
from pytest_passbench.runner.pages import MappedPages
from pytest_passbench.runner.program import facts, prepare
from pytest_passbench.runner.replay import Replayed, poison
from pytest_passbench.runner.serve import EngineBlock, PythonBlock, serve
from pytest_passbench.runner.trace import TracePage, call_traced, traced
from pytest_passbench.runner.triton_kernels import KERNEL_MODULE
from pytest_passbench.walls import harden, jit_code, seccomp
from pytest_passbench.walls.confine import keep_own_names, reap

#: Skips what Python does after ``os.fork``: new locks, new random numbers, and functions that a pass registered. A
#: runner has one thread and needs none of it, and it pays for each page that it touches.
_fork = ctypes.PyDLL(None).fork


@dataclass
class Ready:
    """A program, with all that a fork needs to serve it."""

    call: Callable[..., Any]
    pages: MappedPages
    report: dict[str, Any]
    device: str
    replayed: list[Replayed] = field(default_factory=list)
    native: NativeBlock | None = None  # the same calls, made by the engine
    sizes: list[int] = field(default_factory=list)  # bytes of each output
    pieces: tuple[int, int] = (0, 0)  # free memory for small allocations: address and bytes
    null: int = field(default_factory=lambda: os.open(os.devnull, os.O_WRONLY))
    filter: seccomp.MeasuredFilters | None = None
    lasting: bool = False  # the process serves further subgraphs
    code: list[jit_code.CodePages] = field(default_factory=list)


class Failure(Exception):
    """A program that cannot be built. ``status`` and ``phase`` go into the record."""

    def __init__(self, status: str, phase: str, message: str) -> None:
        self.status, self.phase, self.message = status, phase, message
        super().__init__(message)


def main(message: dict[str, Any], fds: list[int]) -> None:
    """Build the program that ``message`` orders, and serve requests for forks.

    On a device, a process without code of a candidate goes on with the next order after that. Making a context takes
    longer than most measurements. Raises ProtocolError when the judge hangs up.
    """
    channel, pages_fd = socket.socket(fileno=fds[0]), fds[1]
    enclose(fds[2], message["limits"])
    ready = _build(channel, message, pages_fd)
    first = True
    while ready is not None:
        gc.collect()
        ready.lasting = message["kept"]
        ready.code = jit_code.made_here()
        ready.filter = None if ready.lasting else seccomp.measured(driver=is_cuda(ready.device))
        gc.freeze()  # so that no collection in a fork touches and thereby copies older objects
        send(channel, {"status": "ready", **ready.report})
        sys.stdout.flush()  # or each fork would write what is in the buffer
        if first:
            ready.pieces = memory.release()  # last, since even a report's length moves the heap's end
        _fork_on_request(channel, ready)
        os.close(ready.null)
        ready, first = None, False
        _forget()
        message, fds = receive(channel)
        ready = _build(channel, message, fds[0])


def _forget() -> None:
    """Give up what was built and measured, before the next order."""
    gc.enable()
    gc.unfreeze()
    gc.collect()
    torch._dynamo.reset()
    torch.cuda.empty_cache()


def enclose(log_fd: int, limits: dict[str, Any]) -> None:
    """Print to the log from now on, and give up all rights that neither building nor computing needs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    harden.die_with_parent()
    harden.limit_resources(limits["memory"], limits["file_bytes"], limits["processes"])
    if limits["named_below"] is not None:
        keep_own_names(limits["named_below"])
    seccomp.untrusted(network=limits["network"], driver=limits["driver"])


def _build(channel: socket.socket, message: dict[str, Any], pages_fd: int) -> Ready | None:
    """Return the ordered program, or report the failure to the judge and return None."""
    try:
        pages = MappedPages(pages_fd, Layout.from_data(message["layout"]))
        return _ready(Order.from_data(message["order"]), pages, channel)
    except Failure as failure:
        send(channel, {"status": failure.status, "phase": failure.phase, "message": failure.message})
    return None


def _ready(order: Order, pages: MappedPages, channel: socket.socket) -> Ready:
    kernels = AskedKernels(channel, order.device)
    if is_cuda(order.device):
        open_device(order.device)
    try:
        with torch.no_grad():
            built = prepare(order, pages.sample(order.device), kernels)
            _finish(order.device)
    except PassError as error:
        raise Failure("compile_fail", "load", str(error)) from error
    except BaseException as error:
        raise Failure(*_first_call_failed(error), _explained(error)) from error
    report = facts(built)
    if order.arm == "candidate" and not built.rewritten:
        return Ready(built.call, pages, {**report, "missed": True, "mutated": [], "outputs": 0}, order.device)
    warm, sizes = _warm_up(order, built.call, pages)
    warm["interpreted"] = kernels.triton and order.device == "cpu"
    native = _native(built, kernels, pages)
    report = {**report, "missed": False, **warm, "native": native is not None}
    report["idles"] = order.device == "cpu" and not kernels.triton  # Triton's kernels have no idle form
    return Ready(built.call, pages, report, order.device, kernels.replayed, native, sizes)


def _native(built: BuiltGraph, kernels: AskedKernels, pages: MappedPages) -> NativeBlock | None:
    """Return the program as a native block at rest. Return None if only Python can run it."""
    if kernels.engine is None or built.module is None or not built.rewritten:
        return None
    with contextlib.suppress(NotNative):
        native = native_graph(built.module.graph, kernels.replayed, kernels.engine, pages.layout)
        native.rest()
        return native
    return None


def open_device(device: str) -> None:
    """Make ``device`` the current one. Raises Failure if CUDA does not work in this process."""
    try:
        torch.cuda.set_device(gpu_index(device))
        torch.cuda.synchronize(device)
    except Exception as error:
        raise Failure("crash", "device", f"CUDA cannot be used: {_explained(error)}") from error


def _finish(device: str) -> None:
    """Wait for a device, so that what fails on it fails here. Do nothing on the CPU."""
    if is_cuda(device):
        torch.cuda.synchronize(device)


def _first_call_failed(error: BaseException) -> tuple[str, str]:
    """Return the status and the phase of a failure.

    Capturing, compiling and the first call are one step, so only the exception shows the phase.
    """
    if _status(error) == "crash":
        return "crash", "first call"
    kind = type(error)
    compiler = kind.__module__.startswith(("torch._dynamo", "torch._inductor", "triton.compiler"))
    if compiler or kind.__name__ in ("CompileError", "CompilationError", "InterpreterError"):
        return "compile_fail", "compile"
    return "runtime_fail", "first call"


def _warm_up(order: Order, call: Callable[..., Any], pages: MappedPages) -> tuple[dict[str, Any], list[int]]:
    """Call the program again on private inputs. Return facts for the judge, and the bytes of each output.

    The facts are the number of outputs, and the inputs that changed in place, which the judge reads for eager only.
    Raises Failure if the call fails.
    """
    try:
        with torch.no_grad():
            inputs = pages.sample(order.device)
            versions = [tensor._version for tensor in inputs]
            outputs = call(*inputs)
            mutated = [i for i, tensor in enumerate(inputs) if tensor._version != versions[i]]
            _finish(order.device)
    except BaseException as error:
        raise Failure(_status(error), "warm-up", _explained(error)) from error
    count = len(outputs) if isinstance(outputs, tuple) else -1
    sizes = [out.numel() * out.element_size() for out in outputs if type(out) is torch.Tensor] if count > 0 else []
    return {"mutated": mutated, "outputs": count}, sizes


def _explained(error: BaseException) -> str:
    return explain(error, lambda file: file.startswith(f"<{KERNEL_MODULE}"))


def _fork_on_request(channel: socket.socket, ready: Ready) -> None:
    """Fork a process for each request. A process that lasts serves the first one itself, and then returns."""
    while True:
        # This process stops itself, until the judge continues it. To stop at a signal of the judge, it would need the
        # core once more, and a new runner may hold the core by then.
        os.kill(os.getpid(), signal.SIGSTOP)
        message, fds = receive(channel)
        if message["op"] == "reap":
            send(channel, {"ended": reap()})
            continue
        if ready.lasting:
            _serve(socket.socket(fileno=fds[0]), message, ready, fds[1:])
            return
        if is_cuda(ready.device):  # a device's context does not survive a fork
            _become_runner(socket.socket(fileno=fds[0]), message, ready, fds[1:])
        pid = _fork()
        if pid < 0:
            raise OSError("no runner could be forked")
        if pid == 0:
            channel.close()
            harden.die_with_parent()
            jit_code.make_private(ready.code)
            become = _trace if message["op"] == "trace" else _become_runner
            become(socket.socket(fileno=fds[0]), message, ready, fds[1:])
        for fd in fds:
            os.close(fd)
        send(channel, {"forked": pid})


def _become_runner(channel: socket.socket, message: dict[str, Any], ready: Ready, shared: Sequence[int] = ()) -> None:
    """Serve blocks and end the process. It never returns, so that no fork goes on as a template.

    ``shared`` has the descriptor of the inputs on a device, if they are shared.
    """
    with to_the_end():
        _serve(channel, message, ready, shared)


def _trace(channel: socket.socket, message: dict[str, Any], ready: Ready, shared: Sequence[int]) -> None:
    """Call the program with traced launches, behind the walls of a measured process, and end this process.

    ``shared`` has the descriptor of the page in which the launches are noted. The judge waits for the channel's end.
    """
    with to_the_end():
        os.dup2(ready.null, 1)
        page = TracePage(shared[0], loaded())
        harden.keep_descriptors(1, 2, channel.fileno())
        plans = traced(ready.replayed, page)
        if message["threads"] != torch.get_num_threads():
            torch.set_num_threads(message["threads"])
        if ready.filter is not None:
            ready.filter.install(message["threads"])
        with torch.no_grad():
            call_traced(ready.call, ready.pages.slots[: message["calls"]], plans)


def _serve(channel: socket.socket, message: dict[str, Any], ready: Ready, shared: Sequence[int]) -> None:
    """Serve blocks until the judge hangs up."""
    try:
        os.dup2(ready.null, 1)  # the log has what the template's calls printed; more would fill it
        if not is_cuda(ready.device):  # a driver has descriptors of its own
            harden.keep_descriptors(1, 2, channel.fileno())
        chance = random.Random(message["place"])
        memory.displace(chance, ready.pieces)
        if message["idle"] is not None:
            _idle(ready, message["idle"])
        else:
            _wake(ready)
        if message["audit"]:
            poison(ready.replayed, message["place"], ready.native)
        block = _block(channel, message, ready, shared)
        rehearsal = message["calls"] if message["rehearse"] else 0
        with closing(channel), closing(block):
            spacer = memory.Spacer(chance, sum(ready.sizes))
            serve(channel, block, ready.filter, message["threads"], spacer, rehearsal)
    except (ProtocolError, OSError):
        pass  # the judge has hung up


def _wake(ready: Ready) -> None:
    for plan in ready.replayed:
        plan.wake()
    if ready.native is not None:
        ready.native.wake()


def _idle(ready: Ready, contents: str) -> None:
    """Leave the kernels out, and do as little as an honest program can (``judge/audits/clock_floor.py``)."""
    for plan in ready.replayed:
        plan.idle(contents)
    if ready.native is not None:
        ready.native.idle()


def _block(channel: socket.socket, message: dict[str, Any], ready: Ready, shared: Sequence[int]) -> PythonBlock:
    """Return the block of a runner. If a device cannot make it, tell the judge why, and end the process."""
    calls, mutated, outputs = message["calls"], tuple(message["mutated"]), message["outputs"]
    if message["native"] and ready.native is not None:
        return EngineBlock(ready.native, ready.pages, calls, outputs)
    if not is_cuda(ready.device):
        return PythonBlock(ready.call, ready.pages, calls, mutated, outputs)
    from pytest_passbench.runner.cuda.block import CudaBlock

    try:
        plans = partial(poison, ready.replayed, random.getrandbits(32))
        return CudaBlock(ready.device, ready.call, ready.pages, calls, mutated, outputs, plans, *shared)
    except Exception as error:
        send(channel, {"status": _status(error), "phase": "fork", "message": _explained(error)})
        os._exit(0)


def _status(error: BaseException) -> str:
    """Return the status of a failed call: "crash" if a device's memory, which others may hold, ran out."""
    return "crash" if isinstance(error, torch.OutOfMemoryError) else "runtime_fail"
