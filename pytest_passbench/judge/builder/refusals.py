"""The refusals of kernels: those that break a rule, and those that do not compile."""

from __future__ import annotations

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.judge.builder.diagnostics import SourceError

LIMIT = "limit"
"""The rule of a :class:`CompileFailed` for a kernel that takes more time, memory or room than a kernel may."""


class CompileFailed(Rejected):
    """A text that the compiler rejected. The message begins with its first error. It is a mistake, not a violation.

    ``errors`` are the errors that have a line of ``source``, a C++ text. ``line`` is that of a Triton kernel's file.
    """

    def __init__(
        self, message: str, source: str = "", errors: tuple[SourceError, ...] = (), rule: str = "", line: int = 0
    ) -> None:
        self.source, self.errors = source, errors
        super().__init__("compile", rule, message, line=line)


_SHORT_OF = (
    ("memory", "out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "MemoryError"),
    ("room", "File size limit", "No space left", "file truncated", "File too large"),
    ("time", "CPU time limit", "Terminated", "Killed"),
)


def limit_reached(output: str) -> CompileFailed | None:
    """Return the limit that a compiler's messages name, or None if they name no limit."""
    for what, *words in _SHORT_OF:
        if any(word in output for word in words):
            return CompileFailed(f"compiling needs more {what} than a kernel may take", rule=LIMIT)
    return None
