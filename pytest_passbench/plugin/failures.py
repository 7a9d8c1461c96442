"""The report of a failed case: one line for the summary, and the evidence by cause, without a traceback.

Everything that a candidate could have written is capped and goes through :mod:`pytest_passbench.core.escape`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from pytest_passbench.core.escape import line as one_line
from pytest_passbench.core.escape import printable
from pytest_passbench.core.grouping import grouped
from pytest_passbench.core.record import RAN, Record
from pytest_passbench.report.changes import slowdown
from pytest_passbench.report.failure_text import CONSEQUENCES, OF_SUBGRAPH, cause, cause_key, describe, reason

MAX_DETAILED = 6
"""Different failures of a task that are shown in full; of the rest, a line each."""

HALVES = {"float16", "bfloat16"}

IN_HALF = "Half precision: see docs/kernels.md#agreeing-with-eager-in-half-precision"
"""The hint that is shown if only answers in 16 bits differ from eager's."""

OF_WRAPPERS = "What a wrapper may do: see docs/writing-a-pass.md#how-the-wrapper-runs"
"""The hint that is shown if a wrapper called an operator of torch that computes."""


class TaskFailedError(Exception):
    """The failure of a task: some of its subgraphs are not correct at the run's t, or slower than in an earlier run.

    ``records``: all its records; ``slower``: those that are slower.
    """

    def __init__(self, records: Sequence[Record], slower: Sequence[Record] = ()) -> None:
        self.records, self.slower = records, slower
        self.failed = [record for record in records if record.judged and not record.correct]
        super().__init__(self.line())

    def line(self) -> str:
        """Return the failure in one line: the cause of most failures first, since terminals cut the end off."""
        slower = f"{len(self.slower)} of {len(self.records)} slower than before" if self.slower else ""
        if not self.failed:
            return one_line(f"{slower}: {slowdown(self.slower[0])}", 300)
        groups = list(grouped(self.failed, lambda record: OF_SUBGRAPH.sub("[]", cause(record))).values())
        # A subgraph's own failure says more than those of others that only follow from it.
        most = max(groups, key=lambda group: (group[0].arm.phase not in CONSEQUENCES, len(group)))
        others = Counter(_ending(record) for group in groups if group is not most for record in group)
        dtypes = self._failed_dtypes() if not others and most[0].arm.status == RAN else []
        where = f" in {', '.join(dtypes)}" if dtypes else ""
        also = "".join(f"; {number} {ending}" for ending, number in others.most_common())
        also += f"; {slower}" if slower else ""
        return one_line(f"{cause(most[0])}{where} ({len(most)} of {len(self.records)}{also})", 300)

    def text(self) -> str:
        """Return the failure with its evidence, in parts by cause."""
        groups = list(grouped(self.failed, cause_key).values())
        abbreviated = [describe(alike) for alike in groups[:MAX_DETAILED]]
        others = (record for alike in groups[MAX_DETAILED:] for record in alike)
        rest = [one_line(f"{record.subgraph}: {reason(record)}", 300) for record in others]
        wrong = [self._counts(), *abbreviated, *(["\n".join(rest)] if rest else [])] if self.failed else []
        return "\n\n".join([*wrong, *self._slowdowns()]) + "\n"

    def _slowdowns(self) -> list[str]:
        if not self.slower:
            return []
        head = f"{len(self.slower)} of {len(self.records)} subgraphs lost more speed-up than is allowed"
        return ["\n".join([head, *(f"  {one_line(slowdown(record), 300)}" for record in self.slower)])]

    def _counts(self) -> str:
        """Return how many subgraphs failed, with counts by dtype if those of some dtype are all correct."""
        summary = f"{len(self.failed)} of {len(self.records)} subgraphs failed"
        if any(finding.rule == "torch-op" for record in self.failed for finding in record.findings):
            summary += f"\n{OF_WRAPPERS}"
        dtypes = self._failed_dtypes()
        if not dtypes:
            return summary
        total = Counter(record.dtype for record in self.records if record.judged)
        failed = Counter(record.dtype for record in self.failed)
        counts = ", ".join(f"{printable(dtype)} {total[dtype] - failed[dtype]}/{total[dtype]}" for dtype in total)
        half = set(dtypes) <= HALVES and all(record.arm.status == RAN for record in self.failed)
        return f"{summary} (correct: {counts})" + (f"\n{IN_HALF}" if half else "")

    def _failed_dtypes(self) -> list[str]:
        """Return the dtypes of the failed subgraphs; none if there is no dtype whose subgraphs are all correct."""
        failed = list(dict.fromkeys(record.dtype for record in self.failed))
        return failed if any(record.judged and record.dtype not in failed for record in self.records) else []


def _ending(record: Record) -> str:
    if record.arm.phase in CONSEQUENCES:
        return "not tried" if record.arm.phase == "out" else "disqualified"
    return record.arm.status if record.arm.status != RAN else "not correct"


def longrepr(path: Path, line: str, text: str) -> Any:
    """Return a report of ``text`` whose short summary is ``line``. xdist can send it."""
    entries = [ReprEntryNative([part + "\n" for part in text.rstrip("\n").split("\n")])]
    traceback = ReprTraceback(reprentries=entries, extraline=None, style="native")
    return ReprExceptionInfo(traceback, ReprFileLocation(str(path), 0, line))
