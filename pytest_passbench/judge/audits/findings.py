"""Findings of the audit: functions to make them, add them to a record, describe them, and find their passes."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_passbench.core.record import Finding, Record


def violation(layer: str, rule: str, message: str, file: str = "", line: int = 0) -> Finding:
    """Return a finding that makes the subgraph fail."""
    return Finding(layer, rule, "violation", message, file, line)


def warning(layer: str, rule: str, message: str) -> Finding:
    """Return a finding that has no consequence."""
    return Finding(layer, rule, "warning", message)


def note(record: Record, findings: Iterable[Finding]) -> None:
    """Add findings to a record, each once. A violation sets the status ``integrity`` and removes the speed."""
    for finding in findings:
        if finding not in record.findings:
            record.findings.append(finding)
    first = next((item for item in record.findings if item.severity == "violation"), None)
    if first is not None and record.arm.status not in ("integrity", "eager_fail"):
        record.arm.status, record.arm.phase = "integrity", first.layer
        record.arm.message = describe(first)
        record.arm.speed = None


def describe(finding: Finding) -> str:
    """Return a finding in one line: file and line if known, message, layer and rule."""
    place = f"{finding.place}: " if finding.place else ""
    return f"{place}{finding.message} [{finding.layer}: {finding.rule}]"


def culprits(record: Record) -> set[str]:
    """Return the passes behind a record's violations: those whose files are named, else all that matched."""
    named = {
        finding.file.rpartition("/")[2].removesuffix(".py")
        for finding in record.findings
        if finding.severity == "violation" and finding.file
    }
    return named or {item.name for item in record.passes if item.matches}
