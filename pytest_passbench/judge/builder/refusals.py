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
