"""The libraries that cases of the suite come from. A library that is not installed has no cases."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_passbench.core.errors import UserError
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.sources import tables, timm, transformers
from pytest_passbench.forge.sources.rows import Library

SOURCES = (
    Library(transformers.LIBRARY, transformers.LICENSE, transformers.cases),
    *tables.LIBRARIES,
    Library(timm.LIBRARY, timm.LICENSE, timm.cases),
)


def all_cases() -> list[ModelCase]:
    """Return the cases of all source libraries that are installed."""
    return [case for source in SOURCES for case in source.cases()]


def pick(names: Iterable[str]) -> list[ModelCase]:
    """Return the cases of these names (``library/architecture``). Raises UserError for an unknown name."""
    cases_by_name = {case.name: case for case in all_cases()}
    missing = [name for name in names if name not in cases_by_name]
    if missing:
        raise UserError(f"no such architecture: {', '.join(missing)}", remedy="see `passbench forge --list`")
    return [cases_by_name[name] for name in names]
