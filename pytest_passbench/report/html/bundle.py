"""The JavaScript of Vega, Vega-Lite and Vega-Embed, as the package vl-convert-python ships it.

It comes from a process of its own: a JavaScript engine makes the text, with threads and memory that a process which
judges should not have. That takes seconds, so the text is kept in the user's cache, by the package's version.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from pytest_passbench.core.cache import user_cache
from pytest_passbench.kernels.cache_folders import is_private

PACKAGE = "vl-convert-python"
REMEDY = f"pip install {PACKAGE}"
TIMEOUT_SECONDS = 120.0
MAX_BYTES = 4 << 20
_MODULE = "vl_convert"
_END = "window.vegaEmbed="
_PROGRAM = f"import sys, {_MODULE}; sys.stdout.buffer.write({_MODULE}.javascript_bundle().encode())"


@cache
def javascript() -> str | None:
    """Return the library's text, or None if the package is not installed or cannot make it."""
    if find_spec(_MODULE) is None:
        return None
    kept = _kept()
    text = _read(kept) if kept is not None else None
    if text is None:
        text = _made()
        if text is not None and kept is not None:
            _keep(kept, text)
    return text


def _made() -> str | None:
    command = [sys.executable, "-P", "-c", _PROGRAM]
    try:
        done = subprocess.run(command, capture_output=True, timeout=TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return _checked(done.stdout)


def _checked(data: bytes) -> str | None:
    """Return the text if it is the whole library, and can stand in a script element."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    lowered = text.lower()
    whole = len(data) <= MAX_BYTES and _END in text[-1000:] and "</script" not in lowered and "<!--" not in lowered
    return text if whole else None


def _kept() -> Path | None:
    """Return the file in the user's cache; None if there is no such folder, or if others may write to it."""
    folder = user_cache("report")
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder / f"vega-{metadata.version(PACKAGE)}.js" if is_private(folder) else None


def _read(path: Path) -> str | None:
    try:
        return _checked(path.read_bytes())
    except OSError:
        return None


def _keep(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
