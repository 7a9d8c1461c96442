"""A backend of an evaluator that judges by words in a candidate's text, for tests of the evaluator's callers."""

from __future__ import annotations

import threading
import time

from pytest_passbench.api.backend import MachineReport
from pytest_passbench.core.errors import UserError
from pytest_passbench.core.record import ArmResult
from support.made_records import record_of, right


class ToldBackend:
    """A backend that finds a candidate right and twice as fast, unless WRONG, CHEATS or FAULT is in its text.

    A call begins once ``gate`` is set. ``together`` is True if two were ever judged at once.
    """

    def __init__(self):
        self.gate, self.calls, self.busy, self.together = threading.Event(), 0, 0, False
        self.gate.set()

    def judge(self, call):
        self.calls += 1
        self.busy += 1
        self.together |= self.busy > 1
        try:
            self.gate.wait(60)
            for task in call.tasks:
                for candidate in call.candidates:
                    text = "".join(path.read_text() for path in candidate.path.glob("*.py"))
                    if "FAULT" in text:
                        raise UserError("the judge's process was lost twice")
                    for subgraph in task.subgraphs:
                        yield record_of(task.id, subgraph.id, self._arm(text), candidate.name)
            yield MachineReport("", {"sandbox": "none: told"}, {})
        finally:
            self.busy -= 1

    @staticmethod
    def _arm(text):
        if "CHEATS" in text:
            return ArmResult("integrity", "plan", "computes with torch")
        return ArmResult(correct_from=[99]) if "WRONG" in text else right(2.0)

    def close(self):
        self.gate.set()


def wait_for(condition):
    """Return once a condition holds. Fails after 30 s."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
