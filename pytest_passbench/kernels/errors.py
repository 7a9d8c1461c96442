"""The error of a kernel's compilation."""

from __future__ import annotations

from pytest_passbench.core.errors import UserError


class CompileError(UserError):
    """An error of the compiler or of a missing compiler; ``.what`` carries the message."""
