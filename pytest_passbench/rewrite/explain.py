"""The reason why a pass matched nowhere, in one line, and how near it was to a match."""

from __future__ import annotations

from pytest_passbench.rewrite.match import Miss, Target
from pytest_passbench.rewrite.pattern import Pattern


def explain(pattern: Pattern, target: Target, best: Miss | None) -> str:
    """Return the nearest place, with the expected and the found operator or argument there."""
    anchor = pattern.calls[pattern.anchor].op
    if best is not None and best.depth > 0:
        return f"nearest: {best.text}"
    present = {call.op for call in target.calls.values()}
    absent = [call.op for call in pattern.calls.values() if call.op not in present]
    if absent:
        return f"the graph has no {absent[0]}; it has {_listed(target)}"
    return f"nearest: {best.text}" if best is not None else f"the graph has no {anchor}; it has {_listed(target)}"


def nearness(pattern: Pattern, best: Miss | None) -> float:
    """Return the share, 0 to 1, of the pattern's operators that had a partner at the nearest place."""
    return min(1.0, best.depth / len(pattern.calls)) if best is not None else 0.0


def _listed(target: Target) -> str:
    names = list(dict.fromkeys(call.op for call in target.calls.values()))
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "") if names else "no operators"
