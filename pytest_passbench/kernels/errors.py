"""How the compilation of a kernel fails."""

from __future__ import annotations

from pytest_passbench.core.errors import UserError


class CompileError(UserError):
    """The compiler rejected a source, or there is no compiler; ``.what`` carries its message."""
