"""The limits that a process of the user's may have been started with, and the least of each that judging takes."""

from __future__ import annotations

import resource
from dataclasses import dataclass

from pytest_passbench.core.errors import UserError


@dataclass(frozen=True)
class _Limit:
    """A limit by its option of ``ulimit``. Its values are shown in a ``unit`` of so many (``size``)."""

    option: str
    kind: int
    least: int
    what: str
    unit: str = ""
    size: int = 1


_LIMITS = (
    _Limit("-n", resource.RLIMIT_NOFILE, 256, "open files"),
    _Limit("-f", resource.RLIMIT_FSIZE, 256 << 20, "the size of a file", " MiB", 1 << 20),
    _Limit("-v", resource.RLIMIT_AS, 4 << 30, "address space", " GiB", 1 << 30),
)


def check_limits() -> None:
    """Raise UserError for the first limit that is too low. Later it would fail in the middle of something else."""
    for limit in _LIMITS:
        soft, _hard = resource.getrlimit(limit.kind)
        if soft != resource.RLIM_INFINITY and soft < limit.least:
            values = [f"{value / limit.size:.3g}{limit.unit}" for value in (soft, limit.least)]
            raise UserError(
                f"{limit.what}: this process is limited to {values[0]}, and judging takes {values[1]}",
                where=f"ulimit {limit.option}",
                remedy="raise the limit",
            )
