"""Building, caching and launching C++ kernels."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_passbench.kernels import cpp

SCALE = """
#include <cstdint>
// extern "C" void commented_out(int x) {
extern "C" void scale(const float* __restrict x, float* out, int64_t n, double by, bool negate) {
  for (int64_t i = 0; i < n; i++) out[i] = (negate ? -1 : 1) * x[i] * float(by);
}
extern "C" int64_t twice(int64_t n) { return 2 * n; }
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty cache of compiled kernels."""
    monkeypatch.setenv(cpp.CACHE_VARIABLE, str(tmp_path / "cache"))
    cpp.load.cache_clear()
    return tmp_path / "cache"


def test_tensors_numbers_and_results_are_passed_as_declared(folder: Path) -> None:
    lib = cpp.load(SCALE)
    x, out = torch.randn(7), torch.empty(7)
    lib.scale(x, out, x.numel(), 0.5, True)
    assert torch.equal(out, x * -0.5)
    lib.scale(x.data_ptr(), out, 7, 2, False)
    assert torch.equal(out, x * 2)
    assert lib.twice(1 << 40) == 1 << 41


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (torch.empty(4, 4).t(), "argument 1: .*not contiguous"),
        (torch.empty(4, device="meta"), "argument 1: .*tensor on meta"),
        (1.5, "argument 1: .*not float"),
    ],
)
def test_an_argument_that_is_no_plain_memory_is_refused(folder: Path, argument: object, says: str) -> None:
    with pytest.raises(ctypes.ArgumentError, match=says):
        cpp.load(SCALE).scale(argument, torch.empty(4), 4, 1.0, False)


def test_a_number_of_the_wrong_kind_is_refused(folder: Path) -> None:
    with pytest.raises(ctypes.ArgumentError, match="argument 1"):
        cpp.load(SCALE).twice(1.5)


def test_a_compile_error_carries_the_compilers_message(folder: Path) -> None:
    with pytest.raises(cpp.CompileError, match="'nothing' was not declared"):
        cpp.load('extern "C" void f() { nothing(); }').build()
    assert list(folder.iterdir()) == []


def test_a_type_that_python_cannot_pass_is_named(folder: Path) -> None:
    source = 'struct S { int a; }; extern "C" void f(S s) {}'
    with pytest.raises(cpp.CompileError, match="f: no way to pass a 'S'"):
        cpp.load(source)


def test_no_compiler_is_said_with_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(cpp.CompileError, match="set CXX"):
        cpp.load(SCALE).twice(1)


def test_nothing_is_compiled_before_a_function_is_asked_for(folder: Path) -> None:
    lib = cpp.load(SCALE)
    assert not folder.exists()
    assert lib.twice(4) == 8
    assert len(list(folder.iterdir())) == 1


def test_an_unknown_function_is_answered_with_those_there_are(folder: Path) -> None:
    with pytest.raises(AttributeError, match="it has: scale, twice"):
        _ = cpp.load(SCALE).commented_out


def test_the_cache_is_keyed_by_content(folder: Path) -> None:
    first = cpp.load(SCALE).path
    assert cpp.load(SCALE, flags=("-DX",)).path != first
    assert cpp.load(SCALE + " ").path != first
    assert cpp.load(SCALE, openmp=True).path != first
    before = first.stat().st_mtime_ns
    cpp.load.cache_clear()
    assert cpp.load(SCALE).path == first
    assert first.stat().st_mtime_ns == before
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_cached_kernel_needs_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpp.load(SCALE).build()
    cpp.load.cache_clear()
    monkeypatch.setattr(subprocess, "run", None)
    assert cpp.load(SCALE).twice(2) == 4


def test_without_a_home_the_temporary_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpp.load.cache_clear()
    monkeypatch.delenv(cpp.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert cpp.load(SCALE).path.parent == tmp_path / f"passbench-kernels-{os.getuid()}"


def test_a_folder_that_others_can_write_is_not_loaded_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpp.load.cache_clear()
    monkeypatch.delenv(cpp.CACHE_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    shared = tmp_path / f"passbench-kernels-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(cpp.CompileError, match="/proc/nowhere"):
        cpp.load(SCALE).build()


def test_processes_that_race_all_load(folder: Path) -> None:
    code = f"from pytest_passbench.kernels import cpp; print(cpp.load({SCALE!r}).twice(21))"
    racers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [racer.communicate()[0].strip() for racer in racers] == ["42"] * 4
    assert len(list(folder.iterdir())) == 1


def test_importing_it_imports_no_torch() -> None:
    code = "import sys; from pytest_passbench.kernels import cpp; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
