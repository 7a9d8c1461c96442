"""The sentences on candidates that were not judged on all subgraphs of their tasks."""

from __future__ import annotations

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run

WHY = "of a dtype the smallest alone, where Triton's interpreter runs it"


def sentence(run: Run, candidate: str, label: str = "") -> str:
    """Return on how many subgraphs a candidate was judged, and why; empty if none was left out.

    ``label`` is what a table calls the candidate, if that is not its name.
    """
    left_out = run.left_out(candidate)
    if not left_out:
        return ""
    judged = sum(run.count(candidate, task) for task in run.tasks)
    return f"{label or candidate} was judged on {judged} of {counted(judged + left_out, 'subgraph')}: {WHY}."


def sentences(run: Run) -> list[str]:
    """Return a sentence for each candidate that was judged on fewer subgraphs than its tasks have."""
    return [*filter(None, (sentence(run, name) for name in run.names))]
