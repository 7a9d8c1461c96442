"""Checks of single settings: each takes text and returns the value, or raises ArgumentTypeError with one sentence."""

from __future__ import annotations

import math
import re
from argparse import ArgumentTypeError
from collections.abc import Callable

from pytest_passbench.core.escape import abbreviated
from pytest_passbench.core.settings import METRICS

MAX_COUNT = 4096
MAX_EXPONENT = 10.0  # with a larger one, the power of a possible slowdown could underflow


def whole(least: int, most: int) -> Callable[[str], int]:
    """Return a check that lets only integers from ``least`` to ``most`` pass."""

    def check(text: str) -> int:
        if not re.fullmatch("-?[0-9]{1,12}", text) or not least <= int(text) <= most:
            raise ArgumentTypeError(f"{abbreviated(text)} is not an integer from {least} to {most}")
        return int(text)

    return check


count = whole(1, MAX_COUNT)
"""The check of a number of processes or threads: 1 or more, and no more than any machine has."""

tolerance = whole(-10, 0)
"""The check of t."""


def share(text: str) -> float:
    """Return a number from 0 to 1."""
    return _number(text, lambda value: 0 <= value <= 1, "a number from 0 to 1")


def fraction(text: str) -> float:
    """Return a share of 0 or more and below 1, from "3%" or "0.03"."""
    value = _number(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    if not 0 <= value < 1:
        what = f"{abbreviated(text)} is not a share of 0 or more and below 1"
        raise ArgumentTypeError(f"{what}: write it as 3% or 0.03")
    return value


def allowed_loss(text: str) -> tuple[float, bool]:
    """Return the share of a speed-up that may be lost, and whether an open answer fails, from "3%" or "3%,strict"."""
    share_text, comma, word = text.partition(",")
    if comma and word.strip() != "strict":
        raise ArgumentTypeError(f"{abbreviated(word)} is not strict: write 3%, 0.03 or 3%,strict")
    return fraction(share_text.strip()), bool(comma)


def seed(text: str) -> str:
    """Return a text of 1 to 64 hexadecimal digits."""
    if re.fullmatch("[0-9a-fA-F]{1,64}", text) is None:
        raise ArgumentTypeError(f"{abbreviated(text)} is not a seed: 1 to 64 hexadecimal digits, as a run prints it")
    return text


def seconds(text: str) -> float:
    """Return a positive, finite number of seconds."""
    return _number(text, lambda value: 0 < value < math.inf, "a positive number of seconds")


def duration(text: str) -> float:
    """Return seconds from "90", "90s", "10m" or "1.5h"."""
    unit = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    try:
        return seconds(text[:-1]) * unit if unit else seconds(text)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{abbreviated(text)} is not a duration: write seconds, minutes or hours, as 90, 10m or 1h"
        ) from None


def failure_value(text: str) -> float:
    """Return b, the worth of a failure in the scores."""
    return _number(text, is_failure_value, "a number above 0 and up to 1")


def is_failure_value(b: float) -> bool:
    """Return True if a failure may count ``b``: above 0, since scores take its logarithm, and up to 1.

    With b = 1 a failure counts as eager's own speed, as a tolerated failure does. A larger b would beat eager.
    """
    return 0 < b <= 1


def exponent(text: str) -> float:
    """Return p, the extra power of slowdowns in the scores."""
    return _number(text, is_exponent, f"a number from 0 to {MAX_EXPONENT:g}")


def is_exponent(p: float) -> bool:
    """Return True if slowdowns may have the extra power ``p``."""
    return 0 <= p <= MAX_EXPONENT


def device(text: str) -> str:
    """Return a device's name: ``cpu``, ``cuda`` or ``cuda:N``."""
    if not re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", text):
        raise ArgumentTypeError(f"{abbreviated(text)} is not one of cpu, cuda, cuda:N")
    return text


def shard(text: str) -> tuple[int, int]:
    """Return i and N from "i/N": the i-th of N parts of the tasks, counted from 1."""
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise ArgumentTypeError(f"{abbreviated(text)} is not i/N with 1 <= i <= N")
    return int(match[1]), int(match[2])


def gates(text: str) -> tuple[tuple[str, float], ...]:
    """Return the gates of "NAME=VALUE,...": name and least value of each."""
    return tuple(_gate(part.strip()) for part in text.split(","))


def _gate(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    metrics = {metric.lower(): metric for metric in METRICS}
    if not equals or name.strip().lower() not in metrics:
        raise ArgumentTypeError(f"{abbreviated(text)} is not NAME=VALUE with NAME one of {', '.join(METRICS)}")
    number = _number(value)
    if not 0 <= number < math.inf:
        raise ArgumentTypeError(f"{abbreviated(value)} in {abbreviated(text)} is not a number of 0 or more")
    return metrics[name.strip().lower()], number


def _number(text: str, is_allowed: Callable[[float], bool] = lambda _value: True, what: str = "") -> float:
    """Return the number in a text. Raises ArgumentTypeError if it is not allowed; ``what`` says which ones are."""
    try:
        value = float(text)
    except ValueError:
        raise ArgumentTypeError(f"{abbreviated(text)} is not a number") from None
    if not is_allowed(value):
        raise ArgumentTypeError(f"{abbreviated(text)} is not {what}")
    return value


def one_of(*names: str) -> Callable[[str], str]:
    """Return a check that lets only ``names`` pass."""

    def check(text: str) -> str:
        if text not in names:
            raise ArgumentTypeError(f"{abbreviated(text)} is not one of {', '.join(names)}")
        return text

    return check
