"""Folding n-grams and choosing sequences."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.forge.sequence_choice import LENGTHS, candidates, select
from pytest_passbench.forge.windows import MAX_LENGTH, Window, fold, typical

SEQUENCES = st.lists(st.lists(st.sampled_from("abc"), max_size=30), max_size=5)


@given(SEQUENCES)
@settings(max_examples=60)
def test_a_folded_gram_stands_where_it_says(sequences: list[list[str]]) -> None:
    for gram, places in fold(sequences, 50).items():
        assert places
        assert len(gram) <= MAX_LENGTH
        for spot in places:
            assert tuple(sequences[spot.sequence][spot.start : spot.end]) == gram


def test_the_most_frequent_pair_is_folded_first() -> None:
    made = fold([list("abcxabcyab")], 2)
    assert list(made) == [("a", "b"), ("a", "b", "c")]
    assert [(spot.start, spot.end) for spot in made["a", "b", "c"]] == [(0, 3), (4, 7)]


def test_typical_grams_have_four_operators_or_more() -> None:
    made = typical(fold([list("abcd") * 4, list("abcd")], 20))
    assert ("a", "b", "c", "d") in made
    assert all(len(gram) >= 4 for gram in made)


def _window(case: str, ops: str) -> Window:
    return Window(case, 0, 0, len(ops.split()), tuple(ops.split()), "typical")


def test_pure_layout_and_mere_repeats_are_no_candidates() -> None:
    found = candidates([_window("a/x", "view transpose"), _window("a/x", "gelu mul"), _window("a/y", "gelu mul")],
                       {"a/x": "text", "a/y": "text"})  # fmt: skip
    assert [(c.ops, len(c.cases)) for c in found] == [(("gelu", "mul"), 2)]


def test_selection_takes_what_is_asked_first_and_no_case_or_length_takes_all() -> None:
    names = ["add", "mul", "gelu", "tanh", "exp", "relu", "softmax", "pow", "sigmoid", "sub"]
    windows = [_window(f"lib/m{i}", f"{a} {b} {names[(i + j) % 10]}" if i % 2 else f"{a} {b}")
               for i, a in enumerate(names) for j, b in enumerate(names) if a != b]  # fmt: skip
    found = candidates(windows, {f"lib/m{i}": "text" for i in range(10)})
    wanted = ("mul", "tanh", "sigmoid")
    chosen = select(found, 40, [wanted] if any(c.ops == wanted for c in found) else [found[7].ops])
    assert chosen[0].ops in (wanted, found[7].ops)
    lengths = Counter(len(c.ops) for c in chosen)
    assert lengths[2] + lengths[3] <= LENGTHS[0][2] * 40 + 2
    assert len({c.ops for c in chosen}) == len(chosen)


def test_selection_prefers_what_the_published_tasks_have() -> None:
    pairs = {"exp hardsigmoid": "exp hardswish", "gelu conv2d tanh": "gelu linear tanh", "cos mul": "cos sub",
             "add eq masked_fill": "add eq where"}  # fmt: skip
    found = [Window(f"lib/m{i}", 0, 0, 2, tuple(ops.split()), "typical", outputs=2 if ops == "cos mul" else 1)
             for i in range(3) for pair in pairs.items() for ops in pair]  # fmt: skip
    chosen = [" ".join(c.ops) for c in select(candidates(found, {f"lib/m{i}": "text" for i in range(3)}), 40)]
    assert [(mine, chosen.index(mine) < chosen.index(other)) for mine, other in pairs.items()] == [
        (mine, True) for mine in pairs
    ]


def test_half_of_the_tasks_at_most_come_from_one_architecture() -> None:
    names = ["add", "mul", "gelu", "tanh", "exp", "relu", "softmax", "pow"]
    own = [_window(f"lib/m{names.index(a)}", f"{a} {b}") for a in names for b in names if a != b]
    shared = [_window(f"lib/m{i}", f"{a} {b} sigmoid") for i in range(3) for a in names[:4] for b in names[4:]]
    chosen = select(candidates([*own, *shared], {f"lib/m{i}": "text" for i in range(8)}), 20)
    assert sum(len(c.cases) == 1 for c in chosen) <= 10
