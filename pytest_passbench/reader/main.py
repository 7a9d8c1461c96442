"""A reader imports the passes of a directory, sends them as data, and records launch plans on request.

Each recording is made in a fork of its own. So no call finds anything that an earlier one left behind.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errortext import MAX_CHARACTERS, explain
from pytest_passbench.plans import parse
from pytest_passbench.plans.graphs import to_data
from pytest_passbench.plans.launch import Argument, Request, contiguous
from pytest_passbench.plans.values import ValueRefused
from pytest_passbench.protocol import ProtocolError, receive, send
from pytest_passbench.reader import launches, tensors
from pytest_passbench.reader.importing import LoadedPass, load_passes
from pytest_passbench.reader.recording import Recording, Refused, culprit
from pytest_passbench.reader.trace import parameters, trace
from pytest_passbench.rewrite.errors import PassError
from pytest_passbench.walls import harden, seccomp

_MAX_PADDING_BYTES = 1 << 22  # between the addresses of two recordings
_NOT_SUBSCRIPTABLE = "'function' object is not subscriptable"  # Python's words for ``kernel[grid]``
_ANSWERED = 86  # exit status of a fork that has sent its answer


def main(message: dict[str, Any], fds: list[int]) -> None:
    """Read the passes that ``message`` names and serve requests until the judge hangs up."""
    channel, log_fd = socket.socket(fileno=fds[0]), fds[1]
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    harden.die_with_parent()
    limits = message["limits"]
    harden.limit_resources(limits["memory"], limits["file_bytes"], limits["processes"])
    seccomp.untrusted(network=limits["network"])
    folder = Path(message["folder"]).resolve()
    launches.install(folder)
    try:
        passes = load_passes(folder, message["stems"])
        answer = [pass_as_data(item) for item in passes]
    except PassError as error:
        send(channel, {"status": "failed", "message": str(error)[:MAX_CHARACTERS]})
        return
    sys.stdout.flush()
    send(channel, {"status": "ready", "passes": answer})
    first = {item.name: item.wrapper for item in passes}
    again = {item.name: _made_anew(item) for item in passes}
    turns = itertools.cycle((first, again))  # so a plan's two recordings are of two wrappers, if these are closures
    with contextlib.suppress(ProtocolError):
        while True:
            order, _none = receive(channel, max_fds=0)
            if order["op"] == "kernels":
                _tell_kernels(channel, folder)
            else:
                _serve(channel, order, next(turns), folder)


def pass_as_data(item: LoadedPass) -> dict[str, Any]:
    """Return a pass as data. In place of a function that cannot be traced stands the reason, as a text."""
    return {
        "name": item.name,
        "pattern": _traced(item, "pattern"),
        "replacement": _traced(item, "replacement_args"),
    }


def _traced(item: LoadedPass, label: str) -> Any:
    function = getattr(item, label)
    try:
        return to_data(trace(item.name, label, function, parameters(function)))
    except (TypeError, ValueError, ValueRefused) as error:
        return f"{label}: {error}"
    except PassError as error:
        return error.message


def _made_anew(item: LoadedPass) -> Callable[..., Any]:
    """Return a wrapper that calls the one that a further ``replacement_func()`` returns."""

    def wrapper(*args: Any) -> Any:
        return item.replacement_func()(*args)

    return wrapper


def _tell_kernels(channel: socket.socket, folder: Path) -> None:
    """Answer a request for all kernels of the modules."""
    known = {(one.source, one.flags, one.openmp): one.loaded for one in reversed(launches.libraries)}
    libraries = [
        [source, list(flags), openmp, *_inside(folder, *loaded)]
        for (source, flags, openmp), loaded in reversed(known.items())
    ]
    send(channel, {"libraries": libraries, "triton": launches.triton_kernels(folder)})


def _inside(folder: Path, file: str, line: int) -> tuple[str, int]:
    """Return a place with its file's path within ``folder``, or an empty file and 0 if it is elsewhere."""
    return (str(Path(file).relative_to(folder)), line) if Path(file).is_relative_to(folder) else ("", 0)


def _serve(channel: socket.socket, order: dict[str, Any], wrappers: dict[str, Any], folder: Path) -> None:
    """Answer a request for a launch plan, which a fork records."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            answer = _answer(order, wrappers, folder)
            sys.stdout.flush()  # before the answer: once the judge has it, it reads what was printed
            send(channel, answer)
        finally:
            os._exit(_ANSWERED)
    _pid, status = os.waitpid(pid, 0)
    if not os.WIFEXITED(status) or os.WEXITSTATUS(status) != _ANSWERED:
        send(channel, {"ended": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})


def _answer(order: dict[str, Any], wrappers: dict[str, Any], folder: Path) -> dict[str, Any]:
    request = parse.request(order["request"])
    chance = random.Random(order["seed"])
    # Gives each fork other addresses.
    _padding = torch.empty(64 * chance.randrange(_MAX_PADDING_BYTES // 64), dtype=torch.uint8)
    try:
        return {"plan": record(request, wrappers[request.name], order["policy"], chance).to_data()}
    except Refused as refused:
        return _refusal(folder, refused, refused.rule, refused.message)
    except BaseException as error:
        if isinstance(error, TypeError) and str(error) == _NOT_SUBSCRIPTABLE:
            return _refusal(folder, error, "no-kernel", "launches a function without @triton.jit")
        return {"raised": explain(error, lambda file: Path(file).is_relative_to(folder))}


def _refusal(folder: Path, error: BaseException, rule: str, message: str) -> dict[str, Any]:
    file, line = culprit(folder, error)
    return {"refused": {"rule": rule, "message": message, "file": file, "line": line}}


def record(request: Request, wrapper: Any, policy: str, chance: random.Random) -> Any:
    """Return the launch plan of a call of ``wrapper``, on tensors with random values.

    Raises Refused if the wrapper does what no plan can hold, and passes on what the wrapper raises.
    """
    made, arguments = tensors.make(request, chance)
    device = next((tensor.device for tensor in request.tensors), "cpu")
    recording = Recording(request, made, policy)
    with torch.no_grad(), tensors.Device(device), recording, launches.active(recording):
        result = wrapper(*arguments)
    return recording.plan(result)


def warm_up() -> None:
    """Record a small wrapper and trace a function, so that forks find imported what a first recording needs."""
    form = contiguous("float32", (2,))
    request = Request("warm_up", ({"tensor": 0},), (Argument(form),))
    record(request, lambda x: torch.empty_like(x).copy_(x.view(1, 2)[0]), "kernels", random.Random(0))
    to_data(trace("warm_up", "pattern", lambda x: torch.relu(x), ["x"]))
