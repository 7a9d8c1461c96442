"""The hooks of mkdocs.yml: pages that lie outside this folder, the navigation, and the table of options.

All pages are plain Markdown that GitHub shows as it is. The navigation is the table in ``docs/README.md``, by kind.
The home page is the README of the checkout. ``python docs/site.py`` writes the table of options into
``docs/options.md`` anew; a test says if it is out of date.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent

PAGES = {
    "README.md": "index.md",
    "docs/README.md": "pages.md",
    "candidates/README.md": "candidates.md",
    "CHANGELOG.md": "changelog.md",
}
"""The files that become pages under another name."""

KINDS = {
    "tutorial": "Tutorial", "how-to": "How-to", "reference": "Reference", "concepts": "Concepts", "questions": "FAQ",
}  # fmt: skip
"""The sections of the navigation, by what ``docs/README.md`` calls them. A page of two kinds stands in the first."""

OPTIONS_PAGE = DOCS / "options.md"
_TABLE = re.compile(r"(?<=<!-- options -->\n).*?(?=<!-- end of options -->)", re.S)
_FENCED = re.compile(r"(^```.*?^```$)", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
_ROLE = re.compile(r":(?:func|class|mod|data|attr|meth|exc):<code>~?(?:[\w.]+\.)?(\w+)</code>")


def on_config(config: Any) -> Any:
    """Set the navigation, and make headings' anchors as GitHub does."""
    config.nav = navigation()
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that lie outside this folder."""
    from mkdocs.structure.files import File

    for source, name in PAGES.items():
        text = rewritten((ROOT / source).read_text(encoding="utf-8"), (ROOT / source).parent)
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files outside this folder to the pages that they became, and fill in the table of options."""
    if page.file.src_path in PAGES.values():
        return markdown
    if page.file.src_path == OPTIONS_PAGE.name:
        markdown = filled(markdown)
    return rewritten(markdown, DOCS)


def on_page_content(html: str, **_: Any) -> str:
    """Show names that docstrings mark for Sphinx as code."""
    return _ROLE.sub(r"<code>\1</code>", html)


def navigation() -> list[dict[str, Any]]:
    """Return the pages by kind, as ``docs/README.md`` lists them."""
    rows = re.findall(r"^\| ([\w, -]+) \| \[(.+?)\]\((.+?)\)", (DOCS / "README.md").read_text(encoding="utf-8"), re.M)
    sections: dict[str, list[dict[str, str]]] = {title: [] for title in KINDS.values()}
    for kinds, title, name in rows:
        sections[KINDS[kinds.split(",")[0]]].append({title: name})
    sections["How-to"].append({"Candidates to start from": "candidates.md"})
    nav = [{title: pages if len(pages) > 1 else next(iter(pages[0].values()))} for title, pages in sections.items()]
    return [{"Home": "index.md"}, *nav, {"All pages": "pages.md"}, {"Changelog": "changelog.md"}]


def anchor(heading: str, _separator: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def rewritten(markdown: str, folder: Path) -> str:
    """Return a page of ``folder`` with links that hold within the site; links to other files become plain text."""

    def link(match: re.Match[str]) -> str:
        text, path, place = match[1], match[2], match[3] or ""
        if not path or ":" in path:
            return match[0]
        target = os.path.relpath((folder / path).resolve(), ROOT)
        if (ROOT / target).is_dir():
            target = f"{target}/README.md"
        if target in PAGES:
            return f"[{text}]({PAGES[target]}{place})"
        return f"[{text}]({target.removeprefix('docs/')}{place})" if target.startswith("docs/") else text

    return _outside_code(markdown, lambda prose: _LINK.sub(link, prose))


def filled(markdown: str) -> str:
    """Return the page of options with its table as the options are now."""
    return _TABLE.sub(lambda _: options_table(), markdown)


def options_table() -> str:
    """Return the table of all options of ``pytest --passbench``: one row for each, and how Python calls it."""
    from pytest_passbench.core.options import OPTIONS
    from pytest_passbench.core.settings import Settings
    from pytest_passbench.plugin.options import FLAGS

    known = {field.name for field in fields(Settings)}
    rows = []
    for name, text in FLAGS.items():
        field = name.removeprefix("passbench_")
        rows.append((f"--{name.replace('_', '-')}", field if field in known else "", text))
    for option in OPTIONS:
        value = f"[={option.metavar}]" if option.alone else f" {option.metavar}"
        names = ", ".join(filter(None, [option.short, f"--passbench-{option.name}"]))
        shown = f"{option.dest} = {option.metavar}" if option.ini_only else f"{names}{value}"
        rows.append((shown, option.key, option.text))
    lines = [f"| `{name}` | {f'`{key}`' if key else ''} | {text} |" for name, key, text in rows]
    return "\n".join(["| option | in Python | meaning |", "|---|---|---|", *lines]) + "\n"


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    """Return a page with all but its fenced blocks changed."""
    return "".join(part if part.startswith("```") else change(part) for part in _FENCED.split(markdown))


if __name__ == "__main__":
    OPTIONS_PAGE.write_text(filled(OPTIONS_PAGE.read_text(encoding="utf-8")), encoding="utf-8")
