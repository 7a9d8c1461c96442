"""The limits that a process of the user's may have been started with, and the least of each that judging takes."""

from __future__ import annotations

import resource

from pytest_passbench.core.errors import UserError

_LIMITS = (
    ("-n", resource.RLIMIT_NOFILE, 256, "open files", "", 1),
    ("-f", resource.RLIMIT_FSIZE, 256 << 20, "the size of a file", " MiB", 1 << 20),
    ("-v", resource.RLIMIT_AS, 4 << 30, "address space", " GiB", 1 << 30),
)
"""Each limit: its option of ``ulimit``, its number, the least, its name, and the unit in which it is shown."""


def check_limits() -> None:
    """Raise UserError for the first limit that is too low. Later it would fail in the middle of something else."""
    for option, number, least, name, unit, size in _LIMITS:
        soft, _hard = resource.getrlimit(number)
        if soft != resource.RLIM_INFINITY and soft < least:
            present, needs = (f"{value / size:.3g}{unit}" for value in (soft, least))
            what = f"{name}: this process is limited to {present}, and judging takes {needs}"
            raise UserError(what, where=f"ulimit {option}", remedy="raise the limit")
