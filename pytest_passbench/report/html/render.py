"""The page as text: one file, with its style, its script and its data inside, and a policy that allows no request."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.report import run_text
from pytest_passbench.report.html import model
from pytest_passbench.report.html.subgraphs import details
from pytest_passbench.report.report import Report

NAME = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
MAX_PAGE_BYTES = 2_900_000

AMOUNTS = ((400, 4000), (250, 2000), (120, 1000), (60, 500), (0, 250))
"""Rounds of a subgraph, and characters of a text, that are shown at most: the first with which the page is small."""


def page(report: Report) -> str:
    """Return the run as a page of HTML, complete in itself.

    Rounds and long texts are thinned out until the page has at most :data:`MAX_PAGE_BYTES`.
    """
    values, run = model.model(report), report.run
    records = [record for task in values.tasks for record in task.records]
    text = ""
    for rounds, characters in AMOUNTS:
        data = {
            **details(records, rounds, characters),
            "tasks": [[task.key, task.start, len(task.records)] for task in values.tasks],
            "commands": [run_text.command(run, task.candidate, task.name) for task in values.tasks],
        }
        text = _render(values, _json(data))
        if len(text) <= MAX_PAGE_BYTES and len(text.encode()) <= MAX_PAGE_BYTES:
            break
    return text


def _render(values: model.Page, data: str) -> str:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = with_sorting(TEMPLATES / "script.js")
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {source_hash(script)}",
            f"style-src {source_hash(style)}",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    return environment.get_template("page.html.j2").render(
        page=values,
        policy=policy,
        style=Markup(style),
        script=Markup(script),
        data=Markup(data),
    )


def _inert(value: Any) -> Any:
    """Return a text with all characters spelt out that could hide or reorder others; escaping comes after it."""
    return printable(value, LINES) if isinstance(value, str) and not isinstance(value, Markup) else value


def with_sorting(path: Path) -> str:
    """Return a page's script behind that of tables that can be sorted."""
    return "".join(file.read_text(encoding="utf-8") for file in (TEMPLATES / "sorting.js", path))


def source_hash(text: str) -> str:
    """Return the source expression of a Content-Security-Policy for an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(data: Any) -> str:
    """Return data as JSON that can stand in a script element: it has no character that HTML gives a meaning."""
    text = json.dumps(_inert_data(data), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _inert_data(data: Any) -> Any:
    if isinstance(data, str):
        return printable(data, LINES)
    if isinstance(data, dict):
        return {name: _inert_data(item) for name, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_inert_data(item) for item in data]
    return data
