"""Pages of HTML that need no network, each from its template in this folder. Their style is that of ``base.html``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_passbench.core.escape import line
from pytest_passbench.report.html.render import source_hash

FOLDER = Path(__file__).parent


def render(template: str, title: str, script: str = "", **values: Any) -> str:
    """Return the page of a template, with its only script inside."""
    files = FileSystemLoader(FOLDER)
    environment = Environment(
        loader=files, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = lambda text: line(str(text), 500)
    policy = source_hash(script) if script else "'none'"
    return environment.get_template(template).render(title=title, script=Markup(script), script_hash=policy, **values)
