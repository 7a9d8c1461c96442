"""Passes in graphs: what they match, what replaces it, and that the results stay the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_passbench.reader.importing import LoadedPass
from pytest_passbench.rewrite.passes import PassError
from support.reference_passes import apply_passes, check, graph, reference, rewrite


def x(*shape):
    return torch.randn(*(shape or (4, 8)))


def make(name, pattern, arguments, wrapper):
    return LoadedPass(name, pattern, arguments, lambda: wrapper, wrapper, Path(f"{name}.py"))


def apply(body, passes, *tensors):
    before = graph(body, len(tensors))
    with torch.no_grad():
        result = apply_passes(before, passes, list(tensors))
        torch.testing.assert_close(result.module(*tensors), before(*tensors))
    return result


# -- what is found --


def test_a_chain_becomes_one_call():
    body = """
    a = torch.nn.functional.linear(in_0, in_1, in_2)
    b = torch.nn.functional.gelu(a)
    return (b * 2,)
    """
    result = check(body, lambda x, w, b: F.gelu(F.linear(x, w, b)), x(4, 8), x(3, 8), x(3))
    assert result.reports[0].operators == result.covered == ["linear", "gelu"]
    assert result.operators == ["linear", "gelu", "mul"]
    assert [n.op for n in result.module.graph.nodes].count("call_function") == 2


def test_two_outputs():
    body = """
    a = in_0 + in_1
    b = torch.nn.functional.layer_norm(a, (8,))
    return (a, b)
    """

    def pattern(x, y):
        s = x + y
        return s, F.layer_norm(s, (8,))

    check(body, pattern, x(), x())


def test_two_outputs_that_no_operator_joins():
    def pattern(x):
        return x.sin(), x.cos()

    result = check("a = in_0.sin()\nb = in_0.exp()\nc = in_0.cos()\nreturn (c, b, a)", pattern, x())
    assert result.covered == ["sin", "cos"]


def test_two_outputs_and_a_user_between_them():
    def pattern(x, y):
        a = x.sin()
        return a, a * y

    body = """
    a = in_0.sin()
    u = a.exp()
    w = in_1.abs()
    b = a * w
    return (u + b, a)
    """
    check(body, pattern, x(), x())


def test_three_places():
    body = """
    a = torch.relu(in_0 + in_1)
    b = torch.relu(a + in_0)
    c = torch.relu(in_1 + b)
    return (c,)
    """
    result = check(body, lambda x, y: torch.relu(x + y), x(), x(), matches=3)
    assert len(result.covered) == 6


def test_overlapping_places_are_taken_once():
    check("return (in_0.relu().relu().relu(),)", lambda x: x.relu().relu(), x(), matches=1)


def test_a_tuple_of_one_is_a_tuple():
    check("return (in_0.sin().cos(),)", lambda x: (x.sin().cos(),), x())


def test_a_pattern_that_returns_a_tensor_s_pieces():
    def pattern(x):
        a, b = x.chunk(2, dim=-1)
        return F.silu(a) * b

    body = """
    c = in_0.chunk(2, dim=-1)
    a = c[0]
    b = c[1]
    return (torch.nn.functional.silu(a, inplace=False) * b,)
    """
    result = check(body, pattern, x())
    assert result.covered == ["chunk", "silu", "mul"]


def test_commutative_operands_in_both_orders_and_deep():
    def pattern(x, y, z):
        return (x.sin() + y.cos()) * (y.cos() + z.exp())

    body = """
    c = in_1.cos()
    a = c + in_0.sin()
    b = in_2.exp() + c
    return (b * a,)
    """
    check(body, pattern, x(), x(), x())


def test_operands_of_which_one_is_scaled_keep_their_order():
    def pattern(x, y, scale):
        return torch.add(x.sin(), y, alpha=scale)

    check("return (torch.add(in_0.sin(), in_1, alpha=2),)", pattern, x(), x())
    check("return (torch.add(in_1, in_0.sin(), alpha=1),)", pattern, x(), x())
    check("return (torch.add(in_1, in_0.sin(), alpha=2),)", pattern, x(), x(), matches=0)


def test_a_repeated_argument_binds_one_value():
    check("return (in_0.sin() + in_0,)", lambda a: a.sin() + a, x())
    result, _ = rewrite("return (in_0.sin() + in_1,)", lambda a: a.sin() + a, x(), x())
    assert "argument input: expected in_1, found in_0" in result.reports[0].miss


def test_arguments_bind_literals():
    got = []

    def wrapper(x, *rest):
        got.append(rest)
        return F.layer_norm(x, (8,), None, None, 1e-6)

    pattern = lambda x, w, b, eps: F.layer_norm(x, (8,), w, b, eps)  # noqa: E731
    item = make("p", pattern, lambda x, w, b, eps: (x, w, b, eps), wrapper)
    apply("return (torch.nn.functional.layer_norm(in_0, (8,), None, None, 1e-6),)", [item], x())
    assert got == [(None, None, 1e-6)]


def test_sizes_written_out_match_sizes_asked_for_and_back():
    asked = "b = in_0.size(0)\nt = in_0.shape[1]\nv = in_0.view(b, t // 2, 2)\nreturn (v.transpose(1, 2),)"
    written = "return (in_0.view(4, 4, 2).transpose(1, 2),)"
    for body in (asked, written):
        check(body, lambda x: x.view(4, 4, 2).transpose(1, 2), x())
        check(body, lambda x: x.view(x.size(0), x.size(1) // 2, 2).transpose(1, 2), x())
        check(body, lambda x, b, t: x.view(b, t, 2).transpose(1, 2), x())
    result, _ = rewrite(written, lambda x: x.view(x.size(1), -1, 2).transpose(1, 2), x())
    assert "size" in result.reports[0].miss


def test_sizes_of_a_value_inside_the_match():
    body = "a = in_0.relu()\nb = a.size(-1)\nreturn (a / b,)"
    check(body, lambda x: x.relu() / 8, x())

    def pattern(x):
        a = x.relu()
        return a / a.shape[-1]

    check(body, pattern, x())


def test_scalars_of_metadata_in_the_target_fold_through_arithmetic():
    body = "n = in_0.shape[-1] ** -0.5\nreturn ((in_0 * n).softmax(-1),)"
    check(body, lambda x, s: (x * s).softmax(-1), x())


def test_factories_and_devices_in_patterns():
    def pattern(x):
        device = torch.device(type="cpu")
        return x + torch.arange(8, device=device).to(torch.float32)

    check("return (in_0 + torch.arange(8, device=device(type='cpu')).float(),)", pattern, x())
    check("return (in_0.to(torch.device('cpu')).sin(),)", lambda x: x.to(torch.device("cpu")).sin(), x())


@pytest.mark.parametrize("size", ["in_0.relu().nonzero().shape[0]", "(in_0[in_0 > 0] * 2).numel()"])
def test_a_size_that_elements_decide_is_no_constant(size):
    result = check(f"return (in_0.sin().cos() * {size},)", lambda x: x.sin().cos(), x())
    for inputs in (x(), x() - 1, torch.zeros(4, 8)):
        torch.testing.assert_close(result.module(inputs)[0], inputs.sin().cos() * (inputs > 0).sum())
    with pytest.raises(PassError, match="a number that elements decide, which no kernel can get"):
        rewrite(f"n = {size}\nreturn (in_0.sin() * n,)", lambda x, n: x.sin() * n, x())


@pytest.mark.parametrize("value", ["(in_0 > 0)[0]", "in_0.repeat_interleave(2, 1)[0]"])
def test_a_size_behind_an_operator_that_could_be_decided_by_elements_is_a_constant(value):
    size = 16 if "repeat" in value else 8
    check(f"n = {value}.shape[0]\nreturn (in_0.sin() * n,)", lambda x: x.sin() * size, x())


@pytest.mark.parametrize("strided", [torch.ones(1, 8).expand(4, 8), torch.randn(8, 8)[::2, ::4]])
def test_strides_that_a_graph_asks_for_are_those_of_its_inputs(strided):
    first = strided.stride(0)
    result, _ = rewrite("return (in_0.sin() + in_0.stride(0),)", lambda x: x.sin() + first, strided)
    assert result.reports[0].matches == 1


# -- what does not match --


def test_a_value_used_outside_must_be_returned():
    body = "a = in_0.sin()\nreturn (a.cos(), a)"
    result, _ = rewrite(body, lambda x: x.sin().cos(), x())
    assert "is used outside the match, by the graph's output" in result.reports[0].miss
    check(body, lambda x: ((a := x.sin()), a.cos()), x())


def test_no_path_may_leave_the_match_and_return():
    body = "a = in_0.sin()\nb = a.exp()\nreturn (a.cos() + b, a)"

    def pattern(x, y):
        a = x.sin()
        return a, a.cos() + y

    result, _ = rewrite(body, pattern, x())
    assert "depends on one that it produces" in result.reports[0].miss


def test_the_nearest_place_is_named():
    body = """
    a = torch.nn.functional.gelu(in_0)
    b = a + in_1
    c = torch.nn.functional.layer_norm(b, (8,), None, None, 1e-06)
    return (c,)
    """
    result, _ = rewrite(body, lambda x, y: F.layer_norm(F.relu(x) + y, (8,), None, None, 1e-6), x(), x())
    assert "expected relu, found" in result.reports[0].miss
    result, _ = rewrite(body, lambda x, y: F.layer_norm(F.gelu(x) + y, (8,)), x(), x())
    assert "nearest: layer_norm (" in result.reports[0].miss
    assert "argument eps: expected 1e-05, found 1e-06" in result.reports[0].miss
    result, _ = rewrite(body, lambda x, y: F.softmax(F.gelu(x) + y, -1), x(), x())
    assert "no softmax" in result.reports[0].miss


def test_identities_that_a_kernel_replaces_are_covered():
    body = "a = torch.nn.functional.dropout(in_0, 0.1, False, False)\nb = a.contiguous().detach()\nreturn (b,)"
    result = check(body, lambda x: F.dropout(x, 0.1, False).contiguous().detach(), x())
    assert result.covered == ["dropout", "contiguous", "detach"]


# -- several passes, routes, arguments --


def test_passes_apply_in_order_each_on_the_result_of_the_former():
    first = reference(lambda x: x.sin().cos(), "first")
    second = reference(lambda x, y: (x + y).exp(), "second")
    third = reference(lambda x: x.sin(), "third")
    result = apply("return ((in_0.sin().cos() + in_1).exp(),)", [first, second, third], x(), x())
    assert [r.matches for r in result.reports] == [1, 1, 0]
    assert result.covered == ["sin", "cos", "add", "exp"]


def test_two_routes_share_one_wrapper():
    def dispatch(x, route):
        return {"sin": torch.sin, "cos": torch.cos}[route](x)

    one = make("one", lambda x: x.sin(), lambda x: (x, "sin"), dispatch)
    two = make("two", lambda x: x.cos(), lambda x: (x, "cos"), dispatch)
    result = apply("return (in_0.sin() + in_0.cos(),)", [one, two], x())
    assert [r.matches for r in result.reports] == [1, 1]


def test_what_replacement_args_computes_is_reported():
    got = []
    item = make(
        "p",
        lambda x: x.view(2, 16).relu(),
        lambda x: (x.reshape(-1, 16), x.shape[0], x.dtype),
        lambda x, n, d: got.append((n, d)) or x.relu(),
    )
    result = apply("return (in_0.view(2, 16).relu(),)", [item], x())
    assert result.reports[0].computed == ["reshape"]
    assert got == [(4, torch.float32)]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (lambda x: (x[[0, 1, 2, 3]],), ["getitem (an index that is not a slice)"]),
        (lambda x: (x[torch.arange(4)],), ["arange", "getitem (an index that is not a slice)"]),
        (lambda x: (x[x > -1e9].view(4, 8),), ["getitem (an index that is not a slice)", "gt", "view"]),
        (lambda x: (x[0:4, :],), ["getitem"]),
        (lambda x: (x.to(torch.float64),), ["to (a cast)"]),
        (lambda x: (x.to(torch.float32),), ["to"]),
    ],
)
def test_an_index_that_is_no_slice_and_a_cast_are_reported_as_such(arguments, names):
    item = make("p", lambda x: x.relu(), arguments, lambda x: x.float().relu())
    result = apply("return (in_0.relu(),)", [item], x())
    assert sorted(result.reports[0].computed) == names


def test_replacement_args_may_order_drop_and_nest():
    item = make(
        "p", lambda x, y, z: x + y.sin(), lambda y, x: ([y, x], {"k": 1}), lambda pair, more: pair[1] + pair[0].sin()
    )
    apply("return (in_0 + in_1.sin(),)", [item], x(), x())


def test_a_wrong_number_of_results_is_the_kernel_s_error():
    item = make("p", lambda x: (x.sin(), x.cos()), lambda x: (x,), lambda x: x.sin())
    before = graph("return (in_0.sin(), in_0.cos())")
    with torch.no_grad():
        result = apply_passes(before, [item], [x()])
        with pytest.raises(RuntimeError, match="returned Tensor, the pattern returns 2"):
            result.module(x())


@pytest.mark.parametrize(
    ("pattern", "arguments", "message"),
    [
        (lambda x: x, lambda x: (x,), "returns no value that it computed"),
        (lambda *x: x[0].sin(), lambda x: (x,), "name every argument"),
        (lambda x: x.sin(), lambda y: (y,), "takes y; pattern has no such argument"),
        (lambda x: x.sin(), lambda x: x, "must return a tuple"),
        (lambda x, y: x.sin(), lambda x, y: (x, y), "argument y is not used in pattern"),
        (lambda x: x.sin() if x.sum() > 0 else x, lambda x: (x,), "pattern cannot be traced"),
        (lambda x: torch.nope(x), lambda x: (x,), "no attribute 'nope'"),
    ],
)
def test_a_pass_that_cannot_be_traced(pattern, arguments, message):
    item = make("bad", pattern, arguments, torch.sin)
    with pytest.raises(PassError, match=message):
        apply_passes(graph("return (in_0.sin(),)"), [item], [x()])


def test_the_graph_given_stays_as_it_is():
    before = graph("return (in_0.sin().cos(),)")
    code = before.code
    apply_passes(before, [reference(lambda x: x.sin().cos())], [x()])
    assert before.code == code


# -- in place --


def test_in_place_on_an_intermediate_is_as_out_of_place():
    body = "a = in_0 * 2\na += in_1\nb = torch.nn.functional.relu(a, inplace=True)\nreturn (b,)"
    result = check(body, lambda x, y: torch.relu(x + y), x(), x())
    assert result.covered == ["add", "relu"]


def test_patterns_in_place_match_both_forms():
    def pattern(x, y):
        z = x * 2
        z += y
        F.relu(z, inplace=True)
        return z

    check("a = in_0 * 2\na += in_1\nreturn (a.relu_(),)", pattern, x(), x())
    check("return (torch.relu(in_0 * 2 + in_1),)", pattern, x(), x())


def test_a_graph_input_written_in_place_stays_written():
    body = "in_0 += in_1\nreturn (in_0.relu(), in_0)"
    check(body, lambda x, y: ((a := x + y), a.relu()), x(), x())
    check("a = in_0.add_(in_1)\nb = a.relu_()\nreturn (b,)", lambda x, y: (x + y).relu(), x(), x())
    check("in_0[:2].add_(1)\nreturn (in_0.sin(),)", lambda x: x.sin(), x())


def hardtanh_pool(x):
    t = F.hardtanh(x, 0.0, 6.0, True)
    return F.adaptive_avg_pool2d(t, (1, 1))


POOLED = """
t = torch.nn.functional.hardtanh({0}, 0.0, 6.0, True)
r = torch.nn.functional.adaptive_avg_pool2d(t, (1, 1))
"""


def image():
    return torch.randn(2, 3, 4, 4) * 4


def test_a_write_that_nobody_else_sees_goes_with_the_match():
    body = "a = in_0 * 2\nb = a.sum()" + POOLED.format("a") + "return (r, b)"
    result = check(body, hardtanh_pool, image())
    assert result.covered == ["hardtanh", "adaptive_avg_pool2d"]


@pytest.mark.parametrize(
    "body",
    [
        POOLED.format("in_0") + "return (r,)",
        POOLED.format("in_0") + "return (r, in_0 + 1)",
        "a = in_0 * 2" + POOLED.format("a") + "return (r, a + 1)",
        "a = in_0 * 2" + POOLED.format("a") + "return (r, t)",
        "a = in_0 * 2\nv = a.view(-1)" + POOLED.format("a") + "return (r, v)",
        "a = in_0 * 2\nv = a.view(-1)" + POOLED.format("a") + "v.add_(1)\nreturn (r, t.sin())",
    ],
    ids=("input", "input read later", "tensor read later", "result", "view", "written again"),
)
def test_a_write_that_others_see_stays_for_its_effect(body):
    result = check(body, hardtanh_pool, image())
    assert result.covered == ["adaptive_avg_pool2d"]
    assert result.reports[0].operators == ["adaptive_avg_pool2d"]


def test_a_write_stays_together_with_what_it_needs():
    def pattern(x, y):
        x += y.sin()
        return x.cos()

    result = check("in_0 += in_1.sin()\nreturn (in_0.cos(),)", pattern, x(), x())
    assert result.covered == ["cos"]
    result = check("a = in_0.add_(in_1)\nreturn (a.relu(),)", lambda x, y: (x + y).relu(), x(), x())
    assert result.covered == ["relu"]


def test_a_write_that_is_all_there_is_cannot_stay():
    result, _ = rewrite("in_0.view(2, 16).add_(1)\nreturn (in_0.sin(),)", lambda x: x.view(2, 16) + 1, x())
    assert "without it nothing is left to replace" in result.reports[0].miss


def test_a_write_cannot_move_past_who_reads_it_through_a_view():
    def pattern(x):
        t = x.relu()
        return t, t.cos()

    body = "a = in_0 * 2\nv = a.view(2, 16)\nt = a.relu_()\ns = v.sin()\nc = t.cos()\nreturn (s, c, t)"
    result, _ = rewrite(body, pattern, x())
    assert "s reads what t writes in place before the match ends" in result.reports[0].miss
    check(body.replace("s = v.sin()\nc = t.cos()", "c = t.cos()\ns = v.sin()"), pattern, x())


def test_an_augmented_assignment_in_a_pattern_is_a_write():
    def pattern(x):
        a = x * 2
        v = a.view(2, 16)
        v += 1
        return a.sin()

    check("a = in_0 * 2\na.view(2, 16).add_(1)\nreturn (a.sin(),)", pattern, x())
    result, _ = rewrite("a = in_0 * 2\nv = a.view(2, 16) + 1\nreturn (a.sin(),)", pattern, x())
    assert "reads a tensor that v writes, in another order than in pattern" in result.reports[0].miss


def test_numbers_of_a_pattern_have_no_writes():
    def pattern(x):
        n = m = x.size(0)
        m += 4
        return x.view(n, -1).relu(), x.view(m, -1).relu()

    check("return (in_0.view(4, -1).relu(), in_0.view(8, -1).relu())", pattern, x())


def test_arguments_that_share_memory_with_a_written_one():
    def pattern(x, y):
        x += 1
        return y.relu(), x.abs()

    check("v = in_0[:2]\nv += 1\nreturn (in_1.relu(), v.abs())", pattern, x(), x())
    result, _ = rewrite("v = in_0[:2]\nv += 1\nreturn (in_0.relu(), v.abs())", pattern, x())
    assert "reads a tensor that iadd writes, in another order than in pattern" in result.reports[0].miss
    result, _ = rewrite("v = in_0.t()\nin_0 += 1\nreturn (v,)", lambda x, y: (x.t(), y.add_(1))[0], x())
    assert "the match returns a tensor that iadd writes, in another order than in pattern" in result.reports[0].miss
    body = "v = in_0.view(-1)\na = in_0.add_(1)\nreturn (a.view(-1) * v,)"
    result, _ = rewrite(body, lambda x, y: (x + 1).view(-1) * y, x())
    assert "reads a tensor that a writes, in another order than in pattern" in result.reports[0].miss


def test_the_operand_that_a_pattern_writes_to_is_a_tensor():
    def pattern(x, y):
        x.add_(y)
        return x.abs()

    check("return ((in_0 + 2).abs(),)", pattern, x())
    check("return ((2 + in_0).abs(),)", pattern, x())


def test_a_pattern_that_writes_to_the_other_operand():
    def pattern(x, y):
        v = y.view(-1)
        y += x
        return y.abs(), v.sin()

    check("v = in_1.view(-1)\nin_1 += in_0\nreturn (in_1.abs(), v.sin())", pattern, x(), x())
    body = "v = in_1.view(-1)\na = in_0 + in_1\nreturn (a.abs(), v.sin())"
    result, _ = rewrite(body, pattern, x(), x())
    assert "sin reads a tensor that a writes, in another order than in pattern" in result.reports[0].miss


def test_a_view_that_the_match_returns_and_changes():
    body = "v = in_0.view(-1)\na = in_0.add_(1)\nreturn (v, a.sin())"
    result, _ = rewrite(body, lambda x: (x.view(-1), (x + 1).sin()), x())
    assert "the match returns a tensor that a writes, in another order than in pattern" in result.reports[0].miss
    check(body, lambda x: (x.view(-1), x.add_(1).sin()), x())


def test_reading_behind_a_write_of_others_is_no_conflict():
    def pattern(a, b):
        return a.relu() + b.tanh()

    body = "t0 = in_0.relu()\nt1 = in_1 * 3\nt1 += 2\nreturn (t0 + t1.tanh(),)"
    result = check(body, pattern, x(), x())
    assert result.covered == ["relu", "tanh", "add"]
    body = "t0 = in_0.relu()\nt1 = in_0\nt1 += 2\nreturn (t0 + t1.tanh(),)"
    result, _ = rewrite(body, pattern, x())
    assert "in place between the operators" in result.reports[0].miss


def test_an_early_use_moves_unless_a_write_is_in_the_way():
    def pattern(x, y):
        a = x.sin()
        return a, a * y

    body = "a = in_0.sin()\nu = a + 1\nw = in_1.abs()\n{}\nb = a * w\nreturn (u, b, w)"
    check(body.format("w += 1"), pattern, x(), x())
    body = "c = in_1 * 2\na = in_0.sin()\nu = a + c\nw = in_1.abs()\nc += 1\nb = a * w\nreturn (u, b, c)"
    result, _ = rewrite(body, pattern, x(), x())
    assert "u uses a result before iadd writes in place" in result.reports[0].miss


def test_a_write_through_a_view_is_seen_by_the_base():
    body = "a = in_0 * 2\nv = a.view(2, 16)\nv += 1\nreturn (a,)"
    check(body, lambda v: v + 1, x())
    body = "a = in_0 * 2\nv = a.view(2, 16)\nv += 1\nreturn (a, v.sin())"
    result = check(body, lambda v: (v + 1).sin(), x())
    assert result.covered == ["sin"]


def test_a_write_between_the_operators_of_a_match():
    body = "a = in_0.sin()\nin_0.add_(1)\nreturn (a + in_0,)"
    check(body, lambda a, b: a + b, x(), matches=2)
    body = "a = in_0.sin()\nb = in_1.add_(1)\nin_0.mul_(2)\nreturn (a * b,)"
    result, _ = rewrite(body, lambda a, b: a.sin() * b, x(), x())
    assert "in place between the operators" in result.reports[0].miss


def test_a_view_that_is_written_to_later():
    body = "a = in_0 * 2\nv = a.transpose(0, 1)\nv.add_(1)\nreturn (a,)"
    result, _ = rewrite(body, lambda a: a.transpose(0, 1), x())
    assert "later changes a tensor in place" in result.reports[0].miss


def test_assignment_to_a_slice_is_a_write():
    body = "a = in_0 * 2\na[0] = 1.0\nreturn (a.sin(),)"
    check(body, lambda a: a.sin(), x())


def test_a_read_behind_a_write_through_a_view_must_be_behind_it_in_the_pattern_too():
    def before(x):
        a = x * 2
        b = a.sin()
        a.view(2, 16).add_(1)
        return b

    def after(x):
        a = x * 2
        a.view(2, 16).add_(1)
        return a.sin()

    texts = (
        "a = in_0 * 2\nb = a.sin()\nv = a.view(2, 16).add_(1)\nreturn (b,)",
        ("a = in_0 * 2\nv = a.view(2, 16).add_(1)\nreturn (a.sin(),)"),
    )
    check(texts[0], before, x())
    check(texts[1], after, x())
    for text, pattern in ((texts[0], after), (texts[1], before)):
        result, _ = rewrite(text, pattern, x())
        assert "in another order than in pattern" in result.reports[0].miss


# -- the law: a graph rewritten with the pattern itself computes the same --

UNARY = ["sin()", "cos()", "relu()", "tanh()", "exp()", "relu_()", "sin_()", "view(3, 4)", "detach()"]
BINARY = ["+", "*", "-", "+="]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(UNARY), st.integers(0, 30)),
        st.tuples(st.sampled_from(BINARY), st.integers(0, 30), st.integers(0, 30)),
    ),
    min_size=1,
    max_size=9,
)
PATTERNS = [
    lambda x: x.sin(),
    lambda x, y: x + y,
    lambda x, y: (x + y).relu(),
    lambda x: x.relu().sin(),
    lambda x, y: ((a := x * y), a + x),
    lambda x: (x.sin(), x.cos()),
    lambda x, y: ((a := x + y), a.tanh(), a * y),
    lambda x: (x.view(3, 4), x.sin()),
    lambda x: (x.relu(), x.view(3, 4).sin()),
    lambda x: ((a := x.sin()), a.view(3, 4).relu_(), a.cos())[1:],
]  # fmt: skip


def program(steps, returned):
    values, lines = ["in_0", "in_1"], []
    for i, (name, *operands) in enumerate(steps):
        chosen = [values[k % len(values)] for k in operands]
        if name == "+=":
            lines.append(f"{chosen[0]} += {chosen[1]}")
            continue
        values.append(f"v{i}")
        call = f"{chosen[0]} {name} {chosen[1]}" if len(chosen) == 2 else f"{chosen[0]}.{name}"
        lines.append(f"v{i} = {call}")
    lines.append("return (" + ", ".join(values[k % len(values)] for k in returned) + ",)")
    return "\n".join(lines)


@settings(max_examples=300)
@given(
    steps,
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
    st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=2),
)
def test_rewriting_with_the_reference_changes_nothing(steps, returned, patterns):
    before = graph(program(steps, returned), 2)
    tensors = [torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)]
    with torch.no_grad():
        result = apply_passes(before, [reference(p, f"p{i}") for i, p in enumerate(patterns)], tensors)
        one, other = [t.clone() for t in tensors], [t.clone() for t in tensors]
        expected, found = before(*one), result.module(*other)
    torch.testing.assert_close(found, expected, equal_nan=True)
    torch.testing.assert_close(other, one, equal_nan=True)
