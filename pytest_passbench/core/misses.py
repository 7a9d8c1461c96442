"""The passes that matched nowhere, grouped by cause. The cause that was nearest to a match comes first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import PassReport

MAX_CAUSES = 12  # in a message
MAX_NAMES = 8  # of the passes of one cause
NO_CAUSE = "no pass changed the graph"
#: Why the matches of a pass do not count.
WRITES_NOTHING = "matched, but none of its kernels writes bytes that the kernel wrapper returns"
NO_WORK = "matched only views, casts or dropout in eval mode, which leave a kernel nothing to compute"


@dataclass(frozen=True)
class Cause:
    """A reason why passes matched nowhere.

    ``text`` is the reason, with details behind its first semicolon. ``nearness`` is the greatest of its passes.
    """

    text: str
    passes: tuple[str, ...]
    nearness: float = 0.0

    @property
    def names(self) -> str:
        """The names of the passes, or of the first ones if there are many."""
        return ", ".join(self.passes[:MAX_NAMES]) + (", ..." if len(self.passes) > MAX_NAMES else "")

    @property
    def who(self) -> str:
        """The pass, or the number and the names of several: ``3 passes: a, b, c``."""
        return self.names if len(self.passes) == 1 else f"{len(self.passes)} passes: {self.names}"

    def line(self, details: bool) -> str:
        """Return the cause and its passes in a line, with or without the details."""
        text = self.text if details else self.text.partition("; ")[0]
        return f"{self.who}: {text}" if len(self.passes) == 1 else f"{len(self.passes)} passes: {text}: {self.names}"


def causes(passes: Iterable[PassReport]) -> list[Cause]:
    """Return the causes of the passes that matched nowhere, the nearest to a match first.

    Causes that are as near as each other are in the order of their passes.
    """
    alike = grouped((report for report in passes if not report.matches), lambda report: report.miss)
    named = [
        Cause(text, tuple(report.name for report in reports), max(report.nearness for report in reports))
        for text, reports in alike.items()
    ]
    return sorted(named, key=lambda cause: -cause.nearness)


def lines(passes: Iterable[PassReport]) -> list[str]:
    """Return a line per cause. The first one, which was nearest to a match, has its details."""
    named_causes = [cause for cause in causes(passes) if cause.text]
    texts = [cause.line(details=not index) for index, cause in enumerate(named_causes[:MAX_CAUSES])]
    rest = sum(len(cause.passes) for cause in named_causes[MAX_CAUSES:])
    return [*texts, f"{counted(rest, 'more pass was', 'more passes were')} further from a match"] if rest else texts


def message(passes: Iterable[PassReport]) -> str:
    """Return the message of a subgraph that no pass changed: a line per cause."""
    return ";\n".join(lines(passes)) or NO_CAUSE
