"""The judge's own limits. Nobody may lower them while it works, since its failures would then decide results."""

from __future__ import annotations

import os
import resource

from pytest_passbench.core.errors import UserError

KINDS = {name: getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


class Limits:
    """The limits and the priority that this process had when it was made."""

    def __init__(self) -> None:
        self._limits = {name: resource.getrlimit(kind) for name, kind in KINDS.items()}
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)

    def check(self) -> None:
        """Raise UserError if a limit or the priority is lower than it was.

        What is not judged by then has no record, so it counts as a failure: whoever lowered it gains nothing.
        """
        for name, before in self._limits.items():
            now = resource.getrlimit(KINDS[name])
            if any(map(_is_lower, now, before)):
                self._refuse(f"{name} was {_words(before)} and is {_words(now)}")
        nice = os.getpriority(os.PRIO_PROCESS, 0)
        if nice > self._nice:
            self._refuse(f"its nice value was {self._nice} and is {nice}")

    def _refuse(self, what: str) -> None:
        raise UserError(f"the judge's own limits were lowered while it worked: {what}",
                        remedy="find out who did it, and run again")  # fmt: skip


def _is_lower(now: int, before: int) -> bool:
    return now != before and now != resource.RLIM_INFINITY and (before == resource.RLIM_INFINITY or now < before)


def _words(limit: tuple[int, int]) -> str:
    return " of ".join("unlimited" if end == resource.RLIM_INFINITY else str(end) for end in limit)
