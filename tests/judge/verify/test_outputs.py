"""A runner's tables of its outputs: the judge refuses impossible ones, and finds memory that two calls share."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.judge.arms.failures import ArmFailure
from pytest_passbench.judge.verify.checker import Checker
from pytest_passbench.judge.verify.memory import overlap, owners, shared_by_calls, shares_more
from pytest_passbench.judge.verify.outputs import OutputForm, read_call
from pytest_passbench.protocol import DTYPES, ENTRY, FORM, KIND_TENSOR, MAX_DIMS, MAX_FORMS, Layout

TABLE, PAGES, HEAP = 1 << 20, 1 << 30, 1 << 40
LAYOUT = Layout(slots=8, stride=4096, offsets=(0,), shapes=((16,),), dtypes=("float32",))


class Tables:
    """A runner with tables, and with zeros in all other memory."""

    def __init__(self, entries: list[list[tuple[int, int]]], forms: bytes) -> None:
        width = len(entries[0])
        self.hello = {"entries": TABLE, "forms": 2 * TABLE, "width": width, "pages": PAGES}
        packed = b"".join(ENTRY.pack(*entry) for row in entries for entry in row)
        self._known = {TABLE: packed, 2 * TABLE: forms.ljust(FORM.size * MAX_FORMS, b"\0")}
        self.read = 0

    def memory(self, address: int, size: int) -> bytearray:
        self.read = max(self.read, size)
        if size > 1 << 24:
            raise ArmFailure("crash", "read", "no such memory")
        for start, data in self._known.items():
            if start <= address < start + len(data):
                return bytearray(data[address - start : address - start + size])
        return bytearray(size)

    def fetch(self, _call: int) -> None:
        return None


def form(shape: tuple[int, ...], strides: tuple[int, ...], dtype: int = 0, kind: int = KIND_TENSOR) -> bytes:
    blank = [0] * (MAX_DIMS - len(shape))
    return FORM.pack(kind, dtype, 0, len(shape), *shape, *blank, *strides, *blank)


FIELD = st.one_of(st.integers(-2, 9), st.integers(-(1 << 63), (1 << 63) - 1), st.sampled_from((1 << 31, 1 << 40)))
WORD = st.one_of(st.integers(0, 9), st.integers(0, (1 << 64) - 1))


@given(fields=st.lists(FIELD, min_size=4 + 2 * MAX_DIMS, max_size=4 + 2 * MAX_DIMS), entry=st.tuples(WORD, WORD))
def test_whatever_the_tables_say_is_read_or_refused(fields: list[int], entry: tuple[int, int]):
    runner: Any = Tables([[entry]] * 3, FORM.pack(*fields))
    like = read_call(Tables([[(HEAP, 0)]] * 3, form((2, 3), (3, 1))), 0)
    for wanted in ((), like):
        try:
            (output,) = read_call(runner, 1, wanted)
        except ArmFailure as failure:
            assert (failure.status, failure.phase) in (("type_mismatch", "read"), ("crash", "read"))  # noqa: PT017
            continue
        assert output.value is None or tuple(output.value.shape) == output.form.shape
    if wanted:
        assert runner.read <= max(FORM.size * MAX_FORMS, 24)
    try:
        overlap(runner, LAYOUT, 3)
    except ArmFailure as failure:
        assert failure.status in ("type_mismatch", "crash")  # noqa: PT017


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_has_a_size(dtype):
    assert OutputForm(KIND_TENSOR, dtype, "cpu", (4,), (2,)).span == 7 * getattr(torch, dtype).itemsize


FLAT, VIEW, NONE, TEN = 0, 1, 2, 3  # forms: 16 floats, a column of them, no element, ten floats
FORMS = form((16,), (1,)) + form((4,), (4,)) + form((0, 5), (5, 1)) + form((10,), (1,))


def calls(*rows: list[tuple[int, int]] | tuple[int, int]) -> Any:
    return Tables([row if isinstance(row, list) else [row] for row in rows], FORMS)


@pytest.mark.parametrize(
    ("runner", "said"),
    [
        (calls((HEAP, FLAT), (HEAP + 64, FLAT), (HEAP + 128, FLAT)), None),
        (calls((HEAP, FLAT), (HEAP + 64, FLAT), (HEAP, FLAT)), "outputs of calls 0 and 2 share memory"),
        (calls((HEAP, FLAT), (HEAP + 60, FLAT)), "outputs of calls 0 and 1 share memory"),
        (calls((HEAP, TEN), (HEAP + 40, FLAT)), None),
        (calls((HEAP, NONE), (HEAP, NONE)), None),
        (calls([(HEAP, VIEW), (HEAP + 4, VIEW)], [(HEAP + 64, FLAT), (HEAP + 64, VIEW)]), None),  # views of one call
        (calls([(HEAP, FLAT), (HEAP, VIEW)], [(HEAP + 99, FLAT), (HEAP + 48, TEN)]), "calls 0 and 1 share memory"),
        (calls((PAGES, FLAT), (PAGES + 4096, FLAT)), None),  # each call's own input
        (calls((PAGES, FLAT), (PAGES + 8192 + 64, FLAT)), "output 0 of call 1 lies in the inputs of call 2"),
    ],
)
def test_memory_of_two_calls_outputs_is_found(runner, said):
    found = overlap(runner, LAYOUT, len(runner._known[TABLE]) // ENTRY.size // runner.hello["width"])
    assert (found is None) == (said is None)
    assert said is None or str(found).endswith(said)


@given(data=st.data())
def test_what_is_found_is_what_two_calls_share(data):
    places = st.integers(0, 30).map(lambda place: (HEAP + 16 * place, data.draw(st.sampled_from((FLAT, TEN, NONE)))))
    width = data.draw(st.integers(1, 3))
    rows = data.draw(st.lists(st.lists(places, min_size=width, max_size=width), min_size=2, max_size=6))
    sizes = {FLAT: 64, TEN: 40, NONE: 0}
    spots = [(call, at, at + sizes[kind]) for call, row in enumerate(rows) for at, kind in row if sizes[kind]]
    shared = {(a[0], b[0]) for a in spots for b in spots if a[0] != b[0] and a[1] < b[2] and b[1] < a[2]}
    found = overlap(calls(*rows), LAYOUT, len(rows))
    assert (found.calls in shared) if found is not None else not shared


def test_what_eager_shares_between_calls_may_be_shared():
    constant = [(HEAP, TEN), (HEAP, TEN), (HEAP, TEN)]
    eager = calls(*[[(HEAP + 640 * (call + 1), FLAT), entry] for call, entry in enumerate(constant)])
    assert shared_by_calls(eager, LAYOUT, 3) == {1}
    assert overlap(eager, LAYOUT, 3, {1}) is None


def test_each_call_of_a_block_is_as_likely_verified_as_any_other(monkeypatch):
    drawn: Counter[int] = Counter()
    checker = Checker(SimpleNamespace(), LAYOUT, (), -5, random.Random(7))
    monkeypatch.setattr(checker, "check", lambda runners, batch, call, _certain=False: drawn.update([call]))
    checker.expect_pairs(rounds=16)
    blocks, length = 60_000, 7
    for number in range(blocks):
        checker.after_round({}, SimpleNamespace(), length, before=number % 24)
    expected = drawn.total() / length
    assert 0 < drawn.total() < blocks
    assert sorted(drawn) == list(range(length))
    chi_square = sum((drawn[call] - expected) ** 2 / expected for call in range(length))
    assert chi_square < 22.5  # 6 degrees of freedom: one in a thousand; the draws are the same every time


def test_rounds_of_a_pair_that_goes_on_are_verified_too(monkeypatch):
    checker = Checker(SimpleNamespace(), LAYOUT, (), -5, random.Random(7))
    checked = []
    monkeypatch.setattr(checker, "check", lambda *_asked: checked.append(number % 24))
    checker.expect_pairs(rounds=16)
    for number in range(24_000):
        checker.after_round({}, SimpleNamespace(), 7, before=number % 24)
    assert set(checked) == set(range(24))  # each about 20 times; the draws are the same every time


def test_one_of_the_first_pairs_has_a_reference_in_its_first_verified_call(monkeypatch):
    places = Counter()
    for seed in range(100):
        checker = Checker(SimpleNamespace(), LAYOUT, (), -5, random.Random(seed))
        calls, asked = [], []
        monkeypatch.setattr(checker, "check", lambda *call, to=calls: to.append(call[-1]))
        checker.expect_pairs(rounds=16)
        for number in range(6 * 24):
            checker.after_round({}, SimpleNamespace(), 7, before=number % 24)
            asked += [(number // 24, referenced) for referenced in calls[len(asked) :]]
        assert {pair for pair, _ in asked} == set(range(6))
        ((index, pair),) = [(index, pair) for index, (pair, referenced) in enumerate(asked) if referenced]
        assert index == 0 or asked[index - 1][0] < pair
        places[pair] += 1
    assert set(places) == {0, 1}


@pytest.mark.parametrize(
    ("outputs", "owned"),
    [
        ([(HEAP, FLAT), (HEAP + 64, TEN)], [set(), set()]),
        ([(HEAP, FLAT), (HEAP, TEN)], [set(), {1}]),
        ([(HEAP, FLAT), (HEAP + 12, TEN)], [set(), {1}]),
        ([(HEAP + 12, TEN), (HEAP, FLAT)], [set(), {1}]),
        ([(HEAP, VIEW), (HEAP + 4, VIEW), (HEAP + 8, VIEW)], [set(), {1}, {1, 2}]),
        ([(HEAP, FLAT), (HEAP + 8, NONE), (HEAP + 8, TEN)], [set(), set(), {1}]),
        ([(PAGES + 8, TEN), (PAGES + 12, TEN)], [{0}, {0}]),
    ],
)
def test_an_output_may_lie_in_anothers_memory_only_where_eagers_does(outputs, owned):
    runner = calls(outputs)
    found = owners(runner, LAYOUT, read_call(runner, 0), 0)
    assert found == owned
    copies = [set() for _ in outputs]
    assert shares_more(found, found) is None
    assert shares_more(found, copies) is None
    assert shares_more(copies, found) == next((index for index, item in enumerate(owned) if item), None)


def test_a_chunk_may_be_a_copy_and_the_others_stay_chunks():
    eager, arm = calls([(HEAP, VIEW), (HEAP + 4, VIEW), (HEAP + 8, VIEW)]), calls([(0, VIEW), (64, VIEW), (68, VIEW)])
    assert shares_more(*(owners(runner, LAYOUT, read_call(runner, 0), 0) for runner in (eager, arm))) is None
