"""Loading pass directories: every spelling of an import, and every fault of a pass."""

from __future__ import annotations

import sys
import textwrap

import pytest

from pytest_passbench.reader.importing import load_passes
from pytest_passbench.reader.trace import trace
from pytest_passbench.rewrite.passes import PassError

PASS = """
def pattern(x):
    return x.relu()
def replacement_args(x):
    return (x,)
def replacement_func():
    return kernel
"""


@pytest.fixture
def folder(tmp_path):
    path, modules = tmp_path / "my candidate" / "gelu_passes", set(sys.modules)
    path.mkdir(parents=True)
    search, finders = list(sys.path), list(sys.meta_path)
    yield path
    sys.path[:], sys.meta_path[:] = search, finders
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)) or name == "pass_dir":
            del sys.modules[name]


def write(folder, **files):
    for name, text in files.items():
        file = folder / (name.replace("__slash__", "/") + ".py")
        file.parent.mkdir(exist_ok=True)
        file.write_text(textwrap.dedent(text))


HELPER = "import torch\nLOADED = []\ndef kernel(x):\n    return torch.relu(x)\n"
IMPORTS = [
    "from pass_dir.helper import kernel",
    "from .helper import kernel",
    "from gelu_passes.helper import kernel",
    "from . import helper\nkernel = helper.kernel",
    "import helper\nkernel = helper.kernel",
    "from helper import kernel",
    "import pass_dir.helper as h\nkernel = h.kernel",
    "import pass_dir.helper\nkernel = pass_dir.helper.kernel",
    "import os, sys\nsys.path.insert(0, os.path.dirname(__file__))\nimport helper\nkernel = helper.kernel",
    "import sys, os\nsys.path.append(__file__ + '/../..')\nfrom gelu_passes.helper import kernel",
    "import importlib\nkernel = importlib.import_module('pass_dir.helper').kernel",
]


@pytest.mark.parametrize("spelling", IMPORTS)
def test_every_spelling_of_a_helper_s_import(folder, spelling):
    write(folder, helper=HELPER, one=spelling + PASS)
    [item] = load_passes(folder, ["one"])
    assert item.wrapper.__name__ == "kernel"
    assert item.file == folder / "one.py"


def test_all_spellings_give_one_module_shared_by_the_passes(folder):
    write(folder, helper=HELPER, **{f"p{i}": text + PASS for i, text in enumerate(IMPORTS)})
    passes = load_passes(folder, [f"p{i}" for i in range(len(IMPORTS))])
    assert len({id(item.wrapper) for item in passes}) == 1


def test_helpers_import_helpers_and_packages(folder):
    write(
        folder,
        one="from pass_dir.a import kernel" + PASS,
        a="from .sub.b import kernel",
        sub__slash__b="from ..c import kernel",
        c="from sub.d import kernel",
        sub__slash__d=HELPER,
    )
    assert load_passes(folder, ["one"])[0].wrapper.__name__ == "kernel"


def test_two_directories_do_not_see_each_other_s_helpers(folder, tmp_path):
    write(folder, helper=HELPER, one="from helper import kernel" + PASS)
    other = tmp_path / "other"
    other.mkdir()
    write(other, helper="def kernel(x):\n    return 2", one="from helper import kernel" + PASS)
    first, second = load_passes(folder, ["one"])[0], load_passes(other, ["one"])[0]
    assert second.wrapper(None) == 2
    assert first.wrapper is not second.wrapper


def test_a_helper_does_not_shadow_the_standard_library_or_torch(folder):
    write(
        folder,
        json="raise RuntimeError",
        torch="raise RuntimeError",
        one="import json, torch\nkernel = torch.relu" + PASS,
    )
    assert load_passes(folder, ["one"])


def test_byte_code_is_neither_read_nor_written(folder):
    write(folder, helper=HELPER, one="from .helper import kernel" + PASS)
    load_passes(folder, ["one"])
    assert not list(folder.rglob("*.pyc"))
    (folder / "helper.py").rename(folder / "helper.txt")
    (folder / "helper.pyc").write_bytes(b"anything")
    with pytest.raises(PassError, match=r"import failed: ModuleNotFoundError"):
        load_passes(folder, ["one"])


def test_triton_kernels_with_autotune_and_heuristics(folder):
    text = """
    import torch, triton
    import triton.language as tl

    @triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})], key=["n"])
    @triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    @triton.jit
    def relu_kernel(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.maximum(tl.load(x + at, mask=at < n), 0.0), mask=at < n)

    @torch.fx.wrap
    def kernel(x):
        out = torch.empty_like(x)
        relu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
    """
    write(folder, kernels=text, one="from pass_dir.kernels import kernel" + PASS)
    assert load_passes(folder, ["one"])[0].wrapper.__name__ == "kernel"


@pytest.mark.parametrize(
    "made", ["lambda x: x", "functools.partial(max, 1)", "type('Kernel', (), {'__call__': max})()"]
)
def test_a_wrapper_that_is_made_anew_at_every_call_is_one(folder, made):
    write(folder, one="import functools" + PASS.replace("return kernel", f"return {made}"))
    assert callable(load_passes(folder, ["one"])[0].wrapper)


FAULTS = [
    ("def pattern(x:\n    return x", r"syntax error: .*one\.py:1\)"),
    ("import nowhere_at_all" + PASS, r"import failed: ModuleNotFoundError.*one\.py:1\)"),
    ("x = 1 / 0" + PASS, r"ZeroDivisionError: division by zero \(.*one\.py:1\)"),
    ("raise SystemExit(0)", "import failed: SystemExit"),
    (PASS.replace("def pattern", "def patern"), "defines no function 'pattern'"),
    (PASS.replace("replacement_args", "args"), "defines no function 'replacement_args'"),
    (PASS.replace("replacement_func", "func"), "defines no function 'replacement_func'"),
    (PASS, r"replacement_func\(\) failed: NameError.*one\.py:7\)"),
    ("kernel = 3" + PASS, "returns int, not a callable"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_faults_name_the_pass_and_the_place(folder, text, message):
    write(folder, one=text)
    with pytest.raises(PassError, match=message) as caught:
        load_passes(folder, ["one"])
    assert caught.value.name == "one"
    assert str(caught.value).startswith("pass one: ")


def test_the_place_is_named_in_a_folder_called_torch(folder):
    write(folder / "torch", one="import torch\nkernel = torch.relu" + PASS.replace("x.relu()", "x.relu() + missing"))
    item = load_passes(folder / "torch", ["one"])[0]
    with pytest.raises(PassError, match=r"NameError: .*missing.*/torch/one\.py:4\)"):
        trace("one", "pattern", item.pattern, ["x"])


def test_the_place_is_in_the_folder_and_not_in_one_whose_name_goes_on(folder):
    beside = folder.with_name(folder.name + "_more")
    write(beside, other="1 / 0")
    write(folder, one=f"import sys\nsys.path.append({str(beside)!r})\nimport other" + PASS)
    with pytest.raises(PassError, match=r"import failed: ZeroDivisionError: .*/gelu_passes/one\.py:3\)"):
        load_passes(folder, ["one"])
