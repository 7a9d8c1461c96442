"""The errors for kernels that are refused or do not compile."""

from __future__ import annotations

from pytest_passbench.judge.builder.diagnostics import SourceError


class KernelRefused(Exception):
    """A kernel breaks ``rule``, as ``message`` explains. It is an integrity violation of the candidate."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule, self.message = rule, message
        super().__init__(f"{rule}: {message}")


class CompileFailed(Exception):
    """The compiler rejected the source. The message begins with its first error. It is a mistake, not a violation.

    ``errors`` are the errors that have a line of ``source``, a C++ text.
    """

    def __init__(self, message: str, source: str = "", errors: tuple[SourceError, ...] = ()) -> None:
        self.source, self.errors = source, errors
        super().__init__(message)


class OutOfTime(Exception):
    """Compiling took longer than the caller can wait. It may still compile, so it is tried again when asked for."""


class LimitReached(CompileFailed):
    """Compiling took more time, memory or room than a kernel may."""


_SHORT_OF = (
    ("memory", "out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "MemoryError"),
    ("room", "File size limit", "No space left", "file truncated", "File too large"),
    ("time", "CPU time limit", "Terminated", "Killed"),
)


def limit_reached(output: str) -> LimitReached | None:
    """Return the limit that a compiler's messages name, or None if they name no limit."""
    for what, *words in _SHORT_OF:
        if any(word in output for word in words):
            return LimitReached(f"compiling needs more {what} than a kernel may take")
    return None
