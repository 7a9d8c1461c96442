"""A run in CI: the output for GitHub and GitLab beside the terminal's text. Outside of CI, this does nothing.

GitHub takes annotations and a job summary, GitLab a code-quality report.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path, PurePath
from typing import Any

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


def on_github() -> bool:
    """Return True in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


class Commands:
    """The workflow commands of GitHub, which are stopped while text of candidates may be printed.

    GitHub takes commands from any line of a job's output. Only this process knows the token that allows them again.
    """

    def __init__(self) -> None:
        self._token = ""
        #: This plugin's own commands, which are written once GitHub takes commands again.
        self.at_the_end: list[str] = []

    def stop(self, reporter: Any) -> None:
        """Have GitHub take no commands from here on."""
        if on_github() and reporter is not None and not self._token:
            self._token = f"passbench-{secrets.token_hex(16)}"
            reporter.ensure_newline()
            reporter.write_line(f"::stop-commands::{self._token}")

    def resume(self, reporter: Any) -> None:
        """Have GitHub take commands again, and give it our own. Nothing of a candidate may be printed after this."""
        if self._token and reporter is not None:
            reporter.ensure_newline()
            for command in (f"::{self._token}::", *self.at_the_end):
                reporter.write_line(command)
            self._token, self.at_the_end = "", []


def tell(report: Report, folder: Path | None) -> tuple[list[str], list[str]]:
    """Write the files that the service reads. Return workflow commands, and a message for each failed write."""
    commands: list[str] = []
    failed: list[str] = []
    if on_github():
        commands = workflow_commands(report, os.environ.get("GITHUB_WORKSPACE", ""))
        failed += _append_summary(report)
    if os.environ.get("GITLAB_CI") == "true" and folder is not None:
        try:
            workspace = os.environ.get("CI_PROJECT_DIR", "")
            text = json.dumps([_issue(item, workspace) for item in report.failures], indent=1) + "\n"
            (folder / "code-quality.json").write_text(text)
        except OSError as error:
            failed.append(f"code-quality.json was not written: {error.strerror}")
    return commands, failed


def _append_summary(report: Report) -> list[str]:
    """Append to the job's summary, up to GitHub's limit. Return why it could not be written, if it could not."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return []
    path = Path(name)
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(job_summary(report, MAX_SUMMARY_BYTES - used))
    except OSError as error:
        return [f"the job summary was not written: {error.strerror}"]
    return []


def workflow_commands(report: Report, workspace: str) -> list[str]:
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
        lines.append(f"::{level} title=passbench::{_escaped(text)}")
    return lines


def _command(level: str, annotation: Annotation, workspace: str) -> str:
    file = _quoted(line(_relative(annotation.file, workspace), MAX_TEXT))
    title = _quoted(line(f"passbench: {annotation.task} [{annotation.candidate}]", MAX_TEXT))
    return f"::{level} file={file},line={annotation.line},title={title}::{_escaped(line(annotation.text, MAX_TEXT))}"


def _relative(file: str, base: str) -> str:
    """Return a file below a folder by its path from there, or as it is."""
    path = PurePath(file)
    return str(path.relative_to(base)) if base and path.is_relative_to(base) else file


def _escaped(text: str) -> str:
    """Return text as the message of a workflow command: it can neither end the command nor begin another."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _quoted(text: str) -> str:
    """Return text as a property of a workflow command."""
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def job_summary(report: Report, room: int) -> str:
    """Return the comment and the whole report as Markdown of at most ``room`` bytes, cut at the end of a line."""
    text = markdown.comment(report) + "\n" + markdown.render(report)
    if len(text.encode()) <= room:
        return text
    start = text.encode()[: max(0, room - len(_CUT.encode()))].decode(errors="ignore")
    return start.rpartition("\n")[0] + _CUT if start else ""


def _issue(annotation: Annotation, workspace: str) -> dict[str, object]:
    """Return a failed task as an issue of GitLab's code-quality report."""
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
