"""The sandboxes of a judge: one per arm, and one for readers."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.arm import Arm, ArmSettings
from pytest_passbench.judge.arms.names import CANDIDATE, EAGER, REFERENCE, TWIN
from pytest_passbench.judge.arms.sandbox import Walls
from pytest_passbench.protocol import READ


class Sandboxes:
    """The arms' sandboxes of one judge. They start when they are first needed, and again if one has ended."""

    def __init__(self, settings: Settings, walls: Walls) -> None:
        self._settings, self._walls = settings, walls
        self._arms: dict[str, Arm] = {}

    def arms(self, names: Iterable[str]) -> dict[str, Arm]:
        """Return the sandboxes of these arms, in this order. New ones start side by side."""
        ordered = tuple(names)
        for name in ordered:
            if name in self._arms and not self._arms[name].alive:
                self._arms.pop(name).close()
            if name not in self._arms:
                pipeline = "inductor" if name in self._settings.baselines else self._settings.pipeline
                sandbox = EAGER if name == TWIN else name
                self._arms[name] = Arm(self._for_arm(sandbox, pipeline, judged=name in (CANDIDATE, REFERENCE)))
        return {name: self._arms[name] for name in ordered}

    def start_reading(self) -> Arm:
        """Start a sandbox for readers. It ends when its caller closes it."""
        return Arm(self._for_arm("reader", READ))

    def _for_arm(self, name: str, pipeline: str, judged: bool = False) -> ArmSettings:
        return ArmSettings(
            name=name,
            device=self._settings.device,
            threads=self._settings.threads,
            pipeline=pipeline,
            walls=self._walls,
            timeout=self._settings.timeout,
            judged=judged,
        )

    def close(self) -> None:
        """End the arms' sandboxes."""
        for arm in self._arms.values():
            arm.close()
        self._arms = {}
