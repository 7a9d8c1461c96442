"""The published JSON schema of results files, ``results.schema.json`` beside this module, and the check by it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from pytest_passbench.core.escape import abbreviated

SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
_NUMBER = {"$ref": "#/$defs/number"}


def fault(data: Any) -> str | None:
    """Return in words the first place of a results file's contents that breaks the schema, None if there is none."""
    error = next(_validator().iter_errors(data), None)
    if error is None:
        return None
    while error.context:  # of several forms that a value may have, the last one is that of a value that is there
        error = error.context[-1]
    return f"{_place(error) or 'the file'}: {_violation(error)}"


@cache
def _validator() -> Validator:
    base = jsonschema.Draft202012Validator
    by_item = base.VALIDATORS["items"]

    def items(validator: Validator, form: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        # A file has a million numbers in lists: the library would take ten times as long to look at each by itself.
        numbers = form == _NUMBER and isinstance(instance, list)
        if not numbers or not all(type(value) is float or type(value) is int for value in instance):
            yield from by_item(validator, form, instance, schema)

    kind: Any = jsonschema.validators.extend(base, {"items": items})  # type: ignore[no-untyped-call]
    return cast(Validator, kind(json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))))


def _place(error: ValidationError) -> str:
    """Return the place in the file as ``records[3].arm.status``."""
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    return "".join(steps).removeprefix(".")


def _violation(error: ValidationError) -> str:
    """Return what is wrong, the value shortened: the library's own sentence quotes all of it."""
    expected = error.validator_value
    match error.validator:
        case "required" | "additionalProperties":
            return error.message[:300]
        case "type":
            return f"{abbreviated(error.instance)} is not of type {expected}"
        case "enum" | "const":
            return f"{abbreviated(error.instance)} is not {abbreviated(expected)}"
        case _:
            return f"{abbreviated(error.instance)} breaks {error.validator} {abbreviated(expected)}"
