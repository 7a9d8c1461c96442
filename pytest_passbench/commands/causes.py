"""Problems of tasks grouped by cause: the same fault in other places, with other names and numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted

MAX_CAUSES = 20
MAX_CHARACTERS = 110  # of a cause or a place on its line
_OWN_NAMES = (
    (r"^subgraph \S+ does not run: (?:\w+ \(\w+\): )?", "does not run: "),
    (r"^graph \S+ has the operators .*", "the header lists other operators than the graph has"),
    (r"^class \w+: ", "an input: "),
    (r"\b(in|tmp)_\d+", r"\1_N"),
    (r"(?<![\w.])\d[\d.]*", "N"),
    (r"N(?:, N)+", "N, ..."),
)


def cause_of(error: UserError) -> str:
    """Return the fault without what differs from task to task: ids, names of values, numbers."""
    text = error.what
    for pattern, general in _OWN_NAMES:
        text = re.sub(pattern, general, text)
    return line(text, MAX_CHARACTERS)


class Causes:
    """The causes seen so far, each with its number of tasks and the first place."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._places: dict[str, str] = {}

    def add(self, problems: Iterable[UserError]) -> None:
        """Count the problems of a task. Two of one cause count once."""
        for cause, problem in {cause_of(problem): problem for problem in problems}.items():
            self._counts[cause] = self._counts.get(cause, 0) + 1
            self._places.setdefault(cause, str(problem.where or ""))

    def lines(self) -> Iterator[str]:
        """Yield the summary: each cause with its number of tasks and an example, the most frequent first."""
        order = sorted(self._counts, key=lambda cause: (-self._counts[cause], cause))
        for cause in order[:MAX_CAUSES]:
            yield f"{self._counts[cause]:>6}  {cause}"
            yield f"        such as {line(self._places[cause], 1_000)}"
        if len(order) > MAX_CAUSES:
            more = order[MAX_CAUSES:]
            yield f"{sum(map(self._counts.__getitem__, more)):>6}  {counted(len(more), 'further cause')}"
