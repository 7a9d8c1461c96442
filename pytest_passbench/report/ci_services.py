"""Texts for CI services: GitHub's annotations and job summary, GitLab's code-quality report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import PurePath

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.report import markdown
from pytest_passbench.report.ci_annotations import Annotation
from pytest_passbench.report.report import Report

MAX_ANNOTATIONS = 10  # GitHub shows no more errors, and no more warnings, of a step
MAX_SUMMARY_BYTES = 1 << 20  # of a step's summary
MAX_TEXT = 1_000
_CUT = "\n\nCut here: GitHub takes 1 MiB. results.md has the rest.\n"
_SEVERITIES = ("blocker", "critical", "critical", "major", "major", "minor", "info")  # by Annotation.severity


def workflow_commands(report: Report, workspace: str = "") -> list[str]:
    """Return workflow commands: an error for each failed task, a warning for each one slower than the reference.

    The worst comes first. There are at most ten of each; the tenth then counts the others. ``workspace`` is the
    checkout's folder, from which GitHub counts paths.
    """
    errors = _commands("error", report.failures, "failed", workspace)
    return errors + _commands("warning", report.behind, "are slower than the reference", workspace)


def _commands(level: str, annotations: Sequence[Annotation], what: str, workspace: str) -> list[str]:
    first = annotations if len(annotations) <= MAX_ANNOTATIONS else annotations[: MAX_ANNOTATIONS - 1]
    lines = [_command(level, annotation, workspace) for annotation in first]
    if len(first) < len(annotations):
        rest = annotations[len(first) :]
        subgraphs = counted(sum(annotation.count for annotation in rest), "subgraph")
        text = f"{len(rest)} more tasks {what} ({subgraphs}): see results.md"
        lines.append(f"::{level} title=passbench::{data(text)}")
    return lines


def _command(level: str, annotation: Annotation, workspace: str) -> str:
    file = quoted(line(_relative(annotation.file, workspace), MAX_TEXT))
    title = quoted(line(f"passbench: {annotation.task} [{annotation.candidate}]", MAX_TEXT))
    return f"::{level} file={file},line={annotation.line},title={title}::{data(line(annotation.text, MAX_TEXT))}"


def _relative(file: str, base: str) -> str:
    """Return a file below a folder by its path from there, or as it is."""
    path = PurePath(file)
    return str(path.relative_to(base)) if base and path.is_relative_to(base) else file


def data(text: str) -> str:
    """Return text as the message of a workflow command: it can neither end the command nor begin another."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def quoted(text: str) -> str:
    """Return text as a property of a workflow command."""
    return data(text).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: Report, room: int = MAX_SUMMARY_BYTES) -> str:
    """Return the comment and the whole report as Markdown of at most ``room`` bytes, cut at the end of a line."""
    text = markdown.comment(report) + "\n" + markdown.render(report)
    if len(text.encode()) <= room:
        return text
    start = text.encode()[: max(0, room - len(_CUT.encode()))].decode(errors="ignore")
    return start.rpartition("\n")[0] + _CUT if start else ""


def code_quality(report: Report, workspace: str = "") -> str:
    """Return GitLab's code-quality report: a JSON list with an issue for each failed task."""
    return json.dumps([_issue(item, workspace) for item in report.failures], indent=1) + "\n"


def _issue(annotation: Annotation, workspace: str) -> dict[str, object]:
    mark = "\0".join([annotation.task, annotation.candidate, annotation.status])
    return {
        "description": line(f"{annotation.task}: {annotation.text}", MAX_TEXT),
        "check_name": f"passbench-{annotation.status}",
        "fingerprint": hashlib.sha256(mark.encode(errors="surrogatepass")).hexdigest(),
        "severity": _SEVERITIES[annotation.severity],
        "location": {
            "path": line(_relative(annotation.file, workspace), MAX_TEXT),
            "lines": {"begin": annotation.line},
        },
    }
