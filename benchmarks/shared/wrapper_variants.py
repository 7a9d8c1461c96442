"""Spellings of computing with torch in a kernel wrapper: a hiding place, crossed with what is computed there.

``variant(seed)`` gives one pass; equal seeds give equal passes. ``recorded(source, folder)`` records it as a reader
does. ``through(answer, reference)`` checks the recorded plan as the judge does, executes it with kernels that do
nothing, and tells whether the answer is right all the same.
"""

from __future__ import annotations

# ruff: noqa: E501 - a spelling is easier to read on one line
import contextlib
import ctypes
import importlib
import json
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.rejected import Rejected, plan_refused
from pytest_passbench.judge.planning.planner import check
from pytest_passbench.plans import parse
from pytest_passbench.plans.launch import Argument, LaunchPlan, Request, contiguous
from pytest_passbench.runner.replay import replay

SHAPE = (4, 16)
SECONDS = 10  # after which a recording is ended
_WORDS = ("alpha", "beta", "tile", "lane", "fused", "stage", "warp", "flow", "unit", "span", "mesh", "core", "base")

#: What is computed, by a function ``{work}(x, y)`` of two tensors: reference, and lines of its body.
COMPUTED: dict[str, tuple[str, tuple[str, ...]]] = {
    "functional": ("gelu", ("return torch.nn.functional.gelu(x) + y",)),
    "aten": ("gelu", ("return torch.ops.aten.add(torch.ops.aten.gelu(x), y)",)),
    "methods": ("add", ("return x.add(y)",)),
    "operator": ("add", ("import operator", "return operator.add(x, y)")),
    "matmul": ("matmul", ("return x @ y.t()",)),
    "in place": ("add", ("out = x.clone()", "out += y", "return out")),
    "out": ("add", ("out = torch.empty_like(x)", "torch.add(x, y, out=out)", "return out")),
    "getattr": ("add", ("return getattr(torch, 'a' + 'dd')(x, y)",)),
    "import": ("add", ("return __import__('importlib').import_module('to' + 'rch').add(x, y)",)),
    "exec": ("add", ("names = {'x': x, 'y': y}", "exec('r = x + y', names)", "return names['r']")),
    "norm": ("norm", ("return torch.nn.functional.layer_norm(x + y, (x.shape[-1],))",)),
    "numpy": ("add", ("return torch.from_numpy(x.numpy() + y.numpy())",)),
    "list": (
        "add",
        ("return torch.tensor([[a + b for a, b in zip(p, q)] for p, q in zip(x.tolist(), y.tolist())])",),
    ),
    "item": ("add", ("return torch.full_like(x, (x + y)[0, 0].item())",)),
    "script": ("add", ("return torch._C._VariableFunctions.add(x, y)",)),
    "vmap": ("add", ("return torch.vmap(lambda a, b: a + b)(x, y)",)),
    "autograd": (
        "add",
        (
            "class Function(torch.autograd.Function):",
            "    @staticmethod",
            "    def forward(ctx, x, y): return x + y",
            "return Function.apply(x, y)",
        ),
    ),
    "memory": (
        "add",
        (
            "import ctypes",
            "count, out = x.numel(), torch.empty_like(x)",
            "p, q, r = ((ctypes.c_float * count).from_address(t.data_ptr()) for t in (x, y, out))",
            "for i in range(count): r[i] = p[i] + q[i]",
            "return out",
        ),
    ),
    "storage": (
        "add",
        (
            "a, b = (bytes(t.untyped_storage()[:]) for t in (x, y))",
            "return torch.frombuffer(bytearray(a), dtype=x.dtype)[: x.numel()].view(x.shape) + y",
        ),
    ),
}

#: Where it is hidden: statements for the module, and lines of the wrapper that call ``{work}`` and set ``out``.
HIDDEN: dict[str, tuple[str, str]] = {
    "plain": ("", "out = {work}(x, y)"),
    "generator send": (
        "def {a}():\n    value = None\n    while True:\n        value = {work}(*(yield value))",
        "{b} = {a}()\nnext({b})\nout = {b}.send((x, y))",
    ),
    "exception carry": (
        "def {a}(x, y):\n    raise LookupError({work}(x, y))",
        "try:\n    {a}(x, y)\nexcept LookupError as {b}:\n    out = {b}.args[0]",
    ),
    "stop iteration": (
        "def {a}(x, y):\n    return {work}(x, y)\n    yield",
        "try:\n    next({a}(x, y))\nexcept StopIteration as {b}:\n    out = {b}.value",
    ),
    "nullcontext": ("import contextlib", "with contextlib.nullcontext({work}) as {a}:\n    out = {a}(x, y)"),
    "contextmanager": (
        "import contextlib\n@contextlib.contextmanager\ndef {a}(x, y):\n    yield {work}(x, y)",
        "with {a}(x, y) as out:\n    pass",
    ),
    "exit stack": (
        "import contextlib",
        "{a} = []\nwith contextlib.ExitStack() as {b}:\n    {b}.callback(lambda: {a}.append({work}(x, y)))\nout = {a}[0]",
    ),
    "enum": (
        "import enum, functools\nclass {a}(enum.Enum):\n    RUN = functools.partial({work})\n"
        "    ITEM = enum.member({work})",
        "out = [m.value for m in {a}][-1](x, y)",
    ),
    "star": ("", "*_, {a} = (None, 1, {work})\nout = {a}(*(x, y))"),
    "getattr": ("class {a}:\n    {b} = staticmethod({work})", "out = getattr({a}, ''.join({letters}))(x, y)"),
    "module getattr": (
        "import types\n{a} = types.ModuleType('{a}')\n{a}.__getattr__ = lambda name: {work}",
        "out = {a}.{b}(x, y)",
    ),
    "weakref": (
        "import weakref\nclass {a}:\n    pass",
        "{b}, {c} = {a}(), []\nweakref.finalize({b}, lambda: {c}.append({work}(x, y)))\ndel {b}\nout = {c}[0]",
    ),
    "weakref callback": (
        "import weakref\nclass {a}:\n    pass",
        "{b}, {c} = {a}(), []\n_ref = weakref.ref({b}, lambda _r: {c}.append({work}(x, y)))\ndel {b}\nout = {c}[0]",
    ),
    "del": (
        "class {a}:\n    def __del__(self):\n        self.kept.append({work}(*self.given))",
        "{b}, {c} = {a}(), []\n{b}.kept, {b}.given = {c}, (x, y)\ndel {b}\nout = {c}[0]",
    ),
    "init subclass": (
        "class {a}:\n    def __init_subclass__(cls, x, y):\n        cls.{b} = {work}(x, y)",
        "class {c}({a}, x=x, y=y):\n    pass\nout = {c}.{b}",
    ),
    "set name": (
        "class {a}:\n    def __init__(self, *given):\n        self.given = given\n"
        "    def __set_name__(self, owner, name):\n        owner.{b} = {work}(*self.given)",
        "class {c}:\n    hook = {a}(x, y)\nout = {c}.{b}",
    ),
    "metaclass": (
        "class {a}(type):\n    @classmethod\n    def __prepare__(mcs, name, bases, **given):\n"
        "        return dict({b}={work}(given['x'], given['y']))\n"
        "    def __new__(mcs, name, bases, space, **_):\n        return super().__new__(mcs, name, bases, space)",
        "class {c}(metaclass={a}, x=x, y=y):\n    pass\nout = {c}.{b}",
    ),
    "descriptor": (
        "class {a}:\n    def __get__(self, one, owner):\n        return {work}(*one.given)\n"
        "class {c}:\n    {b} = {a}()",
        "it = {c}()\nit.given = (x, y)\nout = it.{b}",
    ),
    "property": ("class {a}:\n    {b} = property(lambda self: {work}(*self.given))", "it = {a}()\nit.given = (x, y)\nout = it.{b}"),
    "class getitem": ("class {a}:\n    def __class_getitem__(cls, given):\n        return {work}(*given)", "out = {a}[x, y]"),
    "missing": (
        "class {a}(dict):\n    def __missing__(self, key):\n        return {work}(*self.given)",
        "it = {a}()\nit.given = (x, y)\nout = it['{b}']",
    ),
    "format": (
        "class {a}:\n    def __format__(self, spec):\n        self.out = {work}(*self.given)\n        return ''",
        "it = {a}()\nit.given = (x, y)\nf'{{it}}'\nout = it.out",
    ),
    "truth": (
        "class {a}:\n    def __bool__(self):\n        self.out = {work}(*self.given)\n        return True",
        "it = {a}()\nit.given = (x, y)\nif it:\n    out = it.out",
    ),
    "iter": ("class {a}:\n    def __iter__(self):\n        yield {work}(*self.given)", "it = {a}()\nit.given = (x, y)\n(out,) = it"),
    "equality": (
        "class {a}:\n    def __eq__(self, other):\n        self.out = {work}(*self.given)\n        return True\n"
        "    __hash__ = None",
        "it = {a}()\nit.given = (x, y)\nit in [1]\nout = it.out",
    ),
    "match": (
        "class {a}:\n    __match_args__ = ('{b}',)\n    {b} = property(lambda self: {work}(*self.given))",
        "it = {a}()\nit.given = (x, y)\nmatch it:\n    case {a}(out):\n        pass",
    ),
    "coroutine": (
        "async def {a}(x, y):\n    return {work}(x, y)",
        "try:\n    {a}(x, y).send(None)\nexcept StopIteration as {b}:\n    out = {b}.value",
    ),
    "reduce": ("import functools", "out = functools.reduce({work}, (x, y))"),
    "map": ("", "(out,) = map({work}, (x,), (y,))"),
    "sorted": ("", "{a} = []\nsorted([1], key=lambda _i: {a}.append({work}(x, y)) or 0)\nout = {a}[0]"),
    "methodcaller": (
        "import operator\nclass {a}:\n    {b} = staticmethod({work})",
        "out = operator.methodcaller('{b}', x, y)({a})",
    ),
    "partial": ("import functools\n{a} = functools.partial(functools.partial, {work})", "out = {a}(x)(y)"),
    "lru": ("import functools\n{a} = functools.lru_cache({work})", "out = {a}(x, y)"),
    "deepcopy": (
        "import copy\nclass {a}:\n    def __deepcopy__(self, _memo):\n        return {work}(*self.given)",
        "it = {a}()\nit.given = (x, y)\nout = copy.deepcopy(it)",
    ),
    "reduce hook": (
        "import copy\nclass {a}:\n    def __reduce__(self):\n        return ({work}, self.given)",
        "it = {a}()\nit.given = (x, y)\nout = copy.copy(it)",
    ),
    "marshal": ("import marshal, types\n{a} = marshal.dumps({work}.__code__)", "out = types.FunctionType(marshal.loads({a}), globals())(x, y)"),
    "code object": ("def {a}(x, y):\n    return x\n{a}.__code__ = {work}.__code__", "out = {a}(x, y)"),
    "settrace": (
        "import sys",
        "{a} = []\ndef {b}(frame, event, arg):\n    sys.settrace(None)\n    {a}.append({work}(x, y))\n"
        "sys.settrace({b})\n(lambda: None)()\nsys.settrace(None)\nout = {a}[0]",
    ),
    "setprofile": (
        "import sys",
        "{a} = []\ndef {b}(frame, event, arg):\n    sys.setprofile(None)\n    {a}.append({work}(x, y))\n"
        "sys.setprofile({b})\nlen(())\nsys.setprofile(None)\nout = {a}[0]",
    ),
    "signal": (
        "import signal",
        "{a} = []\nsignal.signal(signal.SIGUSR1, lambda *_: {a}.append({work}(x, y)))\n"
        "signal.raise_signal(signal.SIGUSR1)\nout = {a}[0]",
    ),
    "import hook": (
        "import importlib.abc, importlib.util, sys\nclass {a}(importlib.abc.Loader, importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        return importlib.util.spec_from_loader(name, self) if name == 'made_{b}' else None\n"
        "    def exec_module(self, module):\n        module.out = {work}(*self.given)",
        "it = {a}()\nit.given = (x, y)\nsys.meta_path.insert(0, it)\nout = __import__('made_{b}').out",
    ),
    "gc callback": (
        "import gc",
        "{a} = []\ngc.callbacks.append(lambda phase, _i: {a} or {a}.append({work}(x, y)))\ngc.collect()\n"
        "gc.callbacks.clear()\nout = {a}[0]",
    ),
    "thread": (
        "import threading",
        "{a} = []\n{b} = threading.Thread(target=lambda: {a}.append({work}(x, y)))\n{b}.start()\n{b}.join()\nout = {a}[0]",
    ),
    "pool": (
        "from concurrent.futures import ThreadPoolExecutor",
        "with ThreadPoolExecutor(1) as {a}:\n    out = {a}.submit({work}, x, y).result()",
    ),
    "context": ("import contextvars", "out = contextvars.copy_context().run({work}, x, y)"),
    "dispatch disabled": (
        "from torch.utils._python_dispatch import _disable_current_modes",
        "with _disable_current_modes():\n    out = {work}(x, y)",
    ),
    "dispatch excluded": (
        "",
        "with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():\n    out = {work}(x, y)",
    ),
    "key excluded": (
        "",
        "{a} = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python))\n"
        "with torch._C.DisableTorchFunction():\n    out = {work}(x, y)",
    ),
    "custom operator": (
        "def {a}(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:\n    return {work}(x, y)\n"
        "{a} = torch.library.custom_op('made::{a}', mutates_args=())({a})",
        "out = {a}(x, y)",
    ),
    "checkpoint": (
        "from torch.utils.checkpoint import checkpoint",
        "out = checkpoint({work}, x, y, use_reentrant=False)",
    ),
    "written back": (
        "from torch.utils._python_dispatch import _disable_current_modes",
        "out = torch.empty_like(x)\nwith _disable_current_modes():\n    out.set_({work}(x, y).contiguous())",
    ),
    "written into memory": (
        "import ctypes\nfrom torch.utils._python_dispatch import _disable_current_modes",
        "with _disable_current_modes():\n    {a} = {work}(x, y).contiguous()\n"
        "out = x.new_empty({a}.shape)\nctypes.memmove(out.data_ptr(), {a}.data_ptr(), 4 * {a}.numel())",
    ),
    "stored as bytes": (
        "from torch.utils._python_dispatch import _disable_current_modes",
        "with _disable_current_modes():\n    {a} = torch.frombuffer(bytearray({work}(x, y).numpy().tobytes()), dtype=x.dtype)\n"
        "out = {a}.view(x.shape)",
    ),
    "recorder's handlers": (
        "from pytest_passbench.reader import recording\n"
        "recording.Recording.__torch_dispatch__ = lambda self, func, types, args=(), kwargs=None: func(*args, **kwargs or {{}})",
        "out = {work}(x, y)",
    ),
    "recorder's policy": (
        "import gc\nfrom pytest_passbench.reader import recording",
        "for {a} in gc.get_objects():\n    if type({a}) is recording.Recording:\n        {a}._policy = 'open'\n"
        "out = {work}(x, y)",
    ),
    "recorder's lists": (
        "from pytest_passbench.reader import launches",
        "{a} = launches._current[-1]\n{b} = len({a}.steps)\n{a}._policy = 'open'\nout = {work}(x, y)\ndel {a}.steps[{b}:]",
    ),
    "recorder's refusals": (
        "from pytest_passbench.reader import recording\n"
        "recording._COPIES = recording._ALLOCATE = type('Every', (), {{'__contains__': lambda *_: True}})()",
        "out = {work}(x, y)",
    ),
}  # fmt: skip

#: Hiding places from which an honest kernel must still be launched: nothing about them is refused.
HONEST = (
    "plain", "generator send", "exception carry", "stop iteration", "nullcontext", "contextmanager", "exit stack", "enum",
    "star", "getattr", "module getattr", "weakref", "del", "init subclass", "set name", "metaclass", "descriptor",
    "property", "class getitem", "missing", "format", "truth", "iter", "equality", "match", "coroutine", "reduce", "map",
    "sorted", "methodcaller", "partial", "deepcopy", "reduce hook", "code object", "settrace", "import hook", "context",
)  # fmt: skip

REFERENCES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "gelu": lambda x, y: torch.nn.functional.gelu(x) + y,
    "add": lambda x, y: x + y,
    "matmul": lambda x, y: x @ y.t(),
    "norm": lambda x, y: torch.nn.functional.layer_norm(x + y, (x.shape[-1],)),
}

_PASS = '''"""{title}"""
import torch
from pytest_passbench.kernels import cpp

lib = cpp.load("""#include <cstdint>
extern "C" void {kernel}(const float* x, const float* y, float* out, int64_t n) {{
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] + y[i];
}}""")


def {work}(x, y):
{body}


{module}


def pattern(x, y):
    return x + y


def replacement_args(x, y):
    return (x, y)


def wrapper(x, y):
{lines}
    return {result}


def replacement_func():
    return wrapper
'''


@dataclass(frozen=True)
class Variant:
    """One generated pass. ``reference`` names what its answer would have to be."""

    name: str
    source: str
    reference: str


def variant(seed: int, hidden: str = "", computed: str = "") -> Variant:
    """Return the variant of a seed. The hiding place and what is computed there are drawn unless they are given."""
    rng = random.Random(seed)
    hidden, computed = hidden or rng.choice(list(HIDDEN)), computed or rng.choice(list(COMPUTED))
    reference, body = COMPUTED[computed]
    return _written(rng, hidden, list(body), f"{hidden}, {computed}", reference, decoy=rng.randrange(4))


def honest(seed: int, hidden: str) -> Variant:
    """Return a pass that launches its own kernel in a hiding place."""
    body = ["out = torch.empty_like(x)", "lib.{kernel}(x, y, out, x.numel())", "return out"]
    return _written(random.Random(seed), hidden, body, hidden, "add", decoy=0)


def _written(rng: random.Random, hidden: str, body: list[str], name: str, reference: str, decoy: int) -> Variant:
    a, b, c, work, kernel = (f"{word}_{rng.randrange(1000)}" for word in rng.sample(_WORDS, 5))
    names = {"a": a, "b": b, "c": c, "work": work, "kernel": kernel, "letters": repr(tuple(b))}
    module, lines = (text.format(**names) for text in HIDDEN[hidden])
    # A launch beside the answer, so that a plan that launches nothing is not the reason for a refusal.
    call = f"lib.{kernel}(x, y, {'out' if decoy == 2 else 'decoy'}, x.numel())"
    decoys = ["", f"decoy = torch.empty_like(x)\n{call}", call, f"decoy = torch.empty_like(x)\n{call}"][decoy]
    before, after = (decoys, "") if decoy == 1 else ("", decoys)
    text = _PASS.format(
        title=name,
        kernel=kernel,
        work=work,
        body=_indented("\n".join(line.format(**names) if "{kernel}" in line else line for line in body)),
        module=module,
        lines=_indented("\n".join(filter(None, [before, lines, after]))),
        result=rng.choice(["out", "out.view(out.shape)"]) if decoy != 3 else "out.contiguous()",
    )
    return Variant(name, text, reference)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.split("\n"))


def request() -> Request:
    """Return the match that every variant is recorded for."""
    form = contiguous("float32", SHAPE)
    return Request("variant", ({"tensor": 0}, {"tensor": 1}), (Argument(form), Argument(form)))


@cache
def _imports() -> None:
    """Import once what every recording's process would import by itself."""
    names = ("torch._dynamo", "torch._functorch.vmap", "torch.library", "torch.utils.checkpoint")
    for name in (*names, "triton.runtime.autotuner", "pytest_passbench.reader.main"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def recorded(source: str, folder: Path) -> dict[str, Any]:
    """Record a pass in a process of its own. Return its plan as data, or why it was refused or what it raised."""
    _imports()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "variant.py").write_text(source)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # exceptions in hooks are printed
        signal.alarm(SECONDS)
        answer: dict[str, Any] = {"raised": "nothing was answered"}
        try:
            answer = _answer(folder)
        except BaseException as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        finally:
            os.write(writer, json.dumps(answer).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    found: dict[str, Any] = json.loads(said) if said else {"raised": "it ended without an answer"}
    return found


def _answer(folder: Path) -> dict[str, Any]:
    import warnings

    from pytest_passbench.reader import launches
    from pytest_passbench.reader.importing import load_passes
    from pytest_passbench.reader.main import record

    warnings.simplefilter("ignore")
    launches.install(folder)
    (loaded,) = load_passes(folder, ["variant"])
    try:
        return {"plan": record(request(), loaded.wrapper, "kernels", random.Random(0)).to_data()}
    except Rejected as refused:
        return {"refused": f"{refused.rule}: {refused.message}"}


def accepted(answer: dict[str, Any]) -> LaunchPlan:
    """Return the plan in a reader's answer if the judge accepts it. Raises Rejected with the reason if not."""
    if "plan" not in answer:
        ((kind, said),) = answer.items()
        raise plan_refused(kind, said)
    plan = parse.plan(answer["plan"], request().tensors)
    check(request(), plan, "kernels")
    return plan


def right(plan: LaunchPlan, reference: str, kernel: Callable[..., None]) -> bool:
    """Tell whether a plan's answer is right for new inputs; every launch calls ``kernel`` with its arguments."""
    inputs = [torch.randn(SHAPE) for _ in range(2)]
    expected = REFERENCES[reference](*inputs)
    try:
        got = replay(plan, [kernel] * len(plan.kernels), "cpu", False, []).call(*inputs)
    except Exception:
        return False  # refused while it runs
    same_form = got.shape == expected.shape and got.dtype == expected.dtype
    return same_form and bool(torch.allclose(got, expected, atol=1e-3))


def through(answer: dict[str, Any], reference: str) -> bool:
    """Tell whether a variant's answer would be right without a kernel of its own."""
    try:
        return right(accepted(answer), reference, lambda *_arguments: None)
    except Rejected:
        return False


def launches_right(answer: dict[str, Any]) -> bool:
    """Tell whether an honest variant's plan is accepted, and right with its kernel."""

    def add(x: int, y: int, out: int, count: int) -> None:
        a, b, c = ((ctypes.c_float * count).from_address(address) for address in (x, y, out))
        c[:] = [p + q for p, q in zip(a, b, strict=True)]

    try:
        return right(accepted(answer), "add", add)
    except Rejected:
        return False
