"""The libraries that cases come from. A source has ``LIBRARY``, ``LICENSE`` and ``cases()``; not installed: no cases."""

from __future__ import annotations

from . import transformers

SOURCES = (transformers,)
