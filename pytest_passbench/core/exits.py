"""The exit code of a run that no verdict follows from. docs/ci.md has the others."""

from __future__ import annotations

HARNESS_FAILED = 75
"""No case failed, but some subgraphs could not be judged (status ``harness_fail``). EX_TEMPFAIL in sysexits.h.

A failed case or gate goes before it: that verdict holds, whatever the missing subgraphs would have shown.
"""
