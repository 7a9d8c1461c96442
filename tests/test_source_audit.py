"""The source layer, snippet by snippet: what is refused, under which rule, and what must never be."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from pytest_passbench.candidate.audit import audit
from pytest_passbench.candidate.audit.policy import PolicyName

from pytest_passbench.cli import main
from pytest_passbench.errors import UserError
from pytest_passbench.report.record import Finding

# ruff: noqa: E501 - a snippet is easier to read on one line

PASS = """
import torch
import triton
import triton.language as tl
from pytest_passbench.kernels import cpp
{head}

def pattern(x, y):
    return torch.nn.functional.gelu(x) + y

def replacement_args(x, y):
    return (x, y, "route")

@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n), mask=at < n)

def wrapper(x, y, route):
{body}

def replacement_func():
    return wrapper
"""
Audit = Callable[..., list[Finding]]


@pytest.fixture
def check(tmp_path: Path) -> Audit:
    """Audit one pass with the given wrapper body, module-level head and helper files."""

    def run(body: str, head: str = "", policy: PolicyName = "kernels", **files: str) -> list[Finding]:
        source = PASS.format(head=textwrap.dedent(head), body=textwrap.indent(textwrap.dedent(body).strip(), "    "))
        for name, text in {"a_pass": source, **files}.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        (tmp_path / "sorted_output_pass_rule_names.json").write_text('["a_pass"]')
        return audit(tmp_path, policy)

    return run


def rules(findings: list[Finding], severity: str = "violation") -> set[str]:
    return {finding.rule for finding in findings if finding.severity == severity}


TORCH = {
    "call": "return torch.relu(x)",
    "name fetched": "return getattr(torch, 're' + 'lu')(x)",
    "name by format": "return getattr(torch, '{}{}'.format('re', 'lu'))(x)",
    "name by percent": "return getattr(torch, '%s%s' % ('re', 'lu'))(x)",
    "name by f-string": "return getattr(torch, f\"{'re'}lu\")(x)",
    "name by join": "return getattr(torch, ''.join(['re', 'lu']))(x)",
    "name backwards": "return getattr(torch, 'uler'[::-1])(x)",
    "name from bytes": "return getattr(torch, b'relu'.decode())(x)",
    "name by chr": "return getattr(torch, ''.join([chr(114), chr(101), chr(108), chr(117)]))(x)",
    "name from a dict": "names = {'k': 'relu'}\nreturn getattr(torch, names['k'])(x)",
    "reference alone": "f = torch.relu\nreturn x",
    "unpacked": "f, g = (torch.relu, 1)\nreturn f(x)",
    "list": "return [torch.relu, torch.add][0](x)",
    "lambda": "return (lambda f: f(x))(torch.relu)",
    "comprehension": "return [f(x) for f in (torch.relu,)][0]",
    "default": "def inner(t, f=torch.relu):\n    return f(t)\nreturn inner(x)",
    "nested import": "import torch.nn.functional as anything\nreturn anything.relu(x)",
    "from import": "from torch import relu as harmless\nreturn harmless(x)",
    "walrus": "return (f := torch.relu)(x)",
    "conditional": "return (torch.relu if x.dim() else torch.add)(x)",
    "compiled": "return torch.compile(pattern)(x, y)",
    "no_grad decorator kept": "@torch.no_grad()\ndef inner(t):\n    return torch.relu(t)\nreturn inner(x)",
    "private": "return torch._C._nn.gelu(x)",
    "aten": "return torch.ops.aten.relu.default(x)",
    "unbound method": "return torch.Tensor.relu(x)",
    "type of": "return type(x).relu(x)",
    "the pattern itself": "return pattern(x, y)",
    "the pattern in a table": "return {'p': pattern}['p'](x, y)",
    "fallback": "try:\n    kernel[(1,)](x, y, x, 1, BLOCK=1)\nexcept Exception:\n    return torch.relu(x)",
    "after suppress": "import contextlib\nwith contextlib.suppress(ValueError):\n    raise ValueError\nreturn torch.relu(x)",
}
TENSORS = {
    "add": "return x + y",
    "matmul": "return x @ y",
    "negate": "return -x",
    "compare": "return x > 0",
    "in place": "x += y\nreturn x",
    "slice assign": "x[:] = y\nreturn x",
    "sum": "return sum([x, y])",
    "max": "return max(x, y)",
    "abs": "return abs(x)",
    "pow": "return pow(x, 2)",
    "reduce": "import functools\nreturn functools.reduce(lambda a, b: a + b, [x, y])",
    "operator": "import operator\nreturn operator.add(x, y)",
    "map": "return list(map(lambda t: t * 2, [x]))[0]",
    "starmap": "import itertools\nreturn next(itertools.starmap(lambda a, b: a + b, [(x, y)]))",
    "gather": "return x[y]",
    "gather by list": "return x[[1, 0]]",
    "sort": "return sorted([x, y])[0]",
    "closure": "def inner():\n    return x * 2\nreturn inner()",
    "nonlocal": "t = None\ndef keep():\n    nonlocal t\n    t = x\nkeep()\nreturn t + 1",
    "loop": "a = b = c = 1\nfor i in range(3):\n    a = b\n    b = c\n    c = x\nreturn a + 1",
    "handler": "try:\n    t = x\n    t = 1\nexcept ValueError:\n    return t + 1\nreturn x",
    "generator": "def each():\n    yield x\nreturn next(each()) * 2",
    "property": "class K:\n    @property\n    def t(self):\n        return x\nreturn K().t + 1",
    "attribute": "class K:\n    pass\nk = K()\nk.t = x\nreturn k.t * 2",
    "jit in name": "def work(t):\n    return t @ t\ntriton.jit(work)\nreturn work(x)",
    "context": "import contextlib\n@contextlib.contextmanager\ndef c():\n    yield x\nwith c() as t:\n    return t + 1",
    "item class": "class K:\n    def __getitem__(self, t):\n        return t * 2\nreturn K()[x]",
    "kept in args": "def inner(*args):\n    return args[0] + args[1]\nreturn inner(x, y)",
    "kept in kwargs": "def inner(**kw):\n    return kw['a'] + kw['b']\nreturn inner(a=x, b=y)",
    "copied": "return torch.tensor(x)",
    "cast by as_tensor": "return torch.as_tensor(x, dtype=torch.float16)",
    "cdiv": "return triton.cdiv(x, 2)",
}
METHODS = ["x.relu()", "x.add(y)", "x.contiguous()", "x.clone()", "x.float()", "x.to(torch.float16)", "x.copy_(y)",
           "x.matmul(y)", "x.mul_(2)", "x.sum()", "x.cpu()", "x.numpy()", "x.apply_(len)"]  # fmt: skip
READS = ["float(x)", "int(x)", "bool(x)", "str(x)", "f'{x}'", "'{}'.format(x)", "repr(x)"]
OTHER = {
    "exec('1')": "builtin",
    "eval('1')": "builtin",
    "compile('1', '', 'eval')": "builtin",
    "open('f')": "builtin",
    "globals()": "builtin",
    "vars(torch)": "builtin",
    "setattr(torch, 'relu', None)": "builtin",
    "type('K', (), {})": "builtin",
    "__import__('os')": "dunder",
    "__builtins__": "dunder",
    "x.__class__": "dunder",
    "(1).__class__.__base__.__subclasses__()": "dunder",
    "wrapper.__globals__": "dunder",
    "wrapper.__code__": "dunder",
    "x.__add__(y)": "dunder",
    "torch.__dict__": "dunder",
    "(i for i in ()).gi_frame": "frame",
    "f'{1:{exec(1)}}'": "builtin",
    "getattr(torch, route)": "torch-op",
    "getattr(torch, str(object()))": "unresolved",
    "route()": "unresolved",
    "(lambda f: f)(x)(y)": "unresolved",
    "torch.manual_seed(0)": "torch-op",
    "cpp.load(str(object()))": "native-unresolved",
    "cpp.os.system('true')": "external",
    "cpp.load('int x;', flags=('-fplugin=x.so',))": "native",
}
STATEMENTS = {
    "import os\nos.system('true')": "external",
    "import os\nos.environ['A'] = 'b'": "external",
    "import sys\nsys.modules['torch']": "external",
    "import sys\nsys.path.insert(0, '/elsewhere')": "sys-path",
    "import subprocess": "import",
    "import threading": "import",
    "import ctypes": "import",
    "import gc": "import",
    "import inspect": "import",
    "import importlib": "import",
    "import builtins": "import",
    "import time": "import",
    "import pickle": "import",
    "import pytest_passbench.judge.session": "import",
    "import pytest_passbench\npytest_passbench.settings.Settings": "external",
    "from pytest_passbench.kernels.cpp import subprocess": "external",
    "from .. import elsewhere": "import",
    "import typing\ntyping.sys": "external",
    "from pathlib import Path\nPath.home()": "external",
    "from pathlib import Path\nPath(__file__).write_text('')": "external",
    "torch.relu = None": "patch",
    "triton.cdiv = None": "patch",
    "for place in [torch]:\n    place.relu = None": "patch",
    "T = torch.Tensor\nT.relu = None": "patch",
    "del torch.relu": "patch",
    "raise SystemExit(0)": "exit",
    "raise KeyboardInterrupt": "exit",
    "torch.set_num_threads(4)": "torch-op",
    "torch.backends.cudnn.benchmark = True": "patch",
    "class K(torch.Tensor):\n    pass": "tensor-class",
    "class K(metaclass=type):\n    pass": "special-method",
    "class K:\n    def __reduce__(self):\n        return ()": "special-method",
    "class K:\n    def __getattr__(self, name):\n        return 1": "special-method",
    "__name__ = '__main__'": "dunder",
    "def f(a: exec('1')):\n    pass": "builtin",
    "@exec\ndef f():\n    pass": "builtin",
}
NATIVE = {
    "int a = system(0);": "native",
    "int a = ::open(0, 0);": "native",
    'extern "C" int fork(); int a = fork();': "native",
    "#include <thread>": "native-include",
    "#include <unistd.h>": "native-include",
    "#include MACRO": "native-include",
    "#/* hidden */include <fstream>": "native-include",
    "auto f = dlsym;": "native",
    'asm("nop");': "native",
    "#define GLUE(a, b) a##b": "native",
    'const char* p = "/proc/self/maps";': "native",
    "auto t = std::chrono::steady_clock::now();": "native",
    "at::Tensor t;": "native",
    "__attribute__((constructor)) void f() {}": "native",
    "auto open = [] { return 1; }; int b = ::open(0);": "native",
    "int sys\\\ntem(int); int a = sys\\\ntem(1);": "native",
}


@pytest.mark.parametrize("body", TORCH.values(), ids=TORCH)
def test_torch_calls(check: Audit, body: str) -> None:
    assert rules(check(body)) & {"torch-op", "unresolved"}


@pytest.mark.parametrize("body", TENSORS.values(), ids=TENSORS)
def test_operators_on_tensors(check: Audit, body: str) -> None:
    assert rules(check(body)) == {"tensor-operator"}


@pytest.mark.parametrize("call", METHODS)
def test_tensor_methods(check: Audit, call: str) -> None:
    assert rules(check(f"return {call}")) == {"tensor-method"}


@pytest.mark.parametrize("call", READS)
def test_reading_values(check: Audit, call: str) -> None:
    assert rules(check(f"{call}\nreturn x")) == {"reads-values"}


@pytest.mark.parametrize(("code", "rule"), OTHER.items(), ids=OTHER)
def test_expressions(check: Audit, code: str, rule: str) -> None:
    assert rule in rules(check(f"{code}\nreturn x"))


@pytest.mark.parametrize("policy", ["kernels", "open"])
@pytest.mark.parametrize(("code", "rule"), STATEMENTS.items(), ids=STATEMENTS)
def test_at_import(check: Audit, code: str, rule: str, policy: PolicyName) -> None:
    assert rule in rules(check("return x", head=code, policy=policy))


@pytest.mark.parametrize(("text", "rule"), NATIVE.items(), ids=NATIVE)
def test_native_text(check: Audit, text: str, rule: str) -> None:
    assert rule in rules(check("return x", head=f"lib = cpp.load({text!r})"))


HIDDEN_TEXT = {
    "split": "cpp.load('int a = sys' + 'tem(0);')",
    "template": "cpp.load('int a = {}(0);'.replace('{}', 'system'))",
    "reversed": "cpp.load(';)0(metsys = a tni'[::-1])",
    "list reversed": "parts = ['tem(0);', 'int a = sys']\nparts.reverse()\ncpp.load(''.join(parts))",
    "list sliced": "cpp.load(''.join(['tem(0);', 'int a = sys'][::-1]))",
    "character by character": "s = ''\nfor c in 'int a = system(0);':\n    s += c\ncpp.load(s)",
    "by max": "cpp.load('int a = ' + max(['system']) + '(0);')",
    "by operator": "import operator\ncpp.load(operator.add('int a = sys', 'tem(0);'))",
    "by reduce": "import functools\ncpp.load(functools.reduce(lambda a, b: a + b, ['int a = sys', 'tem(0);']))",
    "by accumulate": "import itertools\ncpp.load(list(itertools.accumulate(['int a = sys', 'tem(0);']))[-1])",
    "one of two": "cpp.load('int a;' if torch.cuda.is_available() else 'int a = system(0);')",
}


@pytest.mark.parametrize("code", HIDDEN_TEXT.values(), ids=HIDDEN_TEXT)
def test_native_text_that_is_put_together(check: Audit, code: str) -> None:
    assert rules(check("return x", head=code)) & {"native", "native-unresolved"}


HONEST = {
    "sizes": "n = x.shape[0] * 2 + 1\nm = (x.numel() + n - 1) // n\nm += max(n, 1)\nreturn x.view(-1)[:m]",
    "views": "return x.view(-1).transpose(0, -1).unsqueeze(0).expand(2, -1).permute(1, 0).squeeze().T",
    "launch": "out = torch.empty_like(x)\nkernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)\nreturn out",
    "grid": "out = torch.empty_like(x)\nkernel[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, y, out, 1, BLOCK=4)\nreturn out",
    "dtypes": "if x.dtype in (torch.float16, torch.bfloat16) or x.dtype == torch.float32:\n    return x\nreturn y",
    "none": "if y is None or not isinstance(x, torch.Tensor):\n    raise ValueError(f'no kernel for {x}')\nreturn x",
    "route": "if route == 'route':\n    return x\nraise NotImplementedError(route)",
    "reused name": "n = x\nn = n.numel()\nn = n * 2\nreturn x",
    "reduce sizes": "import functools, operator\nfunctools.reduce(operator.mul, x.shape, 1)\nreturn x",
    "device": "with torch.cuda.device(x.device):\n    pass\nreturn torch.empty(x.shape, dtype=x.dtype, device=x.device)",
    "finfo": "low = torch.finfo(x.dtype).min / 2\nreturn x",
    "properties": "torch.cuda.get_device_properties(0).multi_processor_count * 2\nreturn x",
    "strings": "'{}-{}'.format(x.shape[0], x.dtype).upper().split('-')\nreturn x",
    "undefined name": "return missing_helper",
    "views by function": "return torch.transpose(torch.unsqueeze(x, 0), 0, 1)",
    "chunks": "a, b = x.chunk(2, dim=0)\nreturn a",
    "loop": "out = torch.empty_like(x)\nfor i, t in enumerate([x, y]):\n    if t.shape[0] > i + 1:\n        out = t\nreturn out",
    "set and dict": "seen = set()\nseen.add(x.shape[0])\ntable = {}\ntable[x.dtype] = 4\nreturn x",
    "ternary": "b = 1024 if x.numel() > 4096 else 256\nreturn x[: b // 2]",
    "assert": "assert x.is_contiguous() and x.dim() >= 2, f'{x}'\nreturn x",
}


@pytest.mark.parametrize("body", HONEST.values(), ids=HONEST)
def test_honest_bodies(check: Audit, body: str) -> None:
    assert rules(check(body)) == set()


def test_torch_is_free_under_the_open_policy(check: Audit) -> None:
    body = (
        "t = (x + y).contiguous().to(torch.float16)\nreturn torch.nn.functional.softmax(t @ t.T, dim=-1) * x[y > 0]"
    )
    assert check(body, policy="open") == []


@pytest.mark.parametrize(
    "body", ["return torch.compile(pattern)(x, y)", "x.numpy()\nreturn x", "exec('1')\nreturn x", "return route(x)"]
)
def test_what_the_open_policy_still_refuses(check: Audit, body: str) -> None:
    assert rules(check(body, policy="open"))


@pytest.mark.parametrize(
    "spelling",
    [
        "from pass_dir.helper import work",
        "from .helper import work",
        "from pass_dir import helper\nwork = helper.work",
        "from . import helper\nwork = helper.work",
        "import helper\nwork = helper.work",
        "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nimport helper as h\nwork = h.work",
        "from helper import *",
    ],
)
def test_helpers_are_read_in_every_spelling(check: Audit, spelling: str) -> None:
    found = check(
        "return work(x, y)", head=spelling, helper="import torch\n\n\ndef work(x, y):\n    return torch.add(x, y)\n"
    )
    assert [(f.file, f.line, f.rule) for f in found] == [("helper.py", 5, "torch-op")]
    assert check("return work(x, y)", head=spelling, helper="def work(x, y):\n    return x.view(-1)\n") == []


def test_each_finding_says_where_why_and_what_to_do(check: Audit) -> None:
    (finding,) = check("return torch.relu(x)")
    assert (finding.layer, finding.severity, finding.file) == ("source", "violation", "a_pass.py")
    assert finding.line == 20
    assert "torch.relu" in finding.message
    assert "your own kernel" in finding.message


def test_keeping_results(check: Audit) -> None:
    body = "key = {key}\nif key not in KEPT:\n    KEPT[key] = torch.empty_like(x)\nreturn KEPT[key]"
    for key in ("x.data_ptr()", "(id(x), 1)", "f'{x.data_ptr()}'", "hash(x)", "x.data_ptr() + 1"):
        assert rules(check(body.format(key=key), head="KEPT = {}")) == {"address-cache"}, key
    by_shape = check(body.format(key="x.shape"), head="KEPT = {}")
    assert rules(by_shape) == set()
    assert rules(by_shape, "warning") == {"cache"}


def test_changing_state_is_a_warning(check: Audit) -> None:
    found = check("global calls\ncalls += 1\nreturn x", head="calls = 0")
    assert rules(found) == set()
    assert rules(found, "warning") == {"state"}


def test_replacement_args_may_not_compute(check: Audit, tmp_path: Path) -> None:
    check("return x")
    source = (tmp_path / "a_pass.py").read_text()
    for result in ("(x + y, y, 1)", "(torch.relu(x), y, 1)", "(x.float(), y, 1)"):
        (tmp_path / "a_pass.py").write_text(source.replace('(x, y, "route")', result))
        assert rules(audit(tmp_path)), result
    (tmp_path / "a_pass.py").write_text(source.replace('(x, y, "route")', "(x.transpose(0, 1), y, x.shape[0] + 1)"))
    assert audit(tmp_path) == []


def test_replacement_func_must_return_a_function_of_its_own(check: Audit, tmp_path: Path) -> None:
    check("return x")
    source = (tmp_path / "a_pass.py").read_text()
    for result in ("torch.add", "torch.nn.functional.gelu", "getattr(torch, 'add')"):
        (tmp_path / "a_pass.py").write_text(source.replace("return wrapper", f"return {result}"))
        assert rules(audit(tmp_path)), result


def test_numbers_of_a_pattern_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "sorted_output_pass_rule_names.json").write_text('["p"]')
    (tmp_path / "p.py").write_text(
        "import torch\n\n\ndef pattern(x, half, eps):\n"
        "    return torch.nn.functional.layer_norm(x[..., half:], (4,), eps=eps)\n\n\n"
        "def replacement_args(x, half, eps):\n    return x, half, eps\n\n\n"
        "def wrapper(x, half, eps):\n    if x.shape[-1] != 2 * half or eps > 1:\n        raise ValueError\n    return x\n\n\n"
        "def replacement_func():\n    return wrapper\n"
    )
    assert audit(tmp_path) == []


def test_kernels_are_held_to_triton(check: Audit) -> None:
    template = "@triton.jit\ndef k(x_ptr, n, BLOCK: tl.constexpr):\n    {line}\n"
    for line in ("torch.set_num_threads(1)", "x_ptr.handle.data", "exec('1')", "wrapper(x_ptr, n, 1)", "import os"):
        assert rules(check("return x", head=template.format(line=line))) & {"kernel-body"}, line
    for line in ("tl.math.erf(tl.load(x_ptr).to(tl.float32))", "tl.store(x_ptr, n @ n, mask=n < BLOCK)"):
        assert check("return x", head=template.format(line=line)) == [], line


def test_hooks_of_triton_may_zero_and_no_more(check: Audit) -> None:
    head = "@triton.autotune(configs=[triton.Config({{}}, pre_hook={hook})], key=[])\n@triton.jit\ndef k(x_ptr):\n    pass\n"
    assert check("return x", head=head.format(hook="lambda a: a['x_ptr'].zero_()")) == []
    for hook in ("lambda a: a['o'].copy_(a['x'])", "lambda a: torch.relu(a['x'])", "lambda a: a['x'] @ a['y']"):
        assert rules(check("return x", head=head.format(hook=hook))), hook


def test_files_that_do_not_belong(check: Audit, tmp_path: Path) -> None:
    for name in ("conftest.py", "sitecustomize.py", "x.so", "x.pyc", "data.pkl", "weights.pt", "hook.pth"):
        check("return x")
        (tmp_path / name).write_bytes(b"")
        assert [f.file for f in audit(tmp_path) if f.rule == "hidden-code"] == [name]
        (tmp_path / name).unlink()
    for name in ("score.txt", ".ignore", "notes.md", "table.json"):
        (tmp_path / name).write_text("exec")
    assert audit(tmp_path) == []
    (tmp_path / "out").symlink_to("/etc")
    assert rules(audit(tmp_path)) == {"link"}


def test_byte_code(check: Audit, tmp_path: Path) -> None:
    check("return x")
    (tmp_path / "__pycache__").mkdir()
    cached = tmp_path / "__pycache__" / "a_pass.cpython-311.pyc"
    cached.write_bytes(b"\xa7\r\r\n\0\0\0\0")
    assert rules(audit(tmp_path)) == set()
    cached.write_bytes(b"\xa7\r\r\n\1\0\0\0")  # byte code that is never checked against its source
    assert rules(audit(tmp_path)) == {"hidden-code"}


def test_a_file_that_takes_a_librarys_place(check: Audit) -> None:
    assert rules(check("return x", math="def sqrt(x):\n    return x\n")) == {"shadow"}


def test_syntax_errors_are_no_violation(check: Audit, tmp_path: Path) -> None:
    check("return x")
    (tmp_path / "a_pass.py").write_text("def pattern(:\n")
    found = audit(tmp_path)
    assert [(f.rule, f.severity, f.line) for f in found] == [("syntax", "warning", 1)]


@pytest.mark.parametrize(
    "text", ["x = " + "(" * 3000 + "1" + ")" * 3000, "x = 1" + " + 1" * 20000, "x = a" + ".a" * 9000]
)
def test_deep_nesting_neither_crashes_nor_passes(check: Audit, tmp_path: Path, text: str) -> None:
    check("return x")
    (tmp_path / "a_pass.py").write_text(text)
    assert {f.rule for f in audit(tmp_path)} & {"unreadable", "syntax", "undefined"}


def test_unlisted_files_are_not_judged(check: Audit) -> None:
    assert check("return x", old_pass="import os\nos.system('true')\n") == []


def test_a_missing_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        audit(tmp_path / "nowhere")


def test_command(check: Audit, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check("return torch.relu(x)")
    assert main(["audit", str(tmp_path)]) == 1
    assert "a_pass.py:20: violation [torch-op] torch.relu" in capsys.readouterr().out
    assert main(["audit", str(tmp_path), "--policy", "open", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_it_needs_no_torch(check: Audit, tmp_path: Path) -> None:
    check("return torch.relu(x)")
    code = f"""
import pathlib, sys
from pytest_passbench.candidate.audit import audit
assert audit(pathlib.Path({str(tmp_path)!r}))
assert "torch" not in sys.modules
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
