"""The exit codes of a run under pytest and of the commands. docs/ci.md shows them as one table."""

from __future__ import annotations

HARNESS_FAILED = 75
"""No case failed, but some subgraphs could not be judged (status ``harness_fail``). EX_TEMPFAIL in sysexits.h.

A failed case or gate goes before it: that verdict holds, whatever the missing subgraphs would have shown.
"""

OF_PYTEST = {
    0: "every case passed, every gate is met",
    1: "a case failed, a gate is not met, or the results could not be written",
    2: "interrupted",
    3: "an internal error (pytest's own)",
    4: "wrong usage: an option out of range, no candidate, a machine on which nothing can be judged",
    5: "no task was selected; without `--passbench-suite=full`, `-k` selects among the 20 tasks of the lite suite",
    HARNESS_FAILED: "no case failed, but some subgraphs [could not be judged](results.md#harness_fail): go on with "
    "`--passbench-resume`",
}
"""The codes of ``pytest --passbench``. The first that holds of 2, 3, 4, 1, 75 is the code."""

OF_COMMANDS = {
    0: "done, and nothing was found",
    1: "a mistake in the input; or what the command looked at is at fault: a violation, an invalid task, a changed "
    "file, no match, a limit that nothing could be compared for",
    2: "wrong usage of the command line",
    130: "interrupted by Ctrl+C",
}
"""The codes of ``passbench COMMAND``."""
