"""``passbench audit``: read a candidate in a sandbox, screen and compile its kernels, and show its launch plans."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_passbench.core.plurals import counted

if TYPE_CHECKING:
    from pytest_passbench.core.record import Finding
    from pytest_passbench.judge.reading.survey import Survey

SEVERITIES = ("violation", "error", "warning")
HELP = """Read a candidate in a sandbox, screen and compile its kernels, and show its launch plans. The exit code is 1
if an error or a violation is shown."""


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("audit", help="look a candidate over without judging it", description=HELP)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a pass directory, or a folder of them")
    parser.add_argument("--policy", choices=("kernels", "open"), default="kernels", help="default: kernels")
    parser.add_argument("--task", metavar="ID|PATH", help="a task: show the launch plans of its matches")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON; with --task the plans too")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings. Return 1 if there is a violation or an error among them, else 0."""
    from pytest_passbench.judge.reading.survey import survey
    from pytest_passbench.suite import find

    found = survey(args.directory, args.policy, find.single(args.task).load() if args.task else None)
    if args.json:
        findings = [asdict(finding) for finding in found.findings]
        plans = [asdict(plan) for plan in found.plans]
        print(json.dumps({"findings": findings, "plans": plans} if args.task else findings, indent=1))
    else:
        print(render(found))
    return int(found.faulty)


def render(found: Survey) -> str:
    """Return one line per finding and per step of a plan, and counts."""
    from pytest_passbench.core.escape import LINES, printable
    from pytest_passbench.plans.words import steps

    lines = [finding_line(finding) for finding in found.findings]
    for planned in found.plans:
        lines.append(f"{planned.subgraph}: {planned.name}: {counted(len(planned.plan['steps']), 'step')}")
        lines += [f"    {text}" for text in steps(planned.plan)]
    counts = [counted(sum(f.severity == kind for f in found.findings), kind) for kind in SEVERITIES]
    lines.append(", ".join([f"{counted(len(found.passes), 'pass')} read", *counts]))
    return printable("\n".join(lines), LINES)


def finding_line(finding: Finding) -> str:
    """Return a finding with its place, severity and rule."""
    return f"{_place(finding)}{finding.severity} [{finding.rule}] {finding.message}"


def _place(finding: Finding) -> str:
    """Return a finding's file, and its line if that is known, before what is said of it."""
    if not finding.file:
        return ""
    return f"{finding.file}:{finding.line}: " if finding.line else f"{finding.file}: "
