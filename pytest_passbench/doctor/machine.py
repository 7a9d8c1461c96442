"""The machine that the checks look at: files under a root, and two commands. Tests plant their own."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Level = Literal["ok", "warning", "problem", "unknown"]


@dataclass(frozen=True)
class Check:
    """What one check found. ``level``: "warning" makes intervals wider, "problem" makes results wrong or
    a run impossible, "unknown" cannot be seen from here. ``remedy`` is empty where nothing needs doing.
    """

    name: str
    level: Level
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class Output:
    """A command's end: its exit code and what it printed (both streams)."""

    code: int
    text: str


def run_command(*command: str) -> Output | None:
    """Run a command for at most ten seconds; None where it is not installed."""
    if shutil.which(command[0]) is None:
        return None
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Output(-1, str(error))
    return Output(done.returncode, (done.stdout + done.stderr).strip())


@dataclass(frozen=True)
class Machine:
    """Where the checks read. ``pause`` lies between two samples of counters and returns its seconds."""

    root: Path = Path("/")
    command: Callable[..., Output | None] = run_command
    pause: Callable[[], float] = field(default=lambda: _pause(0.2))

    def read(self, path: str) -> str | None:
        """The stripped text of a file under the root; None where it cannot be read."""
        try:
            return (self.root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def number(self, path: str) -> int | None:
        """The whole number in a file; None where there is none."""
        text = self.read(path)
        try:
            return int(text) if text is not None else None
        except ValueError:
            return None

    def glob(self, pattern: str) -> list[str]:
        """Paths relative to the root, sorted."""
        return sorted(str(path.relative_to(self.root)) for path in self.root.glob(pattern))

    def cpus(self) -> int:
        """How many logical CPUs are online (at least 1)."""
        return max(1, len(cpu_list(self.read("sys/devices/system/cpu/online") or "0")))


def _pause(seconds: float) -> float:
    begin = time.monotonic()
    time.sleep(seconds)
    return time.monotonic() - begin


def cpu_list(text: str) -> list[int]:
    """The CPUs of the kernel's list form: "0-3,8" is [0, 1, 2, 3, 8]. What is not a number is left out."""
    result: list[int] = []
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            result.extend(range(int(first), int(last or first) + 1))
    return result
