"""How a kernel is turned away."""

from __future__ import annotations


class KernelRefused(Exception):
    """A kernel breaks ``rule``; ``message`` says in a sentence how. An integrity violation of the candidate."""

    def __init__(self, rule: str, message: str) -> None:
        self.rule, self.message = rule, message
        super().__init__(f"{rule}: {message}")


class CompileFailed(Exception):
    """The compiler rejected the source; the message begins with its first error. A mistake, no violation."""


class LimitReached(CompileFailed):
    """Compiling took more time, memory or room than a kernel may."""


_SHORT_OF = (
    ("memory", "out of memory", "memory exhausted", "Cannot allocate memory", "bad_alloc", "MemoryError"),
    ("room", "File size limit", "No space left", "file truncated", "File too large"),
    ("time", "CPU time limit", "Terminated", "Killed"),
)


def limit_reached(said: str) -> LimitReached | None:
    """Return the limit that a compiler says it ran into, if it is one."""
    for what, *words in _SHORT_OF:
        if any(word in said for word in words):
            return LimitReached(f"compiling needs more {what} than a kernel may take")
    return None
