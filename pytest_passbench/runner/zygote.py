"""A zygote: the first process of a sandbox, process 1 of a strong one. It has imported what arms need, no candidate,
and opened no device.

It forks a template per subgraph, or in a reader's sandbox a reader per directory of passes.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
from typing import Any

from pytest_passbench.protocol import READ, ProtocolError, receive, send
from pytest_passbench.runner import memory
from pytest_passbench.walls import harden
from pytest_passbench.walls.confine import confine

_templates = set[int]()  # those that were forked here and are not buried yet


def main() -> None:
    """Serve the judge on the socket whose descriptor is the first argument; its first message says what to import.

    The second argument, the arm's name, is for people who list processes.
    """
    harden.same_layout()
    harden.heed_no_interrupt()
    channel = socket.socket(fileno=int(sys.argv[1]))
    wants, _none = receive(channel, max_fds=0)
    harden.not_dumpable()
    if "paths" in wants:
        confine(wants["paths"]["read"], wants["paths"]["write"])
    imports = memory.Imports()
    versions = _import(wants)
    imports.keep()
    send(channel, {"status": "ready", "pid": os.getpid(), "versions": versions})
    while True:
        try:
            message, fds = receive(channel)
        except ProtocolError:
            return
        _serve(channel, message, fds)


def _import(wants: dict[str, Any]) -> dict[str, str]:
    import torch

    torch.set_num_threads(1)
    versions = {"torch": torch.__version__, "python": sys.version.split()[0]}
    if wants["pipeline"] == READ:
        from pytest_passbench.reader.main import warm_up

        versions["triton"] = _import_triton()
        warm_up()
    else:
        from pytest_passbench.runner import template  # noqa: F401 - and what a template needs

        versions["triton"] = _import_triton()
        _warm_up(wants["pipeline"])
    gc.collect()
    gc.freeze()  # a template's own collection then walks its own objects only
    return versions


def _warm_up(pipeline: str) -> None:
    """What is imported or set up lazily (Dynamo, the operator tables) is then paid for once.

    Eager needs little of it, but has to be like the others.
    """
    from pytest_passbench.rewrite.pipelines import warm_up
    from pytest_passbench.suite.build import build_graph

    build_graph("def forward(in_0):\n    return (torch.relu(in_0),)", "warm-up")
    warm_up(pipeline)


def _import_triton() -> str:
    try:
        import triton
        import triton.language
    except ImportError:
        return "none"
    return str(triton.__version__)


def _serve(channel: socket.socket, message: dict[str, Any], fds: list[int]) -> None:
    from pytest_passbench.walls.children import reap

    if message["op"] == "reap":
        ended = reap()  # orphans as well, whose last parent this process is
        send(channel, {"ended": [[pid, number] for pid, number in ended if pid in _templates]})
        _templates.difference_update(pid for pid, _number in ended)
        return
    if message["op"] == "signal":
        _signal_all(message["number"])
        send(channel, {"signalled": True})
        return
    pid = os.fork()
    if pid == 0:
        channel.close()
        _become(message, fds)
    _templates.add(pid)
    for fd in fds:
        os.close(fd)
    send(channel, {"forked": pid})


def _signal_all(number: int) -> None:
    """Stop or end everything in the sandbox at once: no process can fork while this goes on, and so escape it.

    From outside they can only be found one by one. Behind weak walls, where others would be hit, nothing is done.
    """
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)


def _become(message: dict[str, Any], fds: list[int]) -> None:
    """Be a template or a reader; never returns. Whatever ends this process, the judge sees the socket close."""
    try:
        if message["op"] == "reader":
            from pytest_passbench.reader.main import main as reader_main

            reader_main(message, fds)
        else:
            from pytest_passbench.runner.template import main as template_main

            template_main(message, fds)
    finally:
        os._exit(0)
