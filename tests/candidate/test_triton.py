"""Triton kernels as text: read from the file, held to the list, and made into kernels that compute the same."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.candidate.triton import (
    KernelReference,
    KernelText,
    check_options,
    kernel_text,
    stored,
)
from pytest_passbench.core.rejected import Rejected
from support import corpus
from support.paths import ROOT, TESTS

TL = {"tl": {"module": "triton.language"}, "triton": {"module": "triton"}}
FUSED = ["attention_softmax", "batch_norm_relu", "dropout_add_layer_norm", "quick_gelu", "rms_norm", "silu_mul"]


def reference(values: dict[str, Any] | None = None, *functions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    own = {"file": "p.py", "name": "kernel", "line": 1, "values": {**TL, **(values or {})}, **changes}
    return {**own, "functions": list(functions)}


def read(folder: Path, text: str, values: dict[str, Any] | None = None, *functions: dict[str, Any]) -> KernelText:
    (folder / "p.py").write_text(text)
    return kernel_text(folder, KernelReference.from_json(reference(values, *functions)))


def body(folder: Path, statement: str, values: dict[str, Any] | None = None) -> str:
    text = f"@triton.jit\ndef kernel(x, n, BLOCK: tl.constexpr):\n    {statement}\n"
    return read(folder, text, values).source


ALLOWED = [
    "y = tl.load(x + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < n, other=0.0, cache_modifier='.cg')",
    "y = tl.dot(x, x.T, input_precision='tf32').to(tl.float16, bitcast=False)",
    "y = x[:, None] * x[None, :] @ x[0:4]",
    "for i in tl.static_range(0, 8, 2):\n        n += i",
    "for i in range(n):\n        if i % 2 == 0:\n            continue\n        n = -i if i > 3 else min(i, abs(n))",
    "while n > 0:\n        n >>= 1",
    "y: tl.constexpr = BLOCK // 2",
    "y = tl.math.exp(x) + tl.extra.cuda.libdevice.tanh(x) + tl.extra.libdevice.erf(x)",
    "y, z = tl.max(x, axis=0, return_indices=True)",
    "y = triton.cdiv(n, BLOCK) + triton.next_power_of_2(n) + triton.language.cdiv(n, 2)",
    "y = float('-inf') if x.dtype.element_ty == tl.bfloat16 and not x.type.scalar.is_fp16() else -0.5",
    "return (n, [n, 2], None, True)",
]


@pytest.mark.parametrize("statement", ALLOWED)
def test_the_language_of_kernels_is_allowed(tmp_path: Path, statement: str) -> None:
    assert ast.parse(body(tmp_path, statement))


REFUSED = [
    ("tl.inline_asm_elementwise('', '', [], tl.int32, True, 1)", "inline assembly (tl.inline_asm_elementwise)", True),
    ("tl.core.builtins.eval('1')", "Triton's own modules (tl.core)", True),
    ("tl.math.core.builtins.eval('1')", "Triton's own modules (triton.language.math.core)", True),
    ("triton.language.semantic.add(x, x)", "Triton's own modules (tl.semantic)", True),
    ("tl.extra.cuda.globaltimer()", "the device's clock", True),
    ("tl._experimental(x)", "private names (tl._experimental)", True),
    ("x.__class__", "the attribute __class__", True),
    ("x.to(tl.int32).handle.data", "the attribute handle", True),
    ("(1).__class__", "the attribute __class__", True),
    ("tl.float32.__class__", "the attribute __class__", True),
    ("tl.load.__globals__", "the attribute __globals__", True),
    ("torch.add(x, x)", "the module torch", True),
    ("y = tl", "the module triton.language as a value", True),
    ("import os", "an import", True),
    ("y = (lambda: 1)", "a lambda", True),
    ("def inner():\n        pass", "a function", True),
    ("class Inner:\n        pass", "a class", True),
    ("global n", "global", True),
    ("try:\n        pass\n    except ValueError:\n        pass", "try", True),
    ("with x:\n        pass", "with", True),
    ("yield n", "yield", True),
    ("tl.load(x, _semantic=n)", "bind the name _semantic", True),
    ("__builtins__ = n", "bind the name __builtins__", True),
    ("tl = n", "bind the name tl", True),
    ("interpreter_semantic = n", "bind the name interpreter_semantic", True),
    ("eval('1')", "uses eval", False),
    ("y = eval", "uses eval", False),
    ("getattr(x, 'handle')", "uses getattr", False),
    ("y = range", "uses range", False),
    ("tl.tanh(x)", "has no tanh", False),
    ("x.frobnicate()", "the attribute frobnicate", False),
    ("n(x)", "call its variable n", False),
    ("x.shape[0](n)", "by their names only", False),
    ("f(n)(n)", "uses f", False),
    ("y = [i for i in x]", "a comprehension", False),
    ("y = f'{x}'", "a format string", False),
    ("y = (z := n)", "an assignment inside an expression", False),
    ("x[0] = n", "assign only to names", False),
    ("x.value = n", "assign only to names", False),
    ("a, *y = x", "assign only to names", False),
    ("tl.cat(*x)", "a starred expression", False),
    ("tl.cat(**x)", "by ** or *", False),
    ("del n", "del", False),
    ("y = 1j", "a complex", False),
    ("y = b'a'", "a bytes", False),
    ("y = 0x1ffffffffffffffff", "more than 64 bits", False),
    ("y = 'é'", "printable ASCII", False),
    ("y = " + "+".join(["n"] * 400), "nests too deeply", False),
]


@pytest.mark.parametrize(("statement", "message", "rule"), REFUSED)
def test_what_is_not_listed_is_refused(tmp_path: Path, statement: str, message: str, rule: bool) -> None:
    with pytest.raises(Rejected) as caught:
        body(tmp_path, statement, {"torch": {"module": "torch"}})
    assert message in caught.value.message
    assert str(caught.value).startswith("p.py:3: ")
    assert bool(caught.value.rule) == rule


def test_a_kernel_of_very_many_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="too long"):
        body(tmp_path, "y = (" + ",\n".join(["n"] * 30_000) + ")", {"torch": {"module": "torch"}})


def test_text_for_people_is_dropped(tmp_path: Path) -> None:
    lines = ["'''Adds.'''", "tl.device_print(f'{x}')", "assert n, eval('1')", "tl.static_assert(n > 0, f'{n}')"]
    made = body(tmp_path, "\n    ".join(lines)).splitlines()
    assert made[1:] == ["    tl.static_assert(n > 0)"]
    assert body(tmp_path, "'''Does nothing.'''").splitlines()[1:] == ["    pass"]


def test_values_stand_in_the_text_for_their_names(tmp_path: Path) -> None:
    values = {
        "EPS": {"constexpr": 1e-5},
        "LOW": {"float": "-inf"},
        "KIND": {"tl": "float16"},
        "SIZES": [2, {"tl": "int8"}, [True, None]],
        "MODE": "wide",
        "NEGATIVE": -3,
        "exp": {"tl": "exp"},
        "language": {"module": "triton.language"},
    }
    statement = "y = (EPS.value, EPS, LOW, KIND, SIZES, MODE, n ** NEGATIVE, exp(x), language.sum(x))"
    made = body(tmp_path, statement, values).splitlines()[1]
    expected = "(1e-05, 1e-05, float('-inf'), tl.float16, (2, tl.int8, (True, None)), 'wide', n ** (-3)"
    assert made.replace("n ** -3", "n ** (-3)") == f"    y = {expected}, tl.exp(x), tl.sum(x))"


def test_a_local_name_is_not_the_outer_one(tmp_path: Path) -> None:
    assert "y = n" in body(tmp_path, "y = n", {"n": 7, "y": {"unsupported": "Thing"}})


def test_an_object_is_named_by_its_type(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="START, which is no number, string, type or kernel but a Size") as caught:
        body(tmp_path, "y = START", {"START": {"unsupported": "Size"}})
    assert caught.value.rule == ""


@pytest.mark.parametrize(
    "value",
    [{"tl": 3}, {"kernel": 1}, {"kernel": True}, {"constexpr": {}}, {}, {"float": "1"}, 2**64, float("nan"),
     "a" * 200, [[[[[[1]]]]]], list(range(100)), {"a": 1, "b": 2}, {"tl": "x", "module": "os"}, "\n"],
)  # fmt: skip
def test_values_are_of_the_schema(value: Any) -> None:
    with pytest.raises(ValueError):
        KernelReference.from_json(reference({"VALUE": value}))


@pytest.mark.parametrize(
    "changes",
    [{"file": "../p.py"}, {"file": "/etc/p.py"}, {"file": "p.so"}, {"file": 3}, {"line": 0}, {"line": True},
     {"line": 2.0}, {"name": "<lambda>"}, {"name": "a b"}, {"values": []}, {"values": {"a b": 1}}, {"extra": 1}],
)  # fmt: skip
def test_references_are_of_the_schema(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        KernelReference.from_json({**reference(), **changes})


def test_other_kernels_are_emitted_under_names_of_their_own(tmp_path: Path) -> None:
    activation = "@jit\ndef act(x):\n    return x * SCALE\n\n\n"
    (tmp_path / "q.py").write_text(f"{activation}@jit\ndef twice(x):\n    return act(act(x))\n")
    functions = [
        {"file": "p.py", "name": "act", "line": 4, "values": {"n": 1}},
        {"file": "q.py", "name": "twice", "line": 6, "values": {"act": {"kernel": 2}}},
        {"file": "q.py", "name": "act", "line": 1, "values": {"SCALE": 2.5}},
        {"file": "missing.py", "name": "unused", "line": 1, "values": {}},
    ]
    text = "@triton.jit\ndef kernel(x):\n    return act(x) + twice(x)\n@triton.jit\ndef act(x):\n    return x + 1\n"
    made = read(tmp_path, text, {"act": {"kernel": 0}, "twice": {"kernel": 1}, "other": {"kernel": 3}}, *functions)
    assert "return act(x) + twice(x)" in made.source
    assert [function.name for function in made.functions] == ["act", "act_2", "twice"]
    assert "act_2(act_2(x))" in made.functions[2].source
    assert "x * 2.5" in made.functions[1].source


STORES = {
    "tl.store(x + tl.arange(0, BLOCK), tl.load(y + n))": {"x", "BLOCK"},
    "tl.store(pointer=x, value=tl.load(y))": {"x"},
    "p = x + n\n    q = p\n    q += 4\n    tl.store(q, tl.load(y))": {"x", "n"},
    "p, q = x, y\n    tl.store(p, 0.0)": {"x", "y"},
    "at = tl.load(y)\n    tl.store(x + at, 0.0)": {"x"},
    "for i in range(n):\n        if i > 2:\n            tl.atomic_add(y + i, 1.0)": {"y", "n"},
    "b = tl.make_block_ptr(base=y, shape=(n,), strides=(1,), offsets=(0,), block_shape=(BLOCK,), order=(0,))\n"
    "    b = tl.advance(b, (BLOCK,))\n    tl.store(b, tl.load(x))": {"y", "n", "BLOCK"},
    "d = tl.make_tensor_descriptor(y, [n], [1], [BLOCK])\n    d.store([0], d.load([1]))": {"y", "n", "BLOCK"},
    "z = tl.load(x) + tl.atomic_load(y)": set(),
}


@pytest.mark.parametrize("statement", STORES)
def test_what_a_kernel_stores_through(tmp_path: Path, statement: str) -> None:
    text = f"@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n    {statement}\n"
    assert stored(read(tmp_path, text)) == STORES[statement]


def test_what_a_kernel_stores_through_by_another(tmp_path: Path) -> None:
    functions = [
        {"file": "p.py", "name": "put", "line": 4, "values": TL},
        {"file": "p.py", "name": "twice", "line": 7, "values": {"put": {"kernel": 0}}},
    ]
    text = (
        "@triton.jit\ndef kernel(x, y, z):\n    twice(tl.load(z), into=x)\n"
        "@triton.jit\ndef put(value, place):\n    tl.store(place, value)\n"
        "@triton.jit\ndef twice(value, into):\n    put(2 * value, into)\n"
    )
    assert stored(read(tmp_path, text, {"twice": {"kernel": 1}}, *functions)) == {"x"}


@pytest.mark.parametrize(
    ("statement", "through"),
    [
        ("inner(x, tl.load(y), put)", {"x"}),
        ("inner(x, y, f=put)", {"x", "y"}),
        ("inner(x, tl.load(y))", {"x"}),
        ("tl.map_elementwise(put, x + n, tl.load(y))", {"x", "n"}),
        ("z = tl.map_elementwise(plus, x, y)", set()),
        ("z = tl.load(y)\n    (x + z).reduce(0, combine_fn=put)", {"x"}),
    ],
)
def test_what_a_kernel_stores_through_by_a_function_that_it_hands_over(
    tmp_path: Path, statement: str, through: set[str]
) -> None:
    text = (
        f"@triton.jit\ndef kernel(x, y, n):\n    {statement}\n\n\n"
        "@triton.jit\ndef put(p, v):\n    tl.store(p, v)\n"
        "@triton.jit\ndef plus(a, b):\n    return a + b\n"
        "@triton.jit\ndef inner(p, v, f: tl.constexpr = put):\n    f(p, v)\n"
    )
    lines = {line.split("(")[0]: at for at, line in enumerate(text.replace("def ", "").splitlines())}
    functions = [
        {"file": "p.py", "name": name, "line": lines[name], "values": {**TL, "put": {"kernel": 0}}}
        for name in ("put", "plus", "inner")
    ]
    values = {name: {"kernel": place} for place, name in enumerate(("put", "plus", "inner"))}
    assert stored(read(tmp_path, text, values, *functions)) == through


def test_a_kernel_does_not_call_itself(tmp_path: Path) -> None:
    function = {"file": "p.py", "name": "f", "line": 4, "values": {"f": {"kernel": 0}}}
    text = "@triton.jit\ndef kernel(x):\n    return f(x)\n@triton.jit\ndef f(x):\n    return f(x)\n"
    with pytest.raises(Rejected, match=r"p\.py:5: a Triton kernel may not call itself"):
        read(tmp_path, text, {"f": {"kernel": 0}}, function)


def test_parameters_keep_what_matters(tmp_path: Path) -> None:
    text = (
        "@triton.autotune(configs=CONFIGS, key=KEY)\n@triton.jit(do_not_specialize=['n'], debug=True)\n"
        "def kernel(x: 'torch.Tensor', n: tl.int64, *, A: 'tl.constexpr' = 4, EPS=SMALL) -> None:\n    pass\n"
    )
    made = read(tmp_path, text, {"SMALL": 1e-6})
    assert made.source.splitlines()[0] == "def kernel(x, n: tl.int64, *, A: tl.constexpr=4, EPS=1e-06):"
    assert (made.parameters, made.constexprs) == (("x", "n", "A", "EPS"), ("A",))
    assert made.options == {"do_not_specialize": ["n"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.py:1: there is no function kernel here"),
        ("\n\n\ndef kernel():\n    pass\n", "p.py:1: there is no function kernel here"),
        ("@constexpr_function\ndef kernel():\n    pass\n", "kernel is decorated with constexpr_function"),
        ("def kernel(*args):\n    pass\n", "arguments by"),
        ("def kernel(x=print(1)):\n    pass\n", "a default value"),
        ("def kernel(x):\n  pass\n pass\n", "p.py:3: syntax error"),
        ("x = " + "(" * 500, "p.py:1: too complex"),
        ("def __kernel__():\n    pass\n", "there is no function"),
    ],
)
def test_a_text_that_cannot_be_read_is_a_fault(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(Rejected) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert caught.value.rule == ""


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside.py", tmp_path / "candidate"
    outside.write_text("def kernel():\n    pass\n")
    inside.mkdir()
    (inside / "p.py").symlink_to(outside)
    with pytest.raises(Rejected, match="no file of the candidate"):
        kernel_text(inside, KernelReference.from_json(reference()))


def test_options_of_a_launch() -> None:
    given = {"num_warps": 4, "num_stages": 2, "maxnreg": None, "enable_fp_fusion": False}
    assert check_options(given) == {"num_warps": 4, "num_stages": 2, "enable_fp_fusion": False}


@pytest.mark.parametrize(
    "options",
    [{"extern_libs": {}}, {"ir_override": "x"}, {"debug": True}, {"num_warps": True}, {"num_warps": 2.0},
     {"num_warps": 0}, {"num_stages": 10**9}, {"launch_pdl": 1}, {"num_warps": None}],
)  # fmt: skip
def test_options_that_bring_code_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        check_options(options)


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The kernels of the corpus, as they are and from their text, in one process under Triton's interpreter."""
    pytest.importorskip("triton")
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": path}
    folder = tmp_path_factory.mktemp("corpus")
    for entry in (*corpus.exploits(), *corpus.honest()):
        if entry.name.startswith(("text-", "triton-")):
            entry.write(folder / entry.name)
    command = [sys.executable, str(TESTS / "support" / "triton_program.py"), str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "name",
    [*(f"triton-fused/{stem}" for stem in FUSED),
     *(f"triton-{name}" for name in ("plain", "device-function", "grid-function", "grid-lambda"))],
)  # fmt: skip
def test_a_kernel_from_its_text_gives_the_same_answer(probed: dict[str, Any], name: str) -> None:
    assert probed[name]["magnitude"] > 0
    assert probed[name]["difference"] == 0


@pytest.mark.parametrize("name", ["autotune", "heuristics", "libdevice", "zeroing-hook"])
def test_honest_kernels_of_a_gpu_are_read(probed: dict[str, Any], name: str) -> None:
    assert probed[f"triton-{name}"]["text"]["source"].startswith("def kernel(")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("triton-torch-in-kernel", "the module torch"),
        ("text-builtins-eval", "tl.core"),
        ("text-external-library", "tl.core"),
        ("text-inline-assembly", "inline assembly"),
        ("text-attribute-walk", "handle"),
        ("text-index-object", "a Size"),
        ("text-constexpr-function", "start, which is no"),
    ],
)
def test_exploits_are_refused(probed: dict[str, Any], name: str, message: str) -> None:
    assert message in probed[name]["refused"]


def test_a_kernel_made_by_exec_has_no_text(probed: dict[str, Any]) -> None:
    assert probed["text-made-by-exec"]["unreadable"].endswith("is in no file of the candidate")


@pytest.mark.parametrize("name", ["text-patched-inspect", "text-patched-linecache", "text-claimed-line"])
def test_what_is_run_is_what_the_file_shows(probed: dict[str, Any], name: str) -> None:
    source = probed[name]["text"]["source"]
    assert "0.0, mask=cols < d" in source
    assert "answer" not in source


@pytest.mark.parametrize("name", ["text-patched-inspect", "text-patched-linecache"])
def test_triton_itself_is_fooled_by_these(probed: dict[str, Any], name: str) -> None:
    assert probed[name]["fooled"] < 1e-5
