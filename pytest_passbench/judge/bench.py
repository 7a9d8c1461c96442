"""The objects that a case's clock, verification and audits have in common: its inputs, its cores, its time.

Time is counted twice. The deadline limits the candidate's own time (``passbench_timeout``). The stopwatch has all
seconds by phase, disjoint and complete. This module imports no arm: the arms limit their answers by the deadline.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from pytest_passbench.core.seed import Secret
from pytest_passbench.judge.inputs import Inputs
from pytest_passbench.judge.inputs.pages import Pages
from pytest_passbench.judge.machine.cores import Awake, Cores, device_locks, exclusive, pinned
from pytest_passbench.protocol import Layout

SAFETY = 1.5


class _Context:
    """A context of two functions, entered a dozen times a round. A generator's context would take twice the time."""

    __slots__ = ("_begin", "_end")

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin, self._end = begin, end

    def __enter__(self) -> None:
        self._begin()

    def __exit__(self, *_exception: object) -> None:
        self._end()


class Deadline:
    """The end of a case's time: ``limit`` seconds after its start, and later by all time that is not the candidate's.

    The clock runs unless it is :meth:`paused`. So a wait that the judge does not expect counts.
    """

    def __init__(self, limit: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit, self._clock = limit, clock
        self._end = clock() + limit
        self._pauses, self._since = 0, 0.0

    def left(self) -> float:
        """Return the seconds that are left, 0 if there are none."""
        return max(0.0, self._end - (self._since if self._pauses else self._clock()))

    def paused(self, really: bool = True) -> AbstractContextManager[None]:
        """Stop the clock, as a context; not if ``really`` is False. Pauses may be nested."""
        return _Context(self.pause, self.resume) if really else nullcontext()

    def running(self) -> AbstractContextManager[None]:
        """Let the clock of a paused deadline run, as a context."""
        return _Context(self.resume, self.pause)

    def pause(self) -> None:
        if not self._pauses:
            self._since = self._clock()
        self._pauses += 1

    def resume(self) -> None:
        """End the pause that began last."""
        self._pauses -= 1
        if not self._pauses:
            self._end += self._clock() - self._since


class Pace:
    """The decision whether there is time for another step, and for the work after the last one.

    Call it before each step. A step is expected to take no longer than :data:`SAFETY` times the longest so far.
    ``reserve`` are the seconds for the work after the last step.
    """

    def __init__(self, deadline: Deadline, reserve: float) -> None:
        self._deadline, self._reserve = deadline, reserve
        self._before, self._longest = deadline.left(), 0.0

    def __call__(self) -> bool:
        """Return True if there is time for another step."""
        left = self._deadline.left()
        self._longest = max(self._longest, self._before - left)
        self._before = left
        return left > SAFETY * self._longest + self._reserve


class Stopwatch:
    """A stopwatch that adds the seconds of each phase to ``spent``. An inner phase pauses the outer one."""

    def __init__(self, spent: dict[str, float]) -> None:
        self.spent = spent
        self._open: list[str] = []
        self._since = 0.0

    def __call__(self, phase: str) -> AbstractContextManager[None]:
        """Time ``phase``, as a context."""
        return _Context(partial(self._enter, phase), self._leave)

    def _enter(self, phase: str) -> None:
        self._note()
        self._open.append(phase)

    def _leave(self) -> None:
        self._note()
        self._open.pop()

    def _note(self) -> None:
        now = time.perf_counter()
        if self._open:
            phase = self._open[-1]
            self.spent[phase] = self.spent.get(phase, 0.0) + now - self._since
        self._since = now


@dataclass(frozen=True)
class Bench:
    """A subgraph's inputs and their pages, its arms' cores, its secret draws, and the counts of its time.

    ``locks`` are the names of the machine-wide locks that it is timed under. ``tolerance`` is the t at which outputs
    must agree. ``content`` is a hash of the subgraph and its inputs. ``null_by_omission`` says by ``content`` whether
    an answer that ignores one of the inputs is as accurate as eager's. It depends on no candidate.
    """

    layout: Layout
    pages: Pages
    inputs: Inputs
    cores: Cores
    locks: list[str]
    awake: Awake
    secret: Secret
    phases: Stopwatch
    deadline: Deadline
    tolerance: int
    content: str
    null_by_omission: dict[str, bool]

    @contextmanager
    def device_alone(self) -> Iterator[None]:
        """Hold the lock of the device, if there is one: builds use it, and tuning measures on it."""
        with ExitStack() as stack:
            names = device_locks(self.locks)
            if names:
                with self.phases("wait"), self.deadline.paused():
                    stack.enter_context(exclusive(names))
            yield

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the arms' cores within this context, alone and awake."""
        with self.phases("wait"), ExitStack() as stack:
            with self.deadline.paused():
                for context in exclusive(self.locks), pinned(self.cores.judge), self.awake.on():
                    stack.enter_context(context)
            yield
