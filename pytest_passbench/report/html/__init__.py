"""``report.html``: a run as one page for a browser, which needs no network.

``model`` has the values of its template, ``subgraphs`` those of its script. :func:`page` puts them
together: one file, with its style, its script and its data inside, and a policy that allows no request.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup

from pytest_passbench.core.escape import LINES, printable
from pytest_passbench.report import pages, run_text
from pytest_passbench.report.html import model
from pytest_passbench.report.html.subgraphs import details
from pytest_passbench.report.report import Report

NAME = "report.html"
TEMPLATES = Path(__file__).parent / "templates"
MAX_PAGE_BYTES = 2_900_000
AMOUNTS = ((400, 4000), (250, 2000), (120, 1000), (60, 500), (0, 250))
"""The most rounds of a subgraph, and characters of a text, that are shown: the first pair that makes the page fit."""


def page(report: Report) -> str:
    """Return the run as a page of HTML, complete in itself.

    Rounds and long texts are thinned out until the page has at most :data:`MAX_PAGE_BYTES`.
    """
    tasks = list(model.rows(report.run))
    values = model.values(report, tasks)
    records = [record for task in tasks for record in task.records]
    text = ""
    for rounds, characters in AMOUNTS:
        data = {
            **details(records, rounds, characters),
            "tasks": [[task.key, task.start, len(task.records)] for task in tasks],
            "commands": [run_text.command(report.run, task.candidate, task.name) for task in tasks],
        }
        text = _render(values, data)
        if len(text) <= MAX_PAGE_BYTES and len(text.encode()) <= MAX_PAGE_BYTES:
            break
    return text


def _render(values: dict[str, Any], data: dict[str, Any]) -> str:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    script = pages.with_sorting(TEMPLATES / "script.js")
    template = pages.environment(TEMPLATES).get_template("page.html.j2")
    return template.render(
        **values,
        style=Markup(style),
        style_hash=pages.source_hash(style),
        script=Markup(script),
        script_hash=pages.source_hash(script),
        data=htmlsafe_json_dumps(_inert_data(data), separators=(",", ":"), allow_nan=False),
    )


def _inert_data(data: Any) -> Any:
    if isinstance(data, str):
        return printable(data, LINES)
    if isinstance(data, dict):
        return {name: _inert_data(item) for name, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_inert_data(item) for item in data]
    return data
