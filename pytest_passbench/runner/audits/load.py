"""The load layer: Python's audit hook, put in before a candidate is imported (PEP 578; it cannot be taken out).

An event counts where the candidate's own code caused it: directly, or through the standard library. What torch,
Triton or this package do on their own behalf (compilers are started by ``kernels.cpp``) does not.
Native code is unseen by it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from types import FrameType
from typing import Any

from ...protocol import EVIDENCE_BYTES

_MOST_EVENTS = 40
_LIBRARIES = ("/torch/", "/triton/", "/pytest_passbench/", "/numpy/")
#: Never needed by a kernel, whoever of the standard library is between.
_ANYHOW = frozenset({
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.kill", "os.killpg",
    "sys.settrace", "sys.setprofile", "sys._current_frames", "socket.__new__", "socket.connect", "socket.bind",
    "socket.getaddrinfo", "socket.sendto", "gc.get_objects", "gc.get_referrers", "gc.get_referents",
    "ctypes.dlopen", "ctypes.string_at", "ctypes.wstring_at",
    "pickle.find_class",
})  # fmt: skip
#: The standard library does these for its own ends; the candidate may not do them itself.
_DIRECTLY = frozenset({"sys._getframe", "exec", "compile", "code.__new__", "object.__setattr__", "marshal.loads"})
#: Files of the standard library that look at frames on behalf of their caller.
_LOOKERS = ("/inspect.py", "/traceback.py")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Recorder:
    """Events that the candidate's code below ``folder`` causes, as ``[phase, event, detail, file, line]``.

    ``phase`` is "import" (its modules are loaded), "build" (graphs are rewritten and compiled) or "run". With
    ``buffer``, what is noted is also written there as JSON.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder.rstrip("/") + "/"
        self.phase = "import"
        self.events: list[list[Any]] = []
        self.operators: list[str] = []
        self.buffer = ctypes.create_string_buffer(EVIDENCE_BYTES)
        self._busy = False

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """The audit hook: quick for what is of no interest."""
        if self._busy or not (event in _ANYHOW or event in _DIRECTLY or event == "open"):
            return
        self._busy = True
        try:
            self._look(event, args)
        finally:
            self._busy = False

    def _look(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and not _odd_file(args):
            return
        frame = self._culprit(sys._getframe(2), direct=event in _DIRECTLY)
        if frame is not None and len(self.events) < _MOST_EVENTS:
            file = frame.f_code.co_filename.removeprefix(self.folder)
            self.events.append([self.phase, event, _detail(event, args), file, frame.f_lineno])
            self.write()

    def _culprit(self, frame: FrameType | None, *, direct: bool) -> FrameType | None:
        """The candidate's frame that is behind an event; None where a library or the harness is."""
        while frame is not None:
            name = frame.f_code.co_filename
            if name.startswith(self.folder):
                return frame
            if (direct and not name.endswith(_LOOKERS)) or any(part in name for part in _LIBRARIES):
                return None
            frame = frame.f_back
        return None

    def write(self) -> None:
        """Put what is known into the buffer, for the judge to read."""
        data = json.dumps({"events": self.events, "operators": self.operators}).encode()
        if len(data) < EVIDENCE_BYTES:
            self.buffer.value = data


def _odd_file(args: tuple[Any, ...]) -> bool:
    """Whether ``open``'s arguments (path, mode, flags) are for writing outside scratch, or about processes."""
    path, flags = args[0], args[2]
    if not isinstance(path, str | bytes):
        return False
    name = os.path.normpath(os.fsdecode(path))
    if name.startswith(("/proc/", "/sys/", "/etc/")) or name.endswith(".task.yaml"):
        return True
    return bool(isinstance(flags, int) and flags & _WRITES) and not name.startswith(("/tmp/", "/dev/"))


def _detail(event: str, args: tuple[Any, ...]) -> str:
    if event in ("exec", "compile", "code.__new__", "marshal.loads"):
        return ""
    return ", ".join(str(item)[:80] for item in args[:2] if isinstance(item, str | bytes | int | list))[:160]


_installed: list[Recorder] = []


def install(folder: str) -> Recorder:
    """Watch from now on what code below ``folder`` does in this process."""
    recorder = Recorder(folder)
    _installed.append(recorder)
    sys.addaudithook(recorder.hook)
    return recorder


def recorder() -> Recorder | None:
    """The recorder of this process, where one is installed."""
    return _installed[-1] if _installed else None


def phase(name: str) -> None:
    """Say what goes on now."""
    if _installed:
        _installed[-1].phase = name
