"""New runners of several arms at once: each template forks on a core of its own, where there is one."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle

from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms.failures import ArmFailure, unexpected
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Effects, Fork, Template
from pytest_passbench.judge.machine.cores import Cores
from pytest_passbench.protocol import MAX_OUTPUTS


class ArmFailed(Exception):
    """An arm failed; whose failure it is decides what the record says."""

    def __init__(self, arm: str, failure: ArmFailure) -> None:
        self.arm, self.failure = arm, failure
        super().__init__(f"{arm}: {failure}")


class blaming:  # noqa: N801 - used as a function; a generator's context takes more than twice as long, twice a block
    """Say whose failure it is, as a context. Any exception is one, as whatever the judge handles here is the arm's:
    what it can't handle must not end the run."""

    __slots__ = ("_arm",)

    def __init__(self, arm: str) -> None:
        self._arm = arm

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, ArmFailure):
            raise ArmFailed(self._arm, error) from error
        if isinstance(error, Gone):
            raise ArmFailed(self._arm, ArmFailure("crash", "run", str(error))) from error
        if isinstance(error, Exception) and not isinstance(error, ArmFailed | UserError):
            raise ArmFailed(self._arm, unexpected(error)) from error


def fork_all(
    templates: Mapping[str, Template],
    program: Effects,
    calls: int,
    cores: Cores,
    rehearse: bool = False,
    audited: Collection[str] = (),
) -> dict[str, Runner]:
    """A runner per arm, stopped, for blocks of up to ``calls`` calls on the arms' cores.

    With ``rehearse`` each has run a block on what the input pages hold, all at once on the cores where they were
    forked: what a process touches first takes longer than the calls themselves.
    All get the same place in memory, another one every time: two runners of one program then differ by nothing.
    Raises ArmFailed for the first arm that fails, once no other's answer is left unread; there are no runners then.
    """
    _spread(templates, cores.forking)
    place, failed = secrets.randbits(32), list[ArmFailed]()
    forks: dict[str, Fork] = {}
    for arm, template in templates.items():
        with _noting(arm, failed):
            forks[arm] = template.start_fork(program, calls, place, rehearse, audit=arm in audited)
    begun: list[str] = []
    for arm in sorted(forks, key=lambda arm: templates[arm].cores <= cores.judge):  # what forks there delays us
        with _noting(arm, failed):
            forks[arm].begin()
            begun.append(arm)
    return _all_of({arm: forks[arm] for arm in begun}, program, cores, failed)


def _all_of(
    forks: Mapping[str, Fork], program: Effects, cores: Cores, failed: list[ArmFailed]
) -> dict[str, Runner]:
    """The runners, once all of them are there; none where any arm failed, or did so before."""
    width = min(program.outputs + len(program.mutated), MAX_OUTPUTS)
    runners: dict[str, Runner] = {}
    for arm, fork in forks.items():
        with _noting(arm, failed):
            runners[arm] = fork.wait(cores.arms)
            if runners[arm].hello["width"] != width:
                raise ArmFailure("integrity", "fork", "the runner's tables are not as wide as they were ordered")
    if failed:
        for runner in runners.values():
            runner.close()
        raise failed[0]
    return runners


def _spread(templates: Mapping[str, Template], cores: Sequence[int]) -> None:
    """Let chance say which template forks on which core: the pages that a process gave back are given out again on
    the core where it ended, and an arm that always got them would be as fast or slow as they are, pair after pair.
    """
    order = secrets.SystemRandom().sample(cores, len(cores))
    for template, core in zip(templates.values(), cycle(order)):
        template.pin(core)


@contextmanager
def _noting(arm: str, failed: list[ArmFailed]) -> Iterator[None]:
    try:
        with blaming(arm):
            yield
    except ArmFailed as failure:
        failed.append(failure)
