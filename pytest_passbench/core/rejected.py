"""The refusal of data from an author or an untrusted process: all checks of such data raise this one exception."""

from __future__ import annotations

WRONG_CALL = "call"
"""The rule of a refusal whose message is a whole sentence: a wrapper does not take the arguments that it is given."""


class Rejected(Exception):
    """Data, a plan or a kernel that is refused.

    ``layer`` says what is refused: "data" (bytes or values of another form), "plan" (what a wrapper does), "kernel"
    (its text or its machine code), "compile" (a text that does not compile). ``rule`` is the name of the broken rule.
    It is empty for a mistake that breaks none. ``message`` has no subject, unless ``rule`` is :data:`WRONG_CALL`.
    ``file`` (empty if there is none) is a path within the candidate's folder, and ``line`` is 0 if it is not known.
    """

    def __init__(self, layer: str, rule: str, message: str, file: str = "", line: int = 0) -> None:
        self.layer, self.rule, self.message, self.file, self.line = layer, rule, message, file, line
        super().__init__(f"{file}:{line}: {message}" if file else message)


def plan_refused(rule: str, message: str) -> Rejected:
    """Return the refusal of what a wrapper, or its plan, does."""
    return Rejected("plan", rule, message)


def kernel_refused(rule: str, message: str, file: str = "", line: int = 0) -> Rejected:
    """Return the refusal of a kernel: an integrity violation of the candidate, or a mistake if ``rule`` is empty."""
    return Rejected("kernel", rule, message, file, line)
