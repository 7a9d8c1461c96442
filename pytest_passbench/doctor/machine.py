"""The machine that the checks look at: files under a root, and commands. Tests put others in their place."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem", "unknown"]
TIMEOUT_SECONDS = 10


@dataclass(frozen=True)
class Check:
    """The finding of one check. ``remedy`` is empty if nothing needs to be done.

    ``level`` "warning" makes intervals wider, "problem" makes results wrong or a run impossible, and "unknown"
    cannot be seen from here.
    """

    name: str
    level: Level
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class CommandOutput:
    """The result of a command: its exit code, and the text that it printed on both streams."""

    code: int
    text: str


def run_command(*command: str) -> CommandOutput | None:
    """Run a command for at most :data:`TIMEOUT_SECONDS`. Return None if it is not installed.

    If it cannot be run or takes longer, the exit code is -1 and the text is the error.
    """
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return CommandOutput(-1, str(error))
    return CommandOutput(done.returncode, (done.stdout + done.stderr).strip())


@dataclass(frozen=True)
class MachineProbe:
    """The source of all that the checks read. ``pause`` waits between two samples of counters, and returns its
    seconds.
    """

    root: Path = Path("/")
    command: Callable[..., CommandOutput | None] = run_command
    pause: Callable[[], float] = field(default=lambda: _pause(0.2))

    def read(self, path: str) -> str | None:
        """Return the stripped text of a file under the root, or None if it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """Return the whole number in a file, or None if it has none."""
        text = self.read(path)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Return the matching paths relative to the root, sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def cpus(self) -> int:
        """Return the number of logical CPUs that are online (at least 1)."""
        return max(1, len(cpu_list(self.read("sys/devices/system/cpu/online") or "0")))


def _pause(seconds: float) -> float:
    begin = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begin


def cpu_list(text: str) -> list[int]:
    """Return the CPUs of the kernel's list form: "0-3,8" is [0, 1, 2, 3, 8]. Parts that are not numbers are left
    out.
    """
    result: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            result.extend(range(int(first), int(last or first) + 1))
    return result
