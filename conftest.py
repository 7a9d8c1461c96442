"""Lets ``pytest --passbench`` work from a bare checkout, where nobody has installed the plugin."""

from __future__ import annotations

from importlib.metadata import entry_points

_INSTALLED = any(entry.value.startswith("pytest_passbench") for entry in entry_points(group="pytest11"))
pytest_plugins = ["pytester"] if _INSTALLED else ["pytester", "pytest_passbench.plugin"]
