"""Starts new runners of several arms at once. Each template forks on its own core, if there are enough cores."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle

from pytest_passbench.core.errors import UserError
from pytest_passbench.judge.arms.failures import ArmFailure, HarnessFault, fault_line, is_fault, unexpected
from pytest_passbench.judge.arms.names import CANDIDATE
from pytest_passbench.judge.arms.processes import Gone
from pytest_passbench.judge.arms.runner import Runner
from pytest_passbench.judge.arms.template import Fork, ForkOrder, GraphEffects, Template
from pytest_passbench.judge.bench import Bench
from pytest_passbench.protocol import MAX_OUTPUTS


class ArmFailed(Exception):
    """An arm's failure together with the arm's name, which decides what the record says."""

    def __init__(self, arm: str, failure: ArmFailure) -> None:
        self.arm, self.failure = arm, failure
        super().__init__(f"{arm}: {failure}")


class blaming:  # noqa: N801 - used as a function. A class costs half of a generator's context, twice in each block
    """A context that turns exceptions into ArmFailed with the arm's name.

    Any exception counts as the arm's failure: the judge handles the arm's data, and bad data must not end the run.
    The exception to that are faults of the machine, which become HarnessFault.
    """

    __slots__ = ("_arm",)

    def __init__(self, arm: str) -> None:
        self._arm = arm

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and is_fault(error):
            raise HarnessFault(fault_line(error)) from error
        if isinstance(error, ArmFailure):
            raise ArmFailed(self._arm, error) from error
        if isinstance(error, Gone):
            raise ArmFailed(self._arm, ArmFailure("crash", "run", str(error))) from error
        if isinstance(error, Exception) and not isinstance(error, ArmFailed | UserError):
            raise ArmFailed(self._arm, unexpected(error)) from error


def draw_cores(arms: Sequence[str], cores: Sequence[int]) -> dict[str, int]:
    """Return a core for each arm, in the order in which the arms are to fork.

    Chance decides both. The kernel hands out the pages of an ended process again on the core where it ended. An arm
    that always got the same pages, or always those that another one has left, would be as fast or slow as they are,
    in every pair. No core gets two arms more than another core does.
    """
    chance = secrets.SystemRandom()
    return dict(zip(chance.sample(arms, len(arms)), cycle(chance.sample(cores, len(cores))), strict=False))


def fork_all(templates: Mapping[str, Template], order: ForkOrder, bench: Bench) -> dict[str, Runner]:
    """Fork a runner per arm, on the arms' cores, and return them, stopped.

    They rehearse at the same time, on the cores where they were forked, because first touches of memory take longer
    than the calls. Waiting for other arms than the candidate does not count for the case's deadline.
    Raises ArmFailed for the first arm that fails. Then no runner is left, and no other arm's answer is unread.
    """
    cores_of = draw_cores(list(templates), bench.cores.forking)
    for arm, core in cores_of.items():
        templates[arm].pin(core)
    failed, forks = list[ArmFailed](), dict[str, Fork]()
    for arm in cores_of:
        with _noting(arm, failed):
            forks[arm] = templates[arm].start_fork(order)
    begun: list[str] = []
    # Last come the templates on the judge's own cores, since their forks delay the judge.
    for arm in sorted(forks, key=lambda arm: templates[arm].cores <= bench.cores.judge):
        with _noting(arm, failed):
            forks[arm].begin()
            begun.append(arm)
    return _all_of({arm: forks[arm] for arm in begun}, order.program, bench, failed)


def _all_of(
    forks: Mapping[str, Fork], program: GraphEffects, bench: Bench, failed: list[ArmFailed]
) -> dict[str, Runner]:
    """Wait for all runners and return them. Raises the first of ``failed`` if any arm failed now or before."""
    width = min(program.outputs + len(program.mutated), MAX_OUTPUTS)
    runners: dict[str, Runner] = {}
    try:
        for arm, fork in forks.items():
            with _noting(arm, failed):
                with bench.deadline.paused(arm != CANDIDATE):
                    runners[arm] = fork.wait(bench.cores.arms)
                if runners[arm].hello["width"] != width:
                    raise ArmFailure("integrity", "fork", "the runner's tables have another width than was ordered")
        if failed:
            raise failed[0]
    except BaseException:
        for runner in runners.values():
            runner.close()
        for arm in forks.keys() - runners.keys():
            forks[arm].channel.close()
        raise
    return runners


@contextmanager
def _noting(arm: str, failed: list[ArmFailed]) -> Iterator[None]:
    try:
        with blaming(arm):
            yield
    except ArmFailed as failure:
        failed.append(failure)
