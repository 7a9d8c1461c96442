"""Where the package lies on disk, and which of its rooms the untrusted side may see.

What is mounted into a sandbox is decided here: a new room is hidden from candidates until it is named.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
IMPORTED_FROM = PACKAGE.parent
"""What has to be on ``sys.path`` for ``import pytest_passbench``."""

_UNTRUSTED = (
    "__init__.py", "protocol.py", "compiling", "core", "kernels", "plans", "reader", "rewrite", "runner", "suite",
    "walls",
)  # fmt: skip


def visible() -> list[Path]:
    """Return the files and folders of the package that processes in a sandbox import from."""
    return [PACKAGE / name for name in _UNTRUSTED]
