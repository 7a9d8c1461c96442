"""Arguments of a pattern: what they stand for in a graph, and what reaches the kernel wrapper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_passbench.reader.importing import LoadedPass
from pytest_passbench.rewrite.passes import PassError
from support.reference_passes import apply_passes, check, graph, rewrite


def x(*shape):
    return torch.randn(*(shape or (4, 8)))


def handed(body, pattern, *tensors):
    """Return what the wrapper gets beside tensors if all arguments are passed on. Require unchanged results."""
    got: list[Any] = []

    def wrapper(*args):
        got[:] = [value for value in args if not isinstance(value, torch.Tensor)]
        return pattern(*[a.clone() if isinstance(a, torch.Tensor) else a for a in args])

    names = pattern.__code__.co_varnames[: pattern.__code__.co_argcount]
    scope: dict[str, Any] = {}
    exec(f"def replacement_args({', '.join(names)}): return ({', '.join(names)},)", scope)
    item = LoadedPass("p", pattern, scope["replacement_args"], lambda: wrapper, wrapper, Path("p.py"))
    before = graph(body, len(tensors))
    with torch.no_grad():
        result = apply_passes(before, [item], list(tensors))
        assert result.matches == 1, result.reports[0].miss
        one, other = [t.clone() for t in tensors], [t.clone() for t in tensors]
        torch.testing.assert_close(result.module(*other), before(*one))
    torch.testing.assert_close(other, one)
    return got


SIZES = [
    ("return (in_0 + torch.arange(8),)", lambda n: torch.arange(n), [8]),
    ("return (in_0 + torch.arange(0, 8, 1),)", lambda n: torch.arange(n), [8]),
    ("n = in_0.size(1)\nreturn (in_0 + torch.arange(n),)", lambda x, n: x + torch.arange(0, n), [8]),
    ("return (in_0 + torch.arange(8, 0, -1),)", lambda a, b, c: torch.arange(a, b, c), [8, 0, -1]),
    ("return (in_0 + torch.full((4, 4), 0.0)[0, 0],)", lambda n: torch.full((n, n), 0.0), [4]),
    ("return (in_0 + torch.full((4, 8), 2.5),)", lambda n, m, v: torch.full((n, m), v), [4, 8, 2.5]),
    ("return (in_0 + torch.full(in_0.size(), 0.0),)", lambda size: torch.full(size, 0.0), [(4, 8)]),
    ("return (in_0 + torch.zeros(4, 8),)", lambda n, m: torch.zeros(n, m), [4, 8]),
    ("return (in_0 + torch.ones((4, 8)),)", lambda n, m: torch.ones(n, m, dtype=None), [4, 8]),
    ("return (in_0.view(2, -1).relu(),)", lambda x, n: x.view(n, -1).relu(), [2]),
    ("return (in_0.expand(3, -1, 8),)", lambda x, n, m: x.expand(n, -1, m), [3, 8]),
]


@pytest.mark.parametrize(("body", "pattern", "got"), SIZES)
def test_sizes(body, pattern, got):
    assert handed(body, pattern, x()) == got


BOUNDS = [
    ("in_0[slice(2, None)]", lambda x, i: x[slice(i, None)], [2]),
    ("in_0[2:]", lambda x, i: x[i:], [2]),
    ("in_0[slice(2, None, None)]", lambda x, i: x[(slice(i, None, None),)], [2]),
    ("in_0[(slice(None, None, None), slice(1, 3, None))]", lambda x, i, j: x[:, i:j], [1, 3]),
    ("in_0[:, -3:]", lambda x, i: x[(slice(None, None, None), slice(i, None, None))], [-3]),
    ("in_0[:2]", lambda x, i: x[:i], [2]),
    ("in_0[::2]", lambda x, step: x[slice(None, None, step)], [2]),
    ("in_0[..., 1]", lambda x, i: x[..., i], [1]),
    ("in_0[slice(in_0.size(0) - 2, None)]", lambda x: x[slice(x.size(0) - 2, None)], []),
]


@pytest.mark.parametrize(("text", "pattern", "got"), BOUNDS)
def test_bounds_of_slices(text, pattern, got):
    assert handed(f"return ({text}.relu(),)", pattern, x()) == got


def conv(x, w, b, stride, padding, dilation, groups):
    return torch.conv2d(x, w, b, stride, padding, dilation, groups)


CONVOLUTIONS = [
    ("torch.conv2d(in_0, in_1, None, (1, 1), (1, 1), (1, 1), 1)", [None, (1, 1), (1, 1), (1, 1), 1]),
    ("torch.conv2d(in_0, in_1, None, 2, 1)", [None, 2, 1, 1, 1]),
    ("torch.nn.functional.conv2d(in_0, in_1, padding='same', dilation=2)", [None, 1, "same", 2, 1]),
    ("torch.conv2d(input=in_0, weight=in_1, stride=[2, 1], groups=1)", [None, (2, 1), 0, 1, 1]),
]


@pytest.mark.parametrize(("text", "got"), CONVOLUTIONS)
def test_the_numbers_of_a_convolution(text, got):
    found = handed(f"return ({text},)", conv, x(2, 4, 6, 6), x(3, 4, 3, 3))
    wide = [(value,) * 2 if isinstance(value, int) else value for value in got[1:-1]]
    assert [(value,) * 2 if isinstance(value, int) else value for value in found[1:-1]] == wide
    assert (found[0], found[-1]) == (got[0], got[-1])


def test_one_number_for_both_axes():
    def pattern(x, w, s, p):
        return torch.conv2d(x, w, None, (s, s), (p, p))

    text = "return (torch.conv2d(in_0, in_1, None, {}, 1),)"
    tensors = x(2, 4, 6, 6), x(3, 4, 3, 3)
    assert handed(text.format("2"), pattern, *tensors) == [2, 1]
    assert handed(text.format("(2, 2)"), pattern, *tensors) == [2, 1]
    result, _ = rewrite(text.format("(2, 1)"), pattern, *tensors)
    assert "argument stride: expected 1, found 2" in result.reports[0].miss


def test_a_dimension_is_handed_on_as_it_is_written():
    body = "return (in_0.softmax(-1).sum({}),)"
    assert handed(body.format("-1"), lambda x, d: x.softmax(d).sum(d), x()) == [-1]
    assert handed(body.format("1"), lambda x, d: x.softmax(d).sum(d), x()) in ([-1], [1])
    result, _ = rewrite(body.format("0"), lambda x, d: x.softmax(d).sum(d), x())
    assert "argument dim" in result.reports[0].miss
    body = "return (in_0.sum(-1).softmax(-1),)"
    assert handed(body, lambda x, d: x.sum(d).softmax(d), x()) == [-1]


def test_dtypes_and_devices():
    assert handed("return (in_0.to(torch.float64),)", lambda x, t: x.to(t), x()) == [torch.float64]
    assert handed("return (in_0.double(),)", lambda x, t: x.to(dtype=t), x()) == [torch.float64]
    cpu = torch.device("cpu")
    assert handed("return (in_0.to(torch.device('cpu')).sin(),)", lambda x, d: x.to(d).sin(), x()) == [cpu]


def test_flags():
    assert handed("return (in_0.mean(-1, True),)", lambda x, k: x.mean(-1, keepdim=k), x()) == [True]
    assert handed("return (in_0.var(-1, unbiased=False),)", lambda x, u: x.var(-1, u), x()) == [False]
    result, _ = rewrite("return (in_0.var(-1, correction=2),)", lambda x, u: x.var(-1, u), x())
    assert "correction" in result.reports[0].miss


NORMALISED = [
    ("torch.nn.functional.relu(in_0, inplace=True)", lambda x, i: F.relu(x, inplace=i), [True]),
    ("torch.relu_(in_0)", lambda x, i: F.relu(x, i), [True]),
    ("in_0.relu()", lambda x, i: F.relu(x, inplace=i), [False]),
    ("torch.nn.functional.dropout(in_0, 0.1, False)", lambda x, t, i: F.dropout(x, 0.1, t, i), [False, False]),
    ("torch.nn.functional.hardtanh(in_0, 0.0, 6.0, False)", lambda x, i: F.hardtanh(x, 0.0, 6.0, i), [False]),
]


@pytest.mark.parametrize(("text", "pattern", "got"), NORMALISED)
def test_arguments_that_cannot_change_a_value(text, pattern, got):
    body = f"a = in_0 * 2\nreturn ({text.replace('in_0', 'a')} + 1,)"
    assert handed(body, pattern, x()) == got


def test_the_padding_of_an_embedding():
    def pattern(i, w, p):
        return F.embedding(i, w, p, None, 2.0, False, False)

    tensors = torch.tensor([0, 1, 3]), x()
    text = "return (torch.nn.functional.embedding(in_0, in_1, {}, None, 2.0, False, False),)"
    assert handed(text.format("0"), pattern, *tensors) == [0]
    assert handed(text.format("None"), pattern, *tensors) == [None]


def test_an_argument_that_both_a_value_and_a_flag_use_is_the_value():
    got = handed(
        "return (torch.nn.functional.embedding(in_0, in_1, None) + 2,)",
        lambda i, w, p: F.embedding(i, w, p) + p,
        torch.tensor([0, 1]),
        x(),
    )
    assert got == [2]


def test_an_argument_that_only_gives_sizes():
    def pattern(x, y, z):
        return x.relu().view(y.size(1), z.shape[-1] // 2)

    tensors = x(4, 4), x(3, 2), x(5, 16)
    assert handed("return (in_0.relu().view(in_1.size(1), in_2.size(1) // 2) + in_1.sum() + in_2.sum(),)",
                  pattern, *tensors) == []  # fmt: skip
    assert handed("return (in_0.relu().view(2, 8) + in_1.sum() + in_2.sum(),)", pattern, *tensors) == []
    result, _ = rewrite("return (in_0.relu().view(2, 8) + in_1.sum(),)", pattern, *tensors[:2])
    assert "argument size: expected 2, found 8" in result.reports[0].miss


def test_an_operator_that_only_gives_a_size_is_looked_for():
    result, _ = rewrite("return (in_0.view(4, -1).relu(),)", lambda x, y: x.view(y.sin().size(0), -1).relu(), x())
    assert "no sin found" in result.reports[0].miss


def test_sums_of_sums_of_sizes_end():
    def pattern(x, y):
        n = y.size(0)
        for _ in range(100):
            n = n + n
        return x.view(n, -1).relu()

    result, _ = rewrite("return (in_0.view(4, -1).relu(),)", pattern, x())
    assert "cannot be evaluated" in result.reports[0].miss


def dead(x, y):
    y.sin()
    return x.relu()


def test_an_argument_of_dead_code_stands_for_nothing():
    body = "return (in_0.relu(),)"
    item = LoadedPass("p", dead, lambda x, y: (x,), lambda: torch.relu, torch.relu, Path("p.py"))
    with torch.no_grad():
        assert apply_passes(graph(body), [item], [x()]).matches == 1
    with pytest.raises(PassError, match="y is used only in code that the pattern's result does not depend on"):
        check(body, dead, x())


def test_numbers_keep_their_type_and_their_sign():
    for body, pattern, tensor in (
        ("return (in_0 * 2.0,)", lambda x: x * 2, torch.ones(3, dtype=torch.int64)),
        ("return (in_0 + torch.full((3,), 2.0),)", lambda x: x + torch.full((3,), 2), torch.ones(3)),
        ("return (in_0 * -0.0,)", lambda x: x * 0.0, torch.ones(3)),
        ("return ((in_0 + 1) * 1.0,)", lambda x, n: (x + n) * n, torch.ones(3, dtype=torch.int64)),
    ):
        result, _ = rewrite(body, pattern, tensor)
        assert not result.matches
    check("return (in_0.masked_fill(in_0 < 0, nan),)", lambda x: x.masked_fill(x < 0, float("nan")), torch.ones(3))
