"""Source text to graphs: both published styles load, nothing is executed, what is not allowed is named."""

from __future__ import annotations

import math
import operator
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from pytest_passbench.core.errors import UserError
from pytest_passbench.suite.build import build_graph
from pytest_passbench.suite.source import parse

CODEGEN = """
import torch
from torch import device, inf

class GraphModule(torch.nn.Module):
    def forward(self, in_0 : torch.Tensor, in_1: "f32[4, 3, 1, 1]", s0 : torch.SymInt, in_2 : torch.Tensor):
        tmp_0 = torch.conv2d(in_0, in_1, None, (1, 1), (0, 0), (1, 1), 1);  in_0 = in_1 = None
        tmp_1 = torch.sigmoid(tmp_0);  tmp_0 = None
        tmp_1 += 1
        tmp_2 = tmp_1;  tmp_1 = None
        split = torch.functional.split(tmp_2, [1, 3], dim = 1);  tmp_2 = None
        getitem = split[0]
        getitem_1 = split[1];  split = None
        tmp_3 = getitem_1[(slice(None, None, None), 0, Ellipsis, None, slice(1, -1, 2))];  getitem_1 = None
        tmp_4 = torch.full((2, 2), -inf, dtype = torch.float32, device = device(type='cuda', index=0))
        _check_is_size = torch._check_is_size(s0);  _check_is_size = None
        sym_sum = torch.sym_sum([s0, 2]);  s0 = sym_sum = None
        tmp_5 = torch.ops.aten.gelu.default(in_2)
        matmul = in_2 @ in_2.mT;  in_2 = None
        return (getitem, tmp_3, tmp_4, tmp_5, matmul)
"""

PLAIN = """
import torch

class GraphModule(torch.nn.Module):

    def forward(self, in_0, in_1, s0, in_2):
        tmp_0 = torch.conv2d(in_0, in_1)
        in_0 = in_1 = None
        tmp_1 = tmp_0.sigmoid().add_(1)
        (a, b) = torch.functional.split(tmp_1, [1, 3], dim=1)
        tmp_3 = b[:, 0, ..., None, 1:-1:2]
        tmp_4 = torch.full((2, 2), float('-inf'), device=device('cuda:0'))
        n = torch.sym_sum([s0, in_2.size(0)])
        tmp_5 = torch._C._nn.gelu(in_2.to('cuda:0').cuda())
        return (a, tmp_3, tmp_4, tmp_5, torch.matmul(in_2, in_2.transpose(-1, -2)))
"""


def graph(body: str, arguments: str = "x") -> torch.fx.GraphModule:
    return build_graph(f"def forward({arguments}):\n    {body}\n", "task.yaml")


@pytest.mark.parametrize("source", [CODEGEN, PLAIN], ids=["codegen", "plain"])
def test_both_code_styles_compute_what_they_say(source):
    image, weight, x = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 1, 1), torch.randn(3, 5)
    got = build_graph(source, "model.py")(image, weight, 4, x)
    y = torch.sigmoid(F.conv2d(image, weight)) + 1
    expected = (y[:, :1], y[:, 1:][:, 0, ..., None, 1:-1:2], torch.full((2, 2), -math.inf), F.gelu(x), x @ x.mT)
    assert isinstance(got, tuple)
    for value, right in zip(got, expected, strict=True):
        torch.testing.assert_close(value, right)


def test_placeholders_have_the_names_of_the_arguments():
    gm = build_graph(CODEGEN, "model.py")
    assert [n.name for n in gm.graph.nodes if n.op == "placeholder"] == ["in_0", "in_1", "s0", "in_2"]
    assert parse(CODEGEN, "model.py").inputs == ("in_0", "in_1", "s0", "in_2")


def test_a_node_has_the_name_of_the_variable_that_its_value_is_assigned_to():
    lines = ("a = torch.tanh(x.sin())[0] + 1", "b, c = torch.split(a, 1)", "1 + a", "d = b", "return (c * d,)")
    gm = graph("\n    ".join(lines))
    names = [n.name for n in gm.graph.nodes if n.op not in ("placeholder", "output")]
    assert names == ["sin", "tanh", "getitem", "a", "split", "b", "c", "add", "mul"]


def test_augmented_assignment_becomes_an_in_place_operator():
    gm = graph("x += 1; return x")
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [operator.iadd]
    x = torch.zeros(2)
    gm(x)
    assert x.tolist() == [1, 1]


def test_subscript_stores_change_the_tensor():
    x = torch.zeros(2, 2)
    graph("x[:, 0] = 3; x[0] += 1; return (x,)")(x)
    assert x.tolist() == [[4, 1], [3, 0]]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("torch.zeros(x.shape[0], 2)", torch.zeros(3, 2)),
        ("x.view(torch.Size([1, 3]))", torch.arange(3.0).view(1, 3)),
        ("torch.clamp(x, max=torch.finfo(torch.float16).max / 65504)", torch.tensor([0.0, 1.0, 1.0])),
        ("x ** 2 - -x // 1 % 3", torch.arange(3.0) ** 2 - -torch.arange(3.0) // 1 % 3),
        ("x.to(dtype=torch.int64) == 1", torch.tensor([False, True, False])),
        ("~(x > 0)", torch.tensor([True, False, False])),
        ("getattr(x, 'real') * math.pi", torch.arange(3.0) * math.pi),
        ("torch.where(x > torch.inf, nan, x)", torch.arange(3.0)),
        ("x.contiguous(memory_format=torch.contiguous_format)", torch.arange(3.0)),
        ("torch.linalg.norm(torch.fft.rfft(x).real)", torch.tensor(3.3541)),
        ("torch.linalg.solve(torch.eye(3) * 2, x)", torch.arange(3.0) / 2),
        ("torch.linalg.lstsq(torch.eye(3), x[:, None])[0]", torch.arange(3.0)[:, None]),
        ("torch.linalg.eig(torch.diag(x))[0].real.sort()[0]", torch.arange(3.0)),
        ("operator.getitem((x, x), 1)", torch.arange(3.0)),
        ("torch.special.expit(x)", torch.sigmoid(torch.arange(3.0))),
        ("torch.nn.functional.mse_loss(x, target=x * 2)", torch.tensor(5 / 3)),
    ],
)
def test_expressions(expression, expected):
    (got,) = graph(f"return ({expression},)")(torch.arange(3.0))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_recorded_devices_become_the_runs():
    text = "y = x.cuda(); z = y.to('cuda:1'); return torch.ones(2, device='cuda') + z.to(device(type='cuda'))"
    gm = build_graph(f"def forward(x):\n    {text}", "m.py", device="meta")
    assert gm(torch.ones(2))[0].device.type == "meta"


NO_EFFECT = """
def forward(x):
    log = torch._C._log_api_usage_once('python.nn_module');  log = None
    grad = torch._C._set_grad_enabled(False);  grad = None
    lazy = torch._functorch.predispatch.lazy_load_decompositions();  lazy = None
    entered = torch.amp.autocast_mode._enter_autocast('cuda', None, False, None)
    y = torch.relu(x)
    left = torch.amp.autocast_mode._exit_autocast(entered);  entered = left = None
    return (y,)
"""


def test_what_does_nothing_to_values_is_left_out():
    module = build_graph(NO_EFFECT, "task.yaml")
    assert [node.op for node in module.graph.nodes] == ["placeholder", "call_function", "output"]
    with pytest.raises(UserError, match=r"^task\.yaml:6: operator 'torch.amp.autocast_mode._enter_autocast' is not"):
        build_graph(NO_EFFECT.replace("None, False", "None, True"), "task.yaml")


def test_attention_as_torch_itself_fuses_it_loads():
    width, heads = 8, 2
    layer = torch.nn.MultiheadAttention(width, heads, batch_first=True).eval()
    names = "x, weight, bias, out, out_bias"
    call = f"torch._native_multi_head_attention(x, x, x, {width}, {heads}, weight, bias, out, out_bias, None, False)"
    module = graph(f"y = {call}\n    return (y[0],)", names)
    x = torch.randn(2, 3, width)
    with torch.no_grad():
        weights = layer.in_proj_weight, layer.in_proj_bias, layer.out_proj.weight, layer.out_proj.bias
        assert torch.allclose(module(x, *weights)[0], layer(x, x, x)[0], atol=1e-6)


FORBIDDEN = [
    "torch.load('x')", "torch.save(x, 'f')", "torch.ops.load_library('x')", "torch.compile(x)", "torch.jit.script(x)",
    "torch.from_file('x')", "torch.ops.aten.from_file('x')", "torch.ops.mylib.f(x)", "torch.hub.load('a', 'b')",
    "torch.ops.aten.save(x, 'f')", "torch.ops.aten.manual_seed(1)", "torch.ops.aten.set_grad_enabled(True)",
    "torch.ops.aten._print('x')", "torch.ops.aten.__contains__(x, 1)", "torch.ops.aten",
    "torch.utils.cpp_extension.load('a')", "torch.nn.functional.torch.load('f')", "torch.manual_seed(0)",
    "torch.set_num_threads(1)", "torch.set_default_device('cuda')", "torch.classes.x()", "torch.frombuffer(x)",
    "x.apply_(abs)", "x.numpy()", "x.data_ptr()", "x.__class__", "x.__reduce_ex__(2)", "x.untyped_storage()",
    "x.set_(x)", "x.register_hook(x)", "getattr(x, '__class__')", "getattr(torch, 'load')('f')", "x.grad_fn",
    "operator.attrgetter('a')(x)", "operator.methodcaller('a')(x)", "__import__('os')", "open('f')", "exec('1')",
    "[i for i in x]", "lambda: x", "f'{x}'", "x if x else x", "x and x", "(y := x)", "torch.relu(*x)",
    "torch.relu(**x)", "torch.add(x, torch.load)",
    "torch.finfo(torch.float32)", "torch.finfo(torch.float32).load", "x(1)", "undefined + 1", "b'1'",
    "math.pi.real", "torch.nope(x)", "torch.ops.aten.nope(x)", "0 < x < 1", "x is None",
]  # fmt: skip


@pytest.mark.parametrize("expression", FORBIDDEN)
def test_what_is_not_allowed_is_refused_with_its_place(expression):
    with pytest.raises(UserError, match=r"^task\.yaml:3: "):
        graph(f"z = torch.relu(x)\n    y = {expression}\n    return (x,)")


@pytest.mark.parametrize(
    "source",
    [
        "def forward(x):\n    for i in x:\n        pass\n    return x",
        "def forward(x):\n    if x: return x",
        "def forward(x):\n    return x\n    y = x",
        "def forward(x):\n    y = x",
        "def forward(*x):\n    return x",
        "def forward(x, y=1):\n    return x",
        "@torch.no_grad()\ndef forward(x):\n    return x",
        "import os\ndef forward(x):\n    return x",
        "from subprocess import run\ndef forward(x):\n    return x",
        "print(1)\ndef forward(x):\n    return x",
        "def forward(x):\n    import os\n    return x",
        "def forward(x):\n    x.data = x\n    return x",
        "def forward(x):\n    return 1",
        "def forward(x):\n    return (x, None)",
        "def forward(x):\n    a, b = (x,)\n    return a",
        "class A:\n    def forward(self, x):\n        return self.weight + x",
        "class A:\n    def __init__(self):\n        pass\n    def forward(self, x):\n        return x",
        "def g(x):\n    return x",
        "def forward(x): return x\ndef forward(x): return x",
        "def forward(x:\n    return x",
        "x" * 100 + "\0",
        "def forward(x):\n    return " + "-" * 3000 + "x",
        "def forward(x):\n    return " + "(" * 3000 + "x" + ")" * 3000,
        "",
    ],
)
def test_what_is_not_straight_line_code_is_refused(source):
    with pytest.raises(UserError, match=r"^m\.py:\d+: "):
        build_graph(source, "m.py")


def test_lines_count_from_where_the_text_stands_in_its_file():
    with pytest.raises(UserError, match=r"^t\.yaml:12: operator 'torch.load' is not allowed"):
        build_graph("def forward(x):\n    y = torch.load('f')\n    return (y,)", "t.yaml", line=11)


def test_parsing_imports_no_torch():
    code = (
        "import sys; from pytest_passbench.suite.source import parse; from pytest_passbench.suite import find;"
        "parse('def forward(x): return torch.relu(x)', 'f'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_list_is_repeated_as_often_as_the_text_says() -> None:
    gm = graph("names = [None] * 3\n    y = x[names]\n    return (y,)")
    assert next(n for n in gm.graph.nodes if n.target is operator.getitem).args[1] == [None, None, None]
    for count in ("1001", "10**10"):
        with pytest.raises(UserError, match="a list of more than 1,000 items"):
            graph(f"y = x.sum([0] * {count})\n    return (y,)")
    with pytest.raises(UserError, match="a list of lists or texts is multiplied"):
        graph("y = x.sum([[0] * 9] * 9)\n    return (y,)")


def test_a_list_as_long_as_an_input_says_may_stand_there_unused() -> None:
    gm = graph("cache = [None] * n\n    y = x + 1;  cache = None\n    return (y,)", "x, n")
    assert [n.target for n in gm.graph.nodes if n.op == "call_function"] == [operator.add]
    with pytest.raises(UserError) as caught:
        graph("cache = [0] * n\n    y = x.sum(cache)\n    return (y,)", "x, n")
    message = "a list is used whose length is a value of the graph"
    assert str(caught.value) == f"task.yaml:3: {message} (write the list out)"
