"""Pages of HTML that need no network. Those of boards and profiles have their templates in this folder."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_passbench.core.escape import LINES, line, printable

FOLDER = Path(__file__).parent


def environment(folder: Path) -> Environment:
    """Return the environment of the templates in a folder.

    Texts are escaped, and characters that could hide or reorder others are spelt out. A value that is missing is an
    error.
    """
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_inert,
    )
    templates.filters["plain"] = lambda text: line(str(text), 500)
    return templates


def _inert(value: Any) -> Any:
    return printable(value, LINES) if isinstance(value, str) and not isinstance(value, Markup) else value


def render(template: str, title: str, script: str = "", **values: Any) -> str:
    """Return the page of a template in this folder, with its only script inside."""
    policy = source_hash(script) if script else "'none'"
    page = environment(FOLDER).get_template(template)
    return page.render(title=title, script=Markup(script), script_hash=policy, **values)


def with_sorting(path: Path) -> str:
    """Return the script of sortable tables, followed by a page's own script."""
    return "".join(file.read_text(encoding="utf-8") for file in (FOLDER / "sorting.js", path))


def source_hash(text: str) -> str:
    """Return the source expression of a Content-Security-Policy for an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
