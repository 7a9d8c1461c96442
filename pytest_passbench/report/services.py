"""Texts for CI services: GitHub's annotations and job summary, GitLab's code-quality report."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePath

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.run import Run
from pytest_passbench.report import comment, markdown
from pytest_passbench.report.notices import Notice, behind, failures

MAX_ANNOTATIONS = 10  # GitHub shows no more errors, and no more warnings, of a step
MAX_SUMMARY_BYTES = 1 << 20  # of a step's summary
MAX_TEXT = 1_000
_CUT = "\n\nCut here: GitHub takes 1 MiB. results.md has the rest.\n"
_SEVERITIES = ("blocker", "critical", "critical", "major", "major", "minor", "info")  # by Notice.severity


def workflow_commands(run: Run, workspace: str = "") -> list[str]:
    """Return workflow commands: an error for each failed task, a warning for each one slower than the reference.

    The worst comes first. There are at most ten of each; the tenth then counts the others. ``workspace`` is the
    checkout's folder, from which GitHub counts paths.
    """
    errors = _commands("error", failures(run), "failed", workspace)
    return errors + _commands("warning", behind(run), "are slower than the reference", workspace)


def _commands(level: str, found: list[Notice], what: str, workspace: str) -> list[str]:
    shown = found if len(found) <= MAX_ANNOTATIONS else found[: MAX_ANNOTATIONS - 1]
    lines = [_command(level, one, workspace) for one in shown]
    if len(shown) < len(found):
        rest = found[len(shown) :]
        subgraphs = counted(sum(one.count for one in rest), "subgraph")
        text = f"{len(rest)} more tasks {what} ({subgraphs}): see results.md"
        lines.append(f"::{level} title=passbench::{data(text)}")
    return lines


def _command(level: str, one: Notice, workspace: str) -> str:
    file = quoted(line(_relative(one.file, workspace), MAX_TEXT))
    title = quoted(line(f"passbench: {one.task} [{one.candidate}]", MAX_TEXT))
    return f"::{level} file={file},line={one.line},title={title}::{data(line(one.text, MAX_TEXT))}"


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


def job_summary(run: Run, room: int = MAX_SUMMARY_BYTES) -> str:
    """Return the comment and the whole report as Markdown of at most ``room`` bytes, cut at the end of a line."""
    text = comment.render(run) + "\n" + markdown.render(run)
    if len(text.encode()) <= room:
        return text
    kept = text.encode()[: max(0, room - len(_CUT.encode()))].decode(errors="ignore")
    return kept.rpartition("\n")[0] + _CUT if kept else ""


def code_quality(run: Run, workspace: str = "") -> str:
    """Return GitLab's code-quality report: a JSON list with an issue for each failed task."""
    return json.dumps([_issue(one, workspace) for one in failures(run)], indent=1) + "\n"


def _issue(one: Notice, workspace: str) -> dict[str, object]:
    mark = "\0".join([one.task, one.candidate, one.status])
    return {
        "description": line(f"{one.task}: {one.text}", MAX_TEXT),
        "check_name": f"passbench-{one.status}",
        "fingerprint": hashlib.sha256(mark.encode(errors="surrogatepass")).hexdigest(),
        "severity": _SEVERITIES[one.severity],
        "location": {"path": line(_relative(one.file, workspace), MAX_TEXT), "lines": {"begin": one.line}},
    }
