"""A zygote is the first process of a sandbox, and process 1 behind strong walls.

It has imported the modules that arms need, but no candidate, and it has opened no device: a process that is forked
from one with CUDA in use cannot use CUDA. It forks a template per subgraph. In a sandbox of readers it forks a reader
per directory of passes.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import os
import socket
import stat
import sys
from pathlib import Path
from typing import Any

from pytest_passbench.protocol import READ, ProtocolError, receive, send, to_the_end
from pytest_passbench.runner import memory
from pytest_passbench.walls import harden, seccomp
from pytest_passbench.walls.confine import confine, reap

_MAINS = {  # the module whose ``main`` a fork runs, by the operation in the message
    "reader": "reader.main",
    "keeper": "runner.cuda.keeper",
    "matcher": "runner.first_match",
    "template": "runner.template",
}
_modes = dict[Path, int]()  # the first modes of the folders that readers may write to
_children = set[int]()  # templates and readers that were forked here and not reaped yet


def main() -> None:
    """Serve the judge on the socket whose descriptor is the first argument.

    The first message names the imports. The engine's library comes with it, if there is one.

    The second argument is the arm's name, for people who list processes.
    """
    harden.same_layout()
    harden.heed_no_interrupt()
    channel = socket.socket(fileno=int(sys.argv[1]))
    wants, libraries = receive(channel, max_fds=1)
    harden.not_dumpable()
    if "paths" in wants:
        confine(wants["paths"]["read"], wants["paths"]["write"], named=wants["device"])
    if not seccomp.works():
        sys.exit(seccomp.REFUSED)
    imports = memory.Imports()
    _import(wants)
    if libraries:
        from pytest_passbench.runner import engine

        engine.load(f"/proc/self/fd/{libraries[0]}")
        os.close(libraries[0])
    imports.keep()
    send(channel, {"status": "ready"})
    while True:
        try:
            message, fds = receive(channel)
        except ProtocolError:
            return
        _serve(channel, message, fds)


def _import(wants: dict[str, Any]) -> None:
    import torch

    torch.set_num_threads(1)
    import triton.language  # noqa: F401

    if wants["pipeline"] == READ:
        from pytest_passbench.reader.main import warm_up

        warm_up()
    else:
        _warm_up(wants["pipeline"], wants["device"])
    if opened := opened_devices():
        sys.exit(f"{', '.join(opened)} was opened by an import, so no process forked from here could use CUDA")
    _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()  # a fork's collections then walk its own objects only


def _warm_up(pipeline: str, on_device: bool) -> None:
    """Build a small graph, so that lazy imports (Dynamo, the operator tables) happen once.

    Eager needs few of them, but its processes have to be like those of the other arms. For a device nothing is
    compiled: Dynamo saves the state of CUDA's random numbers around each compilation, and that initialises CUDA.
    """
    from pytest_passbench.rewrite import pipelines
    from pytest_passbench.runner import template  # noqa: F401 - and what a template needs
    from pytest_passbench.suite.build import build_graph

    build_graph("def forward(in_0):\n    return (torch.relu(in_0),)", "warm-up")
    if not on_device:
        pipelines.warm_up(pipeline)
        return
    import torch._dynamo
    import torch._inductor.compile_fx  # noqa: F401

    from pytest_passbench.runner.cuda import block  # noqa: F401 - binds native functions


def opened_devices(descriptors: Path = Path("/proc/self/fd")) -> list[str]:
    """Return the NVIDIA device files that this process has open."""
    targets: set[str] = set()
    for link in descriptors.iterdir():
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed by now
            targets.add(str(link.readlink()))
    return sorted(path for path in targets if path.startswith("/dev/nvidia"))


def _serve(channel: socket.socket, message: dict[str, Any], fds: list[int]) -> None:
    if message["op"] == "reap":
        ended = reap()  # orphans too, which become children of this process
        send(channel, {"ended": [[pid, number] for pid, number in ended if pid in _children]})
        _children.difference_update(pid for pid, _number in ended)
        return
    if message["op"] == "show":
        send(channel, {"shown": unpack_candidate(fds[0], Path(message["folder"]))})
        return
    if message["op"] == "signal":
        # To all processes at once, so that none escapes by forking: from outside they can only be listed one by one.
        # Behind weak walls this would signal processes outside of the sandbox.
        if os.getpid() == 1:
            with contextlib.suppress(ProcessLookupError):
                os.kill(-1, message["number"])
        send(channel, {"signalled": True})
        return
    if message["op"] == "compiler":
        importlib.import_module("torch._dynamo")  # for calls on meta tensors. Limited processes may not import it
        _freeze()
        send(channel, {"imported": True})
        return
    pid = os.fork()
    if pid == 0:
        channel.close()
        with to_the_end():  # in any case the judge sees the socket close
            importlib.import_module(f"pytest_passbench.{_MAINS[message['op']]}").main(message, fds)
    _children.add(pid)
    for fd in fds:
        os.close(fd)
    send(channel, {"forked": pid})


def unpack_candidate(archive: int, folder: Path) -> bool:
    """Remove all that readers of the previous candidate have written, and unpack the files of another candidate.

    ``archive`` is the descriptor of a tar file, which is closed. Return False if something cannot be removed or
    written. Then the sandbox cannot be used any more.
    """
    import tarfile  # sandboxes that hold no candidate start without it

    try:
        folder.mkdir(exist_ok=True)
        shared = [Path("/dev/shm")] if os.getpid() == 1 else []  # behind weak walls all processes use it
        for place in (folder, Path(os.environ["TMPDIR"]), *shared):
            _restore(place)
            _empty(place)
            os.utime(place, (0, 0))
        folder.mkdir(exist_ok=True)  # behind weak walls it is in TMPDIR, which has just been emptied
        with open(archive, "rb") as file, tarfile.open(fileobj=file, mode="r:") as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.0 to 3.11.3 has none
            packed.extractall(folder)
    except (OSError, RecursionError):
        return False
    return True


def _restore(folder: Path) -> None:
    """Give a folder its first mode, and remove attributes and access lists. Raises OSError."""
    folder.chmod(_modes.setdefault(folder, stat.S_IMODE(folder.stat().st_mode)))
    try:
        names = os.listxattr(folder)
    except OSError as error:
        if error.errno != errno.ENOTSUP:  # a file system without attributes
            raise
        return
    for name in names:
        if name.startswith(("user.", "system.posix_acl")):
            os.removexattr(folder, name)


def _empty(folder: Path) -> bool:
    """Remove all that is in a folder, except what is mounted there. Return True if nothing is left."""
    left = False
    for entry in list(folder.iterdir()):
        if entry.is_symlink() or not entry.is_dir():
            entry.unlink()
        elif not entry.is_mount() and _empty(entry):
            entry.rmdir()
        else:  # this package or Python, whose folders may lie below /tmp
            left = True
    return not left
