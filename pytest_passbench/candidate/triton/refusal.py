"""A kernel that is not run, and why, in one sentence."""

from __future__ import annotations


class KernelRefusal(Exception):
    """A kernel's text that is refused. ``rule`` names the rule that it breaks, which is an integrity violation; it
    is None for a fault: the text cannot be found, or says something that Triton does not know.
    """

    def __init__(self, file: str, line: int, message: str, rule: str | None = None) -> None:
        self.file, self.line, self.message, self.rule = file, line, message, rule
        super().__init__(f"{file}:{line}: {message}")
