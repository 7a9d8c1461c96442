"""The tolerance ladder: which errors are allowed at t, and which answer is right at t.

The table is that of the published PassBench definition; at t = -5 it is ``torch.testing``'s default.
"""

from __future__ import annotations

from collections.abc import Iterable

BITWISE = -11
"""``correct_from`` of an output that equals eager's bit for bit."""

NEVER = 99
"""``correct_from`` of an output that passes at no t; ``null_from`` if no null answer passes."""

T_MIN = -10
T_STRICT = -5
"""The assertion default, and the t of the board's Correctness, G-Mean and fast_p columns."""

T_FROZEN = 1
"""The t at which correctness is decided for every t above it."""

LADDER = tuple(range(T_MIN, T_FROZEN + 1))
"""The t at which outputs are compared."""

# Per dtype the powers of ten per unit of t: (rtol, atol). A dtype that is absent is compared exactly.
_HALF = (3.0 / 5.0, 1.0)
_BFLOAT16 = (1.796 / 5.0, 1.0)
_SINGLE = (5.886 / 5.0, 1.0)
_DOUBLE = (7.0 / 5.0, 7.0 / 5.0)

EXPONENTS: dict[str, tuple[float, float]] = {
    "float16": _HALF,
    "complex32": _HALF,
    "bfloat16": _BFLOAT16,
    "float32": _SINGLE,
    "complex64": _SINGLE,
    "quint8": _SINGLE,
    "qint8": _SINGLE,
    "qint32": _SINGLE,
    "quint4x2": _SINGLE,
    "quint2x4": _SINGLE,
    "float64": _DOUBLE,
    "complex128": _DOUBLE,
}


def first_correct(levels: Iterable[int]) -> int:
    """Return the smallest t at which every output passes; NEVER if there is no output.

    ``levels`` has the ``correct_from`` of each output.
    """
    return max(levels, default=NEVER)


def guarded(first: int, null_from: int, t: int) -> bool:
    """Return True if the null guard holds at ``t`` for an answer that is correct from ``first`` on.

    A null answer (zeros, a copy of an input, eager's mean) passes from ``null_from`` on. There the guard holds,
    unless the answer is correct already at some t below ``null_from``. Above t = 1 it holds as at t = 1.
    """
    return min(t, T_FROZEN) >= null_from and first >= null_from


def right_at(first: int, null_from: int, t: int) -> bool:
    """Return True if an answer that is correct from ``first`` on is right at ``t``, null guard included.

    Eager's own answer, bit for bit, is always right: on some graphs it is a copy of an input.
    """
    return first <= t and (first == BITWISE or not guarded(first, null_from, t))


def tolerances(dtype: str, t: int) -> tuple[float, float]:
    """Return ``(rtol, atol)`` of ``allclose(candidate, eager)`` at ``t``, by the eager output's dtype.

    ``dtype`` is a name with or without ``torch.``. Integers, bool and every dtype that the table does not
    name get ``(0.0, 0.0)``: exact equality at every t.
    """
    exponents = EXPONENTS.get(dtype.removeprefix("torch."))
    if exponents is None:
        return 0.0, 0.0
    rtol, atol = exponents
    return 10.0 ** (rtol * t), 10.0 ** (atol * t)
