"""Values as YAML text: the flow style for values, literal blocks for source text."""

from __future__ import annotations

from typing import Any

import yaml

_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_SafeDumper):
    """A dumper that quotes strings with line breaks or control characters, so that a value is one line."""


_Dumper.ignore_aliases = lambda *_: True  # a task file may not have any
_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style=None if text.isprintable() else '"'
    ),
)


def _dump(value: Any, flow: bool) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, default_flow_style=flow, sort_keys=False, width=1 << 30, allow_unicode=True
    )
    return text.strip()


def flow(value: Any) -> str:
    """Return a value in YAML's flow style, on one line."""
    if isinstance(value, str):
        return _dump({"k": value}, flow=False).removeprefix("k:").strip()
    return _dump([list(value) if isinstance(value, tuple) else value], flow=True)[1:-1]


def block(source: str) -> str:
    """Return source text as a literal block, indented by 4, or in quotes if YAML has no literal form of it."""
    mark = "|" if source.endswith("\n") and not source.endswith("\n\n") else "|-"
    body = "\n".join(f"    {line}" if line else "" for line in source.splitlines())
    text = f"{mark}\n{body}"
    try:
        same = yaml.load(f"a: {text}\n", Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) == {"a": source}
    except yaml.YAMLError:
        same = False
    return text if same else flow(source)
