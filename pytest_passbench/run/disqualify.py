"""The disqualification of passes: one that broke a rule on a subgraph counts nowhere in the run.

Otherwise a pass that is caught once in ten times would still gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_passbench.core.record import RAN, ArmResult, Record

PHASE = "disqualified"


def disqualify(records: Sequence[Record]) -> list[Record]:
    """Return the records; those where a disqualified pass matched get the status ``integrity``.

    A pass is known by candidate, pass directory and name. Records of failures stay as they are.
    """
    caught: dict[tuple[str, str, str], Record] = {}
    for record in records:
        if record.arm.status == "integrity" and record.arm.phase != PHASE:
            for key in _matched(record):
                caught.setdefault(key, record)
    return [_judged(record, caught) for record in records]


def _matched(record: Record) -> list[tuple[str, str, str]]:
    return [(record.candidate, record.folder, item.name) for item in record.passes if item.matches]


def _judged(record: Record, caught: dict[tuple[str, str, str], Record]) -> Record:
    guilty = [key for key in _matched(record) if key in caught]
    if not guilty or record.arm.status != RAN:
        return record
    where = caught[guilty[0]]
    message = f"pass {guilty[0][2]} broke a rule on {where.task}/{where.subgraph}: {where.arm.message}"
    against = replace(record.against, speed=None) if record.against is not None else None
    return replace(record, arm=ArmResult("integrity", PHASE, message, output=record.arm.output), against=against)
