"""The splits of a data set, as laws over any rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_passbench.dataset.rows import GraphRow
from pytest_passbench.dataset.splits import TEST, TRAIN, VALIDATION, HeldOut, assign, is_validation, leaks

FAMILIES = [f"library/{name}" for name in "abcdefghijklmnopqrstuvwxyz"]
FORMS = [f"form {number}" for number in range(6)]
OPERATORS = [["gelu"], ["add", "relu"], ["softmax"]]


def row(key: int, form: str, operators: list[str], families: set[str]) -> GraphRow:
    return GraphRow(
        id=str(key), form=form, kind="single", source="", operators=operators, dtype="float32", variant="", inputs=[],
        instances=[], marks=[], architecture="", library="", version="", license="", family=min(families),
        families=sorted(families), modality="text", configuration="", headroom=0.0,
    )  # fmt: skip


ROWS = st.lists(
    st.tuples(st.sampled_from(FORMS), st.sampled_from(OPERATORS), st.sets(st.sampled_from(FAMILIES), min_size=1)),
    max_size=20,
).map(lambda drawn: [row(key, *parts) for key, parts in enumerate(drawn)])
APART = st.builds(
    HeldOut,
    st.frozensets(st.sampled_from(FORMS), max_size=2),
    st.frozensets(st.sampled_from([tuple(ops) for ops in OPERATORS]), max_size=1),
)


@given(ROWS, APART)
def test_no_assignment_leaks(rows, apart):
    assign(rows, apart)
    assert not list(leaks(rows, apart))
    assert {item.split for item in rows} <= {TRAIN, VALIDATION, TEST}


@given(ROWS, APART)
def test_no_family_of_validation_alone_is_trained_on(rows, apart):
    assign(rows, apart)
    for item in rows:
        if item.split == VALIDATION:
            assert all(map(is_validation, item.families))


@given(ROWS, APART, st.data())
def test_a_row_that_is_moved_is_a_leak(rows, apart, data):
    assign(rows, apart)
    held_out = [item for item in rows if item.split == TEST]
    if held_out:
        data.draw(st.sampled_from(held_out)).split = TRAIN
        assert list(leaks(rows, apart))


def test_some_families_are_for_validation_and_most_for_training():
    shares = [is_validation(f"library/{number}") for number in range(2000)]
    assert 0.07 < sum(shares) / len(shares) < 0.13
