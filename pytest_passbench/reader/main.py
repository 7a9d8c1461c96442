"""A reader imports the passes of a directory, sends them as data, and records launch plans on request.

Each recording is made in a fork of its own. So no call finds anything that an earlier one left behind. The recordings
of one request are made in parallel.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import random
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import MAX_CHARACTERS, explain
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import WRONG_CALL, Rejected, plan_refused
from pytest_passbench.plans import parse
from pytest_passbench.plans.graphs import to_data
from pytest_passbench.plans.launch import Argument, Request, contiguous
from pytest_passbench.plans.regions import graph_module
from pytest_passbench.protocol import receive, send, to_the_end
from pytest_passbench.reader import launches, registrations
from pytest_passbench.reader.importing import AnyLoaded, LoadedInductorPass, LoadedPass, LoadedRegionPass, load_passes
from pytest_passbench.reader.recording import Device, Recording, make_tensors
from pytest_passbench.reader.regions import regions
from pytest_passbench.reader.trace import parameters, place_in, trace
from pytest_passbench.rewrite.passes import PassError
from pytest_passbench.walls import harden, seccomp

_MAX_PADDING_BYTES = 1 << 22  # of memory that a fork allocates first, to get other addresses
_NOT_SUBSCRIPTABLE = "'function' object is not subscriptable"  # Python's words for ``kernel[grid]``
_PLAN, _NO_PLAN = b"+", b"-"  # messages of one byte between a reader and its forks
MAX_NOTE_CHARACTERS = 300  # of the reason why a region is left to eager
_POLL_SECONDS = 0.05  # between two checks whether a fork still runs


def main(message: dict[str, Any], fds: list[int]) -> None:
    """Read the passes that ``message`` names and serve requests. Raises ProtocolError when the judge hangs up."""
    channel, log_fd = socket.socket(fileno=fds[0]), fds[1]
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.close(log_fd)
    harden.die_with_parent()
    limits, folder = message["limits"], Path(message["folder"]).resolve()
    if message["inductor"]:
        registrations.install()
    harden.limit_resources(limits["memory"], limits["file_bytes"], limits["processes"])
    seccomp.untrusted(network=limits["network"])
    launches.install(folder)
    try:
        passes = load_passes(folder, message["stems"])
        answer = [pass_as_data(item) for item in passes]
    except PassError as error:
        send(channel, {"status": "failed", "message": str(error)[:MAX_CHARACTERS]})
        return
    sys.stdout.flush()
    send(channel, {"status": "ready", "passes": answer})
    by_name = {item.name: item for item in passes}
    while True:
        order, _none = receive(channel, max_fds=0)
        if order["op"] == "kernels":
            _tell_kernels(channel, folder)
        elif order["op"] == "regions" and order["here"]:
            send(channel, _regions(by_name[order["name"]], order["graph"], folder))
        elif order["op"] == "regions":
            _serve(channel, {**order, "seeds": [0]}, by_name, folder)
        else:
            _serve(channel, order, by_name, folder)


def pass_as_data(item: AnyLoaded) -> dict[str, Any]:
    """Return a pass as data, with the reason (a text) in place of a pattern's function that cannot be traced.

    Raises PassError if a search function of a registration cannot be traced.
    """
    if isinstance(item, LoadedRegionPass):
        return {"name": item.name, "kind": "region"}
    file, line = defined(_function_before(item), item.file.parent)
    place = f"{file}:{line}" if file else ""
    if isinstance(item, LoadedInductorPass):
        try:
            searches = [to_data(registrations.searched(item.name, entry)) for entry in item.registrations]
        except Rejected as error:
            raise PassError(item.name, f"the search function: {error}") from error
        return {"name": item.name, "kind": "inductor", "searches": searches, "place": place}
    return {
        "name": item.name,
        "kind": "pattern",
        "pattern": _traced(item, "pattern"),
        "replacement": _traced(item, "replacement_args"),
        "place": place,
    }


def _function_before(item: AnyLoaded) -> Callable[..., Any]:
    """Return the function that decides what the wrapper of a pass gets."""
    if isinstance(item, LoadedInductorPass):
        return item.registrations[0].search
    return item.supported if isinstance(item, LoadedRegionPass) else item.replacement_args


def _traced(item: LoadedPass, label: str) -> Any:
    function = getattr(item, label)
    try:
        return to_data(trace(item.name, label, function, parameters(function)))
    except (TypeError, ValueError, Rejected) as error:
        return f"{label}: {error}"
    except PassError as error:
        return error.message


def _made_anew(item: AnyLoaded) -> Callable[..., Any]:
    """Return a wrapper that calls ``replacement_func()`` again, and then calls what that returned."""

    def wrapper(*args: Any) -> Any:
        function = item.replacement_func()
        _check_call(function, args, region=isinstance(item, LoadedRegionPass))
        return function(*args)

    return wrapper


def _check_call(wrapper: Callable[..., Any], arguments: Sequence[Any], *, region: bool) -> None:
    """Raise Rejected if ``wrapper`` does not take that many arguments. Accept a wrapper without a signature.

    ``region`` is True for the arguments of a region pass.
    """
    try:
        signature = inspect.signature(wrapper)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(wrapper, "__name__", type(wrapper).__name__)
        takes = f"{name}({', '.join(map(_parameter, signature.parameters.values()))}) takes {_count(signature)}"
        gives = "the region and its tensors are" if region else "replacement_args returned"
        raise plan_refused(WRONG_CALL, f"{gives} {counted(len(arguments), 'value')}, {takes}") from None


def _parameter(parameter: inspect.Parameter) -> str:
    """Return a parameter as a call shows it: its name, with stars, and ``=...`` if it has a default value."""
    several, keywords = parameter.kind is parameter.VAR_POSITIONAL, parameter.kind is parameter.VAR_KEYWORD
    stars = "*" if several else "**" if keywords else ""
    return f"{stars}{parameter.name}" + ("" if parameter.default is parameter.empty else "=...")


def _count(signature: inspect.Signature) -> str:
    """Return how many arguments can be passed by position, in words: "2", "1 to 3" or "1 or more"."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.kind in kinds]
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature.parameters.values()):
        return f"{required} or more"
    return str(required) if required == len(parameters) else f"{required} to {len(parameters)}"


def _tell_kernels(channel: socket.socket, folder: Path) -> None:
    loaded_by_source = {
        (library.source, library.flags, library.openmp): library.loaded for library in reversed(launches.libraries)
    }
    libraries = [
        [source, list(flags), openmp, *_inside(folder, *loaded)]
        for (source, flags, openmp), loaded in reversed(loaded_by_source.items())
    ]
    send(channel, {"libraries": libraries, "triton": launches.triton_kernels(folder)})


def _inside(folder: Path, file: str, line: int) -> tuple[str, int]:
    """Return the path of ``file`` within ``folder``, and ``line``. Return "" and 0 if the file is elsewhere."""
    return (str(Path(file).relative_to(folder)), line) if Path(file).is_relative_to(folder) else ("", 0)


def _raised_in(folder: Path, error: BaseException) -> tuple[str, int]:
    """Return the file (relative to ``folder``) and line that raised ``error``, or "" and 0 if it is elsewhere."""
    return _inside(folder, *place_in(error, lambda path: path.is_relative_to(folder)))


def defined(function: Callable[..., Any], folder: Path) -> tuple[str, int]:
    """Return the file (relative to ``folder``) and line that define a function, or "" and 0 if it is elsewhere."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return _inside(folder, code.co_filename, code.co_firstlineno) if code is not None else ("", 0)


def _serve(channel: socket.socket, order: dict[str, Any], passes: dict[str, AnyLoaded], folder: Path) -> None:
    """Answer a request with a recording for each of its seeds, up to the first recording that gives no plan.

    Every second recording calls a newly made wrapper. So the two recordings of a plan use two wrappers if these are
    closures.
    """
    sys.stdout.flush()
    forks = [_forked(channel, order, number, passes, folder) for number in range(len(order["seeds"]))]
    going, reaped = True, set[int]()
    for pid, turn in forks:
        with turn:
            if not going:
                os.kill(pid, signal.SIGKILL)
                continue
            answer = b""
            with contextlib.suppress(OSError):
                turn.send(_PLAN)
            with contextlib.suppress(OSError):
                answer = _read_answer(pid, turn)
        going = answer not in (b"", _NO_PLAN)
        if not answer:
            reaped.add(pid)
            status = os.waitpid(pid, 0)[1]
            send(channel, {"ended": os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0})
    for pid, _turn in forks:  # last: the judge need not wait until their memory is free
        if pid not in reaped:
            os.waitpid(pid, 0)


def _read_answer(pid: int, turn: socket.socket) -> bytes:
    """Return the byte that a fork sends on its socket, or ``b""`` if the fork ended without one.

    A process that the fork started may hold the socket open after the fork's end. So the fork is checked as well.
    """
    while not _readable(turn, _POLL_SECONDS):
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        if ended and not _readable(turn, 0):
            return b""
    return turn.recv(1)


def _readable(turn: socket.socket, seconds: float) -> bool:
    return bool(select.select([turn], [], [], seconds)[0])


def _forked(
    channel: socket.socket, order: dict[str, Any], number: int, passes: dict[str, AnyLoaded], folder: Path
) -> tuple[int, socket.socket]:
    """Fork a process that makes the recording ``number`` of an order. Return its process id, and a socket.

    The fork makes the recording, waits for a byte from the socket, and sends its answer on the ``channel``. Then it
    sends a byte on the socket that tells whether the answer was a plan.
    """
    parent_end, child_end = socket.socketpair()
    with child_end:
        pid = os.fork()
        if pid == 0:
            with to_the_end():
                parent_end.close()
                answer = _answer(order, number, passes, folder)
                child_end.recv(1)
                sys.stdout.flush()  # before the answer: once the judge has it, it reads what was printed
                send(channel, answer)
                child_end.send(_PLAN if "plan" in answer else _NO_PLAN)
    return pid, parent_end


def _answer(order: dict[str, Any], number: int, passes: dict[str, AnyLoaded], folder: Path) -> dict[str, Any]:
    if order["op"] == "regions":
        return _regions(passes[order["name"]], order["graph"], folder)
    request = parse.request(order["request"])
    item = passes[request.name]
    chance, anew = random.Random(order["seeds"][number]), bool(number % 2)
    # Gives each fork other addresses.
    _padding = torch.empty(64 * chance.randrange(_MAX_PADDING_BYTES // 64), dtype=torch.uint8)
    try:
        return {
            "plan": record(request, _made_anew(item) if anew else item.wrapper, order["policy"], chance).to_data()
        }
    except BaseException as error:
        if isinstance(error, NotImplementedError) and request.region:
            return {"left": str(error)[:MAX_NOTE_CHARACTERS]}
        if isinstance(error, Rejected) and error.layer == "plan":
            wrong_call = error.rule == WRONG_CALL
            place = defined(_function_before(item), folder) if wrong_call else _raised_in(folder, error)
            # The result of a wrapper is checked after the wrapper returned, when no frame of its file is left.
            place = place if place[1] else defined(item.wrapper, folder)
            return _refusal(error.rule, error.message, *place)
        if isinstance(error, TypeError) and str(error) == _NOT_SUBSCRIPTABLE:
            return _refusal("no-kernel", "launches a function without @triton.jit", *_raised_in(folder, error))
        return {"raised": explain(error, lambda file: Path(file).is_relative_to(folder))}


def _regions(item: AnyLoaded, graph: str, folder: Path) -> dict[str, Any]:
    try:
        return {"regions": regions(item, graph)}
    except BaseException as error:
        return {"raised": explain(error, lambda file: Path(file).is_relative_to(folder))}


def _refusal(rule: str, message: str, file: str, line: int) -> dict[str, Any]:
    return {"refused": {"rule": rule, "message": message, "file": file, "line": line}}


def record(request: Request, wrapper: Any, policy: str, chance: random.Random) -> Any:
    """Return the launch plan of a call of ``wrapper``, on tensors with random values.

    Raises Rejected if the wrapper does what no plan can hold, and passes on what the wrapper raises.
    """
    values, arguments = make_tensors(request, chance)
    device = next((tensor.device for tensor in request.tensors), "cpu")
    recording = Recording(request, values, policy)
    if request.region:
        arguments.insert(0, graph_module(request.region))
    _check_call(wrapper, arguments, region=bool(request.region))
    with torch.no_grad(), Device(device), recording, launches.active(recording):
        result = wrapper(*arguments)
    return recording.plan(result)


def warm_up() -> None:
    """Record a small wrapper and trace a function. That imports what a first recording needs before any fork."""
    form = contiguous("float32", (2,))
    request = Request("warm_up", ({"tensor": 0},), (Argument(form),))
    record(request, lambda x: torch.empty_like(x).copy_(x.view(1, 2)[0]), "kernels", random.Random(0))
    to_data(trace("warm_up", "pattern", lambda x: torch.relu(x), ["x"]))
