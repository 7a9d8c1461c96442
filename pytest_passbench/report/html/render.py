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
from pytest_passbench.core.run import Run
from pytest_passbench.report import charts, rerun
from pytest_passbench.report.html import bundle, model
from pytest_passbench.report.html.details import details
from pytest_passbench.report.html.glyphs import GLYPH_PIXELS

NAME = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
MAX_PAGE_BYTES = 2_900_000

AMOUNTS = ((400, 4000), (250, 2000), (120, 1000), (60, 500), (0, 250))
"""Rounds of a subgraph, and characters of a text, that are shown at most: the first with which the page is small."""


def page(run: Run) -> str:
    """Return the run as a page of HTML, complete in itself.

    It has charts if :func:`bundle.javascript` has the library for them; otherwise it says how to get them. Rounds and
    long texts are thinned out until the page has at most :data:`MAX_PAGE_BYTES`.
    """
    found = model.model(run)
    records = [record for task in found.tasks for record in task.records]
    library = bundle.javascript()
    text = ""
    for rounds, characters in AMOUNTS:
        data = {
            **details(records, rounds if library else 0, characters),
            "tasks": [[task.key, task.start, len(task.records)] for task in found.tasks],
            "commands": [rerun.command(run, task.candidate, task.name) for task in found.tasks],
            "charts": _charts(run, found) if library else {},
        }
        text = _render(found, _json(data), library)
        if len(text) <= MAX_PAGE_BYTES and len(text.encode()) <= MAX_PAGE_BYTES:
            break
    return text


def _charts(run: Run, found: model.Page) -> dict[str, Any]:
    """Return the specifications of the charts by the ids of their places in the page."""
    forests = {}
    for index, candidate in enumerate(run.names):
        tasks = [task for task in found.tasks if task.candidate == candidate and task.interval is not None]
        rows = [charts.Row(task.name, task.interval, task.key) for task in tasks if task.interval is not None]
        if rows:
            forests[f"forest-{index}"] = charts.forest(rows, model.overall(run, candidate))
    return {"es": charts.es_curves(run), **forests, "rounds": charts.rounds()}


def _render(found: model.Page, data: str, library: str | None) -> str:
    files = {name: (TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "script.js")}
    scripts = [script for script in (library, files["script.js"]) if script is not None]
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src {' '.join(map(_hash, scripts))}",
            f"style-src {_hash(files['style.css'])}",
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
        page=found,
        policy=policy,
        style=Markup(files["style.css"]),
        scripts=[Markup(script) for script in scripts],
        data=Markup(data),
        charted=library is not None,
        remedy=bundle.REMEDY,
        pixels=GLYPH_PIXELS,
    )


def _inert(value: Any) -> Any:
    """Return a text with all characters spelt out that could hide or reorder others; escaping comes after it."""
    return printable(value, LINES) if isinstance(value, str) and not isinstance(value, Markup) else value


def _hash(text: str) -> str:
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
