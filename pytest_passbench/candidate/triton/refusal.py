"""The refusal of a kernel, with its reason in one sentence."""

from __future__ import annotations


class KernelRefusal(Exception):
    """A kernel's text that is refused.

    ``rule`` is the name of the rule that it breaks, which is an integrity violation. It is None for a fault: the text
    cannot be found, or has something that Triton does not know.
    """

    def __init__(self, file: str, line: int, message: str, rule: str | None = None) -> None:
        self.file, self.line, self.message, self.rule = file, line, message, rule
        super().__init__(f"{file}:{line}: {message}")
