"""A run in CI: what GitHub and GitLab are told beside the terminal's text. Elsewhere nothing happens here."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from pytest_passbench.report import ci_services
from pytest_passbench.report.report import Report


def on_github() -> bool:
    """Return True in a job of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def on_gitlab() -> bool:
    """Return True in a job of GitLab CI."""
    return os.environ.get("GITLAB_CI") == "true"


class Commands:
    """The workflow commands of GitHub, which are stopped while text of candidates may be printed.

    GitHub takes commands from any line of a job's output. Nobody else knows the token that allows them again.
    """

    def __init__(self) -> None:
        self._token = ""
        #: Commands of our own, for the time when they are taken again.
        self.at_the_end: list[str] = []

    def stop(self, reporter: Any) -> None:
        """Have GitHub take no commands from here on."""
        if on_github() and reporter is not None and not self._token:
            self._token = f"passbench-{secrets.token_hex(16)}"
            reporter.ensure_newline()
            reporter.write_line(f"::stop-commands::{self._token}")

    def resume(self, reporter: Any) -> None:
        """Have GitHub take commands again, and give it our own. Nothing of a candidate may be printed behind this."""
        if self._token and reporter is not None:
            reporter.ensure_newline()
            for command in (f"::{self._token}::", *self.at_the_end):
                reporter.write_line(command)
            self._token, self.at_the_end = "", []


def tell(report: Report, folder: Path | None) -> tuple[list[str], list[str]]:
    """Write what the service reads from files. Return workflow commands, and what could not be written."""
    commands: list[str] = []
    failed: list[str] = []
    if on_github():
        commands = ci_services.workflow_commands(report, os.environ.get("GITHUB_WORKSPACE", ""))
        failed += _append_summary(report)
    if on_gitlab() and folder is not None:
        try:
            text = ci_services.code_quality(report, os.environ.get("CI_PROJECT_DIR", ""))
            (folder / "code-quality.json").write_text(text)
        except OSError as error:
            failed.append(f"code-quality.json was not written: {error.strerror}")
    return commands, failed


def _append_summary(report: Report) -> list[str]:
    """Append to the job's summary, as far as GitHub takes it. Return why it could not be written."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return []
    path = Path(name)
    try:
        used = path.stat().st_size if path.exists() else 0
        with path.open("a", encoding="utf-8") as file:
            file.write(ci_services.job_summary(report, ci_services.MAX_SUMMARY_BYTES - used))
    except OSError as error:
        return [f"the job summary was not written: {error.strerror}"]
    return []
