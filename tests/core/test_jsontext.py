"""The reader of JSON: it reads JSON as it is, and refuses anything else with one error, in bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.jsontext import MAX_DEPTH, parse, read
from pytest_passbench.core.rejected import Rejected

TEXTS = st.text('[]{}"\\\n é\U0001f600a', max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-(10**63), 10**63) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(LEAVES | TEXTS, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXTS, v, max_size=3))
NOISE = st.text('[]{}",:\\u8dD0eE+-. antrufls', max_size=40)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth_of, inner), default=0)


@given(VALUES, st.booleans())
def test_what_is_json_is_read_as_it_is_up_to_its_depth(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    depth = depth_of(value)
    assert read(text, depth) == value
    assert parse(text.decode(), Path("x")) == value
    if depth:
        with pytest.raises(Rejected, match=f"more than {depth - 1} lists and objects in each other"):
            read(text, depth - 1)


@given(NOISE)
def test_anything_else_is_refused_and_nothing_else_is(text: str) -> None:
    try:
        value = read(text.encode())
    except Rejected as refusal:
        if refusal.rule != "json":
            return
        with pytest.raises(json.JSONDecodeError):
            json.loads(text)
    else:
        assert value == json.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a":\n\n[1,]}', "x:3: is not JSON: Expecting value"),
        ("", "x:1: is not JSON"),
        ("\n\n" + "[" * (MAX_DEPTH + 1), "x:3: has more than 50 lists and objects in each other"),
        ('["\\"[[", ' + "[" * MAX_DEPTH, "has more than 50 lists and objects in each other"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "x: has the key 'c' twice in one object"),
        ("[NaN]", "has NaN, which JSON lacks"),
        ("[-Infinity]", "has -Infinity, which JSON lacks"),
        ("[1e999]", "has the number 1e999, which is too large"),
        ("[" + "9" * 65 + "]", "has a number of more than 64 digits"),
        ("[0." + "1" * 65 + "]", "has a number of more than 64 digits"),
        ('["\\ud800"]', "has half of a surrogate pair in a text"),
        ('["\\\\\\udfff"]', "has half of a surrogate pair in a text"),
        ('{"\\ud83d": 1}', "has half of a surrogate pair in a text"),
    ],
)
def test_what_a_file_may_not_have_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, Path("x"))
    assert message in str(caught.value)


def test_what_only_looks_like_that_is_read() -> None:
    assert parse('["\\\\ud800", "\\ud83d\\ude00", "' + "9" * 99 + ' 1e999 [[["]', Path("x"))[1] == "\U0001f600"
    assert read(b"[" + b"9" * 64 + b", 1e308]") == [int("9" * 64), 1e308]


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(Rejected, match="is not UTF-8 text"):
        read(b'["\xff"]')


@pytest.mark.parametrize("text", ['"' + "a" * 4_000_000 + '"', '"' + '\\"' * 2_000_000 + '"', "[" * 200_000])
def test_a_long_text_takes_memory_in_proportion(text: str) -> None:
    data = text.encode()
    tracemalloc.start()
    try:
        read(data)
    except Rejected:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 * len(data)
