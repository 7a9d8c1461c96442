"""Properties of this machine that hurt timings or the sandbox, each with its remedy. The package imports no torch."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_passbench.doctor import checks
from pytest_passbench.doctor.machine import Check, MachineProbe

__all__ = ["Check", "MachineProbe", "summary", "text"]

_CHECKS = (
    checks.governor, checks.turbo, checks.siblings, checks.power,
    checks.load, checks.busy, checks.quota, checks.steal,
    checks.gpu,
    checks.bubblewrap, checks.user_namespaces, checks.memory_reading,
)  # fmt: skip


def summary(machine: MachineProbe | None = None) -> list[Check]:
    """Return every check's finding, in a fixed order. It takes about 0.3 s, and never raises for facilities that
    are missing.
    """
    where = machine if machine is not None else MachineProbe()
    return [result for check in _CHECKS if (result := check(where)) is not None]


def text(findings: Iterable[Check]) -> str:
    """Return one line per check, and its remedy below each check that needs one."""
    lines = []
    for check in findings:
        lines.append(f"{check.level:8} {check.name:16} {check.found}")
        if check.remedy and check.level in ("warning", "problem"):
            lines.append(f"{'':8} {'':16} -> {check.remedy}")
    return "\n".join(lines)
