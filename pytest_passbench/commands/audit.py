"""``passbench audit``: read a candidate's sources, without running them. Imports no torch."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_passbench.report.record import Finding


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("audit", help="read a candidate's sources for violations", description=__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="a pass directory, or a folder of them")
    parser.add_argument("--policy", choices=("kernels", "open"), default="kernels", help="default: kernels")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; 1 where there is a violation among them."""
    from pytest_passbench.candidate.audit import audit

    findings = audit(args.directory, args.policy)
    if args.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=1))
    else:
        print(render(findings))
    return int(any(finding.severity == "violation" for finding in findings))


def render(findings: Sequence[Finding]) -> str:
    """One line per finding, and a count."""
    lines = [f"{f.file}:{f.line}: {f.severity} [{f.rule}] {f.message}" for f in findings]
    violations = sum(f.severity == "violation" for f in findings)
    lines.append(f"{violations} violations, {len(findings) - violations} warnings")
    return "\n".join(lines)
