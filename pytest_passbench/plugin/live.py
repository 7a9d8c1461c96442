"""The display during a run: a task's outcome in a few words, and how long the rest may take."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_passbench.core.escape import line
from pytest_passbench.core.record import Record
from pytest_passbench.report.failure_text import standing


@dataclass
class RunProgress:
    """The progress of a run. Costs are in subgraphs, of every selected item by node id."""

    clock: Callable[[], float] = time.monotonic
    costs: dict[str, int] = field(default_factory=dict)
    started: float | None = None
    _done: dict[str, int] = field(default_factory=dict)

    def expect(self, costs: dict[str, int]) -> None:
        """Start the clock on these items."""
        self.costs.update(costs)
        self.started = self.clock()

    def spent(self) -> float:
        """Return seconds since the clock was started; 0 before."""
        return 0.0 if self.started is None else self.clock() - self.started

    def finish(self, nodeid: str) -> None:
        """Note that an item has ended."""
        self._done[nodeid] = max(1, self.costs.get(nodeid, 1))

    def remaining(self, part: float = 0.0, nodeid: str = "") -> str:
        """Return how long the rest may take at the pace so far, in words; empty if nothing is known or left.

        ``part``: the share of the item ``nodeid`` that is done already.
        """
        total = sum(max(1, cost) for cost in self.costs.values())
        done = sum(self._done.values()) + part * self.costs.get(nodeid, 0)
        if self.started is None or not 0 < done < total:
            return ""
        return f"{spell(self.spent() / done * (total - done))} left"


def spell(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, as "90 s"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def outcome(records: Sequence[Record], total: int = 0) -> str:
    """Return a task in a few words: how many subgraphs are correct at the run's t, and the speed-up of those.

    ``total``: the number of subgraphs, if not all have records.
    """
    good = [record for record in records if record.correct]
    ratios = [record.arm.speed.ratio for record in good if record.arm.speed is not None]
    speed = f", {statistics.geometric_mean(ratios):.2f}x" if ratios else ""
    against = [record.head_to_head.ratio for record in good if record.head_to_head is not None]
    beside = f", {statistics.geometric_mean(against):.3f}x the reference" if against else ""
    return f"{len(good)}/{max(len(records), total)} correct{speed}{beside}"


def status_line(record: Record, index: int, total: int) -> str:
    """Return one subgraph in a few words, for the live line of a terminal."""
    speed = f" {record.arm.speed.ratio:.2f}x" if record.arm.speed is not None else ""
    return line(f"{index}/{total} {record.subgraph} {standing(record)}{speed}")


class LiveLine:
    """Text to the right of the cursor on a terminal, replaced as subgraphs are judged. Elsewhere nothing is shown.

    It is made once pytest's terminal reporter exists.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")
        reporter: Any = config.pluginmanager.getplugin("terminalreporter")
        interactive = bool(reporter and getattr(reporter, "isatty", False) and config.option.verbose >= 0)
        self._writer = config.get_terminal_writer() if interactive else None

    def show(self, text: str) -> None:
        """Show ``text`` on the rest of the line; an empty one clears it."""
        if self._writer is None:
            return
        room = self._writer.fullwidth - self._writer.width_of_current_line - 2
        # Save the cursor, clear to the end of the line, write, restore: pytest's own output goes on where it was.
        sequence = f"\x1b7\x1b[K {text[: max(0, room)]}\x1b8" if text else "\x1b[K"
        with self._capture.global_and_fixture_disabled() if self._capture else nullcontext():
            sys.stdout.write(sequence)
            sys.stdout.flush()
