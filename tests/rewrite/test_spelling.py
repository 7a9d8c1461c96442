"""One operator, many spellings: pairs that must match, and near misses that must not."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch
import torch.nn.functional as F

from support.reference_passes import check, rewrite

aten = torch.ops.aten

# Each family: patterns of one computation of in_0 (4, 6, 8), and target spellings of the same.
FAMILIES = {
    "softmax": (
        [
            lambda x: F.softmax(x, dim=-1),
            lambda x: F.softmax(x, -1, _stacklevel=5),
            lambda x: torch.softmax(x, 2),
            lambda x: x.softmax(dim=-1),
            lambda x: aten.softmax.int(x, -1),
        ],
        [
            "torch.nn.functional.softmax(in_0, dim=-1)",
            "torch.softmax(in_0, 2)",
            "in_0.softmax(-1)",
            "torch.nn.functional.softmax(in_0, -1, dtype=None)",
        ],
    ),
    "dropout": (
        [
            lambda x: F.dropout(x, p=0.1, training=False),
            lambda x: F.dropout(x, 0.1, False, False),
            lambda x: torch.dropout(x, 0.1, False),
            lambda x: aten.dropout.default(x, 0.1, False),
        ],
        [
            "torch.nn.functional.dropout(in_0, 0.1, False, False)",
            "torch.nn.functional.dropout(in_0, p=0.1, training=False)",
            "torch.dropout(in_0, 0.1, False)",
        ],
    ),
    "relu": (
        [
            lambda x: F.relu(x, inplace=True),
            lambda x: F.relu(x),
            lambda x: torch.relu(x),
            lambda x: x.relu(),
            lambda x: torch.relu_(x),
            lambda x: aten.relu.default(x),
        ],
        ["torch.nn.functional.relu(in_0, inplace=False)", "torch.relu(in_0)", "in_0.relu()"],
    ),
    "gelu": (
        [
            lambda x: F.gelu(x),
            lambda x: torch._C._nn.gelu(x),
            lambda x: F.gelu(x, approximate="none"),
            lambda x: aten.gelu.default(x),
            lambda x: aten.gelu(x),
        ],
        [
            "torch.nn.functional.gelu(in_0)",
            "torch._C._nn.gelu(in_0, approximate='none')",
            "torch.ops.aten.gelu.default(in_0)",
        ],
    ),
    "add": (
        [
            lambda x: x + 2,
            lambda x: 2 + x,
            lambda x: torch.add(x, 2),
            lambda x: x.add(2),
            lambda x: operator.add(x, 2.0),
            lambda x: aten.add.Tensor(x, 2),
            lambda x: torch.add(x, 2, alpha=1),
            lambda x: torch.add(input=x, other=2),
            lambda x: x.__radd__(2),
        ],
        ["in_0 + 2", "torch.add(in_0, 2)", "in_0.add(2)", "in_0.add(2, alpha=1)", "2 + in_0", "in_0.__add__(2)"],
    ),
    "sub": (
        [lambda x: 1 - x, lambda x: torch.rsub(x, 1)],
        ["1 - in_0", "torch.rsub(in_0, 1)"],
    ),
    "div": (
        [lambda x: x / 3, lambda x: torch.div(x, 3), lambda x: x.div(3), lambda x: torch.true_divide(x, 3)],
        ["in_0 / 3", "torch.div(in_0, 3, rounding_mode=None)", "in_0.div(3)"],
    ),
    "pow": (
        [
            lambda x: x**2,
            lambda x: torch.pow(x, 2),
            lambda x: x.pow(2),
            lambda x: x.square(),
            lambda x: torch.square(x),
        ],
        ["in_0 ** 2", "in_0.pow(2)", "torch.square(in_0)", "torch.pow(in_0, exponent=2)"],
    ),
    "matmul": (
        [lambda x, y: x @ y, lambda x, y: torch.matmul(x, y), lambda x, y: x.matmul(y), lambda x, y: x.__matmul__(y)],
        ["in_0 @ in_1", "torch.matmul(in_0, in_1)", "in_0.matmul(other=in_1)"],
    ),
    "transpose": (
        [
            lambda x: x.transpose(1, 2),
            lambda x: x.transpose(-1, -2),
            lambda x: torch.transpose(x, 1, 2),
            lambda x: torch.swapaxes(x, 2, 1),
            lambda x: x.mT,
        ],
        ["in_0.transpose(-2, -1)", "torch.transpose(in_0, dim0=1, dim1=2)", "in_0.swapaxes(1, 2)"],
    ),
    "permute": (
        [lambda x: x.permute(0, 2, 1), lambda x: torch.permute(x, (0, 2, 1)), lambda x: x.permute([0, -1, 1])],
        ["in_0.permute(0, 2, 1)", "torch.permute(in_0, (0, 2, 1))", "in_0.permute((0, -1, -2))"],
    ),
    "flatten": (
        [
            lambda x: x.flatten(1),
            lambda x: torch.flatten(x, 1, -1),
            lambda x: torch.flatten(x, start_dim=1, end_dim=2),
        ],
        ["torch.flatten(in_0, 1)", "in_0.flatten(1, 2)", "in_0.flatten(start_dim=-2)"],
    ),
    "view": (
        [
            lambda x: x.view(4, 48),
            lambda x: x.view((4, -1)),
            lambda x: x.view(x.size(0), -1),
            lambda x: x.view(x.shape[0], x.shape[1] * x.shape[2]),
            lambda x: aten.view.default(x, [4, 48]),
            lambda x: x.view(-1, 48),
        ],
        ["in_0.view(4, 48)", "in_0.view((-1, 48))", "in_0.view(in_0.size(0), -1)", "in_0.view([4, 48])"],
    ),
    "mean": (
        [
            lambda x: x.mean(-1, keepdim=True),
            lambda x: torch.mean(x, dim=(2,), keepdim=True),
            lambda x: x.mean([-1], True),
            lambda x: aten.mean.dim(x, [-1], True),
        ],
        ["in_0.mean(-1, keepdim=True)", "torch.mean(in_0, (2,), True)", "in_0.mean(dim=[2], keepdim=True)"],
    ),
    "sum": ([lambda x: x.sum(1), lambda x: torch.sum(x, dim=1)], ["in_0.sum(dim=1)", "torch.sum(in_0, [-2])"]),
    "cast": (
        [
            lambda x: x.to(torch.float64),
            lambda x: x.double(),
            lambda x: x.to(dtype=torch.float64),
            lambda x: x.type(torch.float64),
        ],
        ["in_0.double()", "in_0.to(torch.float64)", "in_0.to(dtype=torch.float64)"],
    ),
    "layer_norm": (
        [
            lambda x, w: F.layer_norm(x, (8,), w, None, 1e-5),
            lambda x, w: F.layer_norm(x, normalized_shape=[8], weight=w),
            lambda x, w: torch.layer_norm(x, (8,), w, eps=1e-05),
            lambda x, w: F.layer_norm(x, (x.shape[-1],), w),
            lambda x, w: aten.layer_norm.default(x, [8], w),
        ],
        [
            "torch.nn.functional.layer_norm(in_0, (8,), in_1, None, 1e-05)",
            "torch.layer_norm(in_0, [8], in_1)",
            "torch.nn.functional.layer_norm(in_0, in_0.shape[-1:], weight=in_1, bias=None)",
        ],
    ),
    "slice": (
        [lambda x: x[:, :3], lambda x: x[(slice(None), slice(0, 3))], lambda x: x[:, 0:3:1]],
        ["in_0[:, :3]", "in_0[(slice(None, None, None), slice(None, 3, None))]", "in_0[:, 0:3]"],
    ),
    "unsqueeze": (
        [lambda x: x.unsqueeze(-1), lambda x: torch.unsqueeze(x, 3)],
        ["in_0.unsqueeze(-1)", "torch.unsqueeze(in_0, dim=3)"],
    ),
    "expand": (
        [lambda x: x[:1].expand(4, -1, -1), lambda x: x[:1].expand((4, 6, 8))],
        ["in_0[:1].expand(4, 6, 8)", "in_0[:1].expand(-1 + 5, -1, 8)"],
    ),
    "cat": (
        [lambda x: torch.cat([x, x], -1), lambda x: torch.cat((x, x), dim=2), lambda x: torch.concat([x, x], dim=-1)],
        [
            "torch.cat([in_0, in_0], dim=-1)",
            "torch.concat((in_0, in_0), 2)",
            "torch.cat(tensors=[in_0, in_0], dim=2)",
        ],
    ),
    "masked_fill": (
        [lambda x, m: x.masked_fill(m, float("-inf")), lambda x, m: torch.masked_fill(x, m, value=float("-inf"))],
        ["in_0.masked_fill(in_1, -inf)", "torch.masked_fill(in_0, in_1, float('-inf'))"],
    ),
    "clamp": (
        [lambda x: x.clamp(min=0), lambda x: torch.clamp(x, 0, None), lambda x: torch.clip(x, min=0.0)],
        ["in_0.clamp(0)", "torch.clamp(in_0, min=0)"],
    ),
    "var": (
        [lambda x: x.var(-1, unbiased=False), lambda x: torch.var(x, dim=-1, correction=0)],
        ["in_0.var(-1, False)", "torch.var(in_0, 2, correction=0)"],
    ),
    "where": (
        [lambda x, y: torch.where(x > 0, x, y), lambda x, y: x.where(x.gt(0), y)],
        ["torch.where(in_0 > 0, in_0, in_1)", "in_0.where(torch.gt(in_0, 0), in_1)"],
    ),
    "mse_loss": (
        [
            lambda x, y: F.mse_loss(x, y),
            lambda x, y: F.mse_loss(x, y, reduction="mean"),
            lambda x, y: aten.mse_loss(x, y),
        ],
        ["torch.nn.functional.mse_loss(in_0, in_1)", "torch.nn.functional.mse_loss(in_0, in_1, reduction='mean')"],
    ),
    "arange": (
        [lambda x: x + torch.arange(8, device=x.device), lambda x: torch.arange(8) + x],
        ["in_0 + torch.arange(8, device=device(type='cpu'))"],
    ),
}
PAIRS = [
    pytest.param(pattern, target, id=f"{name}-{i}-{j}")
    for name, (patterns, targets) in FAMILIES.items()
    for i, pattern in enumerate(patterns)
    for j, target in enumerate(targets)
]


def _inputs(pattern: object, target: str) -> list[torch.Tensor]:
    x = torch.randn(4, 6, 8)
    if "in_1" not in target:
        return [x]
    if "layer_norm" in target:
        return [x, torch.randn(8)]
    if "masked_fill" in target:
        return [x, torch.randn(4, 6, 8) > 1]
    return [x, torch.randn(4, 8, 6) if "matmul" in target or "@" in target else torch.randn(4, 6, 8)]


@pytest.mark.parametrize(("pattern", "target"), PAIRS)
def test_spellings_of_one_call_match(pattern, target):
    check(f"return ({target},)", pattern, *_inputs(pattern, target))


NEAR_MISSES = [
    (lambda x: F.softmax(x, dim=1), "torch.softmax(in_0, -1)", "argument dim: expected 1, found -1"),
    (lambda x: F.dropout(x, 0.1, True), "torch.nn.functional.dropout(in_0, 0.1, False)", "argument training"),
    (lambda x: F.dropout(x, 0.2, False), "torch.nn.functional.dropout(in_0, 0.1, False)", "argument p"),
    (lambda x: F.gelu(x, approximate="tanh"), "torch.nn.functional.gelu(in_0)", "approximate: expected 'tanh'"),
    (lambda x: x - 2, "2 - in_0", "sub"),
    (lambda x: x + 2, "torch.add(in_0, 2, alpha=3)", "alpha"),
    (lambda x: x + 2, "in_0 + 3", "expected 2, found 3"),
    (lambda x: x.view(4, 48), "in_0.reshape(4, 48)", "no view"),
    (lambda x: x.view(6, -1), "in_0.view(4, 48)", "size"),
    (lambda x: x.transpose(0, 1), "in_0.transpose(1, 2)", "transpose"),
    (lambda x: x.mean(-1), "in_0.mean(-1, keepdim=True)", "keepdim"),
    (lambda x: x.to(torch.float16), "in_0.double()", "dtype"),
    (
        lambda x: F.layer_norm(x, (8,), eps=1e-5),
        "torch.nn.functional.layer_norm(in_0, (8,), None, None, 1e-06)",
        "argument eps: expected 1e-05, found 1e-06",
    ),
    (lambda x: x[:, :3], "in_0[:, :4]", "index: expected 3, found 4"),
    (lambda x: x[:, :3], "in_0[:3]", "index"),
    (lambda x: torch.cat([x, x], 1), "torch.cat([in_0, in_0], 0)", "dim"),
    (lambda x: x.relu(), "in_0.sigmoid()", "the graph has no relu; it has sigmoid"),
    (lambda x: torch.relu(x).sigmoid(), "in_0.tanh().sigmoid()", "expected relu, found tanh (tanh)"),
    (lambda x: F.mse_loss(x, x), "torch.nn.functional.mse_loss(in_0, in_0, reduction='sum')", "argument reduction"),
    (lambda x: x.var(-1), "in_0.var(-1, unbiased=False)", "correction"),
    (lambda x: x * x, "in_0 * in_1", "expected in_"),
    (lambda x: x.squeeze(), "in_0.squeeze(())", "argument dim: expected None, found ()"),
    (lambda x: (x > 0).any(), "(in_0 > 0).any(dim=())", "argument dim: expected None, found ()"),
    (lambda x: x[None], "in_0[False]", "argument index: expected None, found False"),
]


@pytest.mark.parametrize(("pattern", "target", "why"), NEAR_MISSES)
def test_near_misses_do_not_match_and_say_why(pattern, target, why):
    tensors = [torch.randn(4, 6, 8)] * (2 if "in_1" in target else 1)
    result, before = rewrite(f"return ({target},)", pattern, *tensors)
    assert result.module is before
    assert why in result.reports[0].miss


@pytest.mark.parametrize(
    ("pattern", "body"),
    [
        (lambda x: x << 1, "return (in_0.__lshift__(1),)"),
        (lambda x: x.__rshift__(1), "return (in_0 >> 1,)"),
        (lambda x: (x + 1).__irshift__(1) * 3, "a = in_0 + 1\na.__irshift__(1)\nreturn (a * 3,)"),
    ],
)
def test_spellings_of_a_shift_match(pattern, body):
    check(body, pattern, torch.arange(8))


def test_two_and_two_point_zero_differ_for_integers():
    result, _ = rewrite("return (in_0 * 2,)", lambda x: x * 2.0, torch.ones(3, dtype=torch.int64))
    assert not result.matches


def test_minus_one_in_expand_keeps_the_size_of_the_input():
    result, _ = rewrite("return (in_0.expand(5, 8),)", lambda x: x.expand(-1, 8), torch.ones(1, 8))
    assert not result.matches


def test_a_transposition_of_a_matrix_is_none_of_the_last_dimensions_of_more():
    cube = torch.randn(4, 6, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch deprecates T of other ranks
        check("return (in_0.T + 1,)", lambda x: x.transpose(-2, -1) + 1, cube, matches=0)
        check("return (in_0.mT + 1,)", lambda x: x.transpose(-2, -1) + 1, cube)
        check("return (in_0.T + 1,)", lambda x: x.transpose(-2, -1) + 1, cube[0])
        for pattern in (lambda x: x.T + 1, lambda x: x.t() + 1):
            check("return (in_0.transpose(-2, -1) + 1,)", pattern, cube, matches=0)
            check("return (in_0.transpose(-2, -1) + 1,)", pattern, cube[0])
            check("return (in_0.T + 1,)", pattern, cube[0])
