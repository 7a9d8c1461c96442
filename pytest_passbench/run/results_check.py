"""Checks of a results file's contents: by the published schema, and for impossible values.

The schema is ``results.schema.json`` beside this module. Scores, merging and plans depend on the checked values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sized
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator

from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import HARNESS_FAIL, RAN, ArmResult, Key, Record, Speed
from pytest_passbench.core.run import Run

SCHEMA_FILE = Path(__file__).with_name("results.schema.json")
MAX_LOG = 100.0  # of the ratio of two blocks' times
_NUMBER = {"$ref": "#/$defs/number"}


def fault(run: Run) -> str | None:
    """Return a text on the first impossible value, with its place; None if there is none."""
    return next(_faults(run), None)


def _faults(run: Run) -> Iterator[str]:
    if any("\0" in str(path) for path in run.settings.get("tasks") or ()):
        yield "settings.tasks: a path with NUL"
    part, parts = run.settings.get("shard") or (1, 1)
    if part > parts:
        yield f"settings.shard: {part} of {parts}"
    width = run.noise.get("width", 0.0)
    if not width >= 0:
        yield f"noise.width: {width} is not a width"
    listed = {candidate.get("name") for candidate in run.candidates}
    keys: set[Key] = set()
    for index, record in enumerate(run.records):
        if record.key in keys:
            yield f"records[{index}]: {record.task}/{record.subgraph} of {record.candidate} a second time"
        keys.add(record.key)
        if listed and record.candidate not in listed:
            yield f"records[{index}].candidate: {abbreviated(record.candidate)} is not among the candidates"
        yield from (f"records[{index}].{fault}" for fault in _of_record(record))


def _of_record(record: Record) -> Iterator[str]:
    if not record.judged and (record.arm.speed is not None or record.arm.correct_from or record.baselines):
        yield "arm.status: harness_fail, though it was judged"
    if any(error < 0 for error in record.eager_error64):
        yield "eager_error64: an error below 0"
    for name, arm in record.baselines.items():
        if arm.status == HARNESS_FAIL:
            yield f"baselines.{name}.status: harness_fail is a status of a whole subgraph, not of one program"
        if record.arm.status == arm.status == RAN and not arm.correct_from:
            yield f"baselines.{name}.correct_from: empty, though it ran beside the candidate"
    if sum(item.arm.speed is not None for item in record.held_out) > 1:
        yield "held_out: more than one of the sizes was measured"
    if record.arm.status == RAN and not record.arm.correct_from:
        yield "arm.correct_from: empty, though the candidate ran"
    arms = [("arm", record.arm, record.dtypes)]
    arms += [(f"baselines.{name}", arm, record.dtypes) for name, arm in record.baselines.items()]
    arms += [(f"held_out[{index}].arm", item.arm, item.dtypes) for index, item in enumerate(record.held_out)]
    speeds: list[tuple[str, Speed | None]] = []
    if record.stored is not None:
        speeds += [("stored.speed", record.stored.speed), ("stored.again", record.stored.again)]
    if record.against is not None:
        arms.append(("against.arm", record.against.arm, record.dtypes))
        speeds.append(("against.speed", record.against.speed))
        if record.against.arm.status == HARNESS_FAIL:
            yield "against.arm.status: harness_fail is a status of a whole subgraph, not of one program"
        if record.against.speed is not None and (record.arm.speed is None or record.against.arm.speed is None):
            yield "against.speed: a ratio, though one of the two speeds was not measured"
    for name, arm, dtypes in arms:
        yield from (f"{name}.{fault}" for fault in _of_arm(arm, len(dtypes)))
    for name, speed in speeds:
        yield from (f"{name}.{fault}" for fault in (_of_speed(speed) if speed is not None else ()))


def _of_arm(arm: ArmResult, outputs: int) -> Iterator[str]:
    if arm.status == RAN and outputs and len(arm.correct_from) not in (0, outputs):
        yield f"correct_from: {counted(len(arm.correct_from), 'value')}, and {counted(outputs, 'output')}"
    if any(error < 0 for error in arm.error64):
        yield "error64: an error below 0"
    for name in ("greatest_ratio64", "mean_ratio64"):
        ratios = getattr(arm, name)
        if ratios and outputs and len(ratios) != outputs:
            yield f"{name}: {counted(len(ratios), 'value')}, and {counted(outputs, 'output')}"
        if any(ratio < 0 for ratio in ratios):
            yield f"{name}: a ratio below 0"
    if arm.speed is not None:
        yield from (f"speed.{fault}" for fault in _of_speed(arm.speed))


def _of_speed(speed: Speed) -> Iterator[str]:
    if not 0.0 <= speed.low <= speed.high:
        yield f"low: {speed.low} to {speed.high} is not an interval"
    if not all(-MAX_LOG <= ratio <= MAX_LOG for pair in speed.pairs for ratio in pair):
        yield f"pairs: not all of them are logarithms of ratios, {-MAX_LOG:g} to {MAX_LOG:g}"


def schema_fault(data: Any) -> str | None:
    """Return a text on the first part of a results file's contents that breaks the schema; None if there is none."""
    error = next(_validator().iter_errors(data), None)
    if error is None:
        return None
    while error.context:  # if a value may be null, its other form comes last in the schema
        error = error.context[-1]
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    place = "".join(steps).removeprefix(".")  # as records[3].arm.status
    return f"{place or 'the file'}: {_violation(error)}"


@cache
def _validator() -> Validator:
    base = jsonschema.Draft202012Validator
    by_item = base.VALIDATORS["items"]

    def items(validator: Validator, form: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        # A file has a million numbers in lists: the library would take ten times as long to look at each by itself.
        numbers = form == _NUMBER and isinstance(instance, list)
        if not numbers or not all(type(value) is float or type(value) is int for value in instance):
            yield from by_item(validator, form, instance, schema)

    def maximum(validator: Validator, most: float, instance: Any, _schema: Any) -> Iterator[ValidationError]:
        if validator.is_type(instance, "number") and not instance <= most:  # the library lets NaN pass
            yield ValidationError("")

    kind: Any = jsonschema.validators.extend(base, {"items": items, "maximum": maximum})  # type: ignore[no-untyped-call]
    return cast(Validator, kind(json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))))


def _violation(error: ValidationError) -> str:
    """Return what is wrong, with the value shortened: the library's own sentence quotes the whole value."""
    expected = error.validator_value
    match error.validator:
        case "required" | "additionalProperties":
            return error.message[:300]
        case "type":
            return f"{abbreviated(error.instance)} is not of type {expected}"
        case "enum" | "const":
            return f"{abbreviated(error.instance)} is not {abbreviated(expected)}"
        case "maxItems" | "maxProperties":
            return f"has {len(cast(Sized, error.instance)):,} entries, more than {expected:,}"
        case _:
            return f"{abbreviated(error.instance)} breaks {error.validator} {abbreviated(expected)}"
