"""Results files of schema ``passbench/1``, in the form of today's schema."""

from __future__ import annotations

from typing import Any

from pytest_passbench.core.record import RAN

SCHEMA_1 = "passbench/1"

_OLD_RAN = "correct"  # the status of schema 1 for an arm that ran to its end, however wrong its answer was


def upgraded(data: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of a file of schema 1 as today's schema has them: ``ran`` as status, t in every record.

    Raises KeyError, TypeError or AttributeError on a form that is not ours.
    """
    settings = data.get("settings", {})
    known = {"tolerance": settings["tolerance"]} if "tolerance" in settings else {}
    return {**data, "records": [{**_record(record), **known} for record in data["records"]]}


def _record(data: dict[str, Any]) -> dict[str, Any]:
    baselines = {name: _arm(arm) for name, arm in data.get("baselines", {}).items()}
    return {**data, "arm": _arm(data["arm"]), "baselines": baselines}


def _arm(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "status": RAN} if data.get("status") == _OLD_RAN else data
