"""Compiling candidates' kernels on the judge's side: what is built, what is refused, and the limits."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib
import json
import os
import random
import re
import signal
import stat
import struct
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.core.rejected import Rejected
from pytest_passbench.judge.arms import processes, sandbox
from pytest_passbench.judge.arms.failures import ProcessLost
from pytest_passbench.judge.builder import check, compile
from pytest_passbench.judge.builder.build import Builder
from pytest_passbench.judge.builder.compile_errors import CompileFailed, limit_reached
from pytest_passbench.judge.scratch import sealed
from pytest_passbench.kernels import cpp, toolchain
from pytest_passbench.kernels.signatures import Signature
from support import corpus
from support.paths import ROOT

WEAK = sandbox.Walls(False, "asked for")
WALLS = {"strong": sandbox.walls(), "weak": WEAK}
SCALE = """
#include <cstdint>
#include <cmath>
static const float table[2] = {1.5f, -2.5f};
extern "C" void scale(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; i++) out[i] = std::fabs(x[i]) * table[i % 2];
}
extern "C" int64_t twice(int64_t n) { return 2 * n; }
"""


@pytest.fixture(scope="module", params=[pytest.param("strong", marks=pytest.mark.bubblewrap), "weak"])
def builder(request: pytest.FixtureRequest) -> Builder:
    return Builder(WALLS[request.param], None)


@pytest.fixture(scope="module")
def weak() -> Builder:
    return Builder(WEAK, None)


def kernel(body: str = "x[0] = n;", before: str = "") -> str:
    return f'#include <cstdint>\n#include <cmath>\n{before}\nextern "C" void f(float* x, int64_t n) {{\n{body}\n}}\n'


def test_a_library_works_and_offers_its_functions_only(builder: Builder) -> None:
    built = builder.library(SCALE + 'extern "C" { void hidden() {} }', ("-O2",), False)
    assert built.functions == {
        "scale": Signature("void", ("pointer", "pointer", "int64"), frozenset({1}), ("x", "out", "n")),
        "twice": Signature("int64", ("int64",), names=("n",)),
    }
    descriptor = sealed(built.data)
    try:
        library = ctypes.CDLL(f"/proc/self/fd/{descriptor}")
        x, out = (ctypes.c_float * 3)(1, -2, 3), (ctypes.c_float * 3)()
        library.scale(x, out, ctypes.c_int64(3))
        assert list(out) == [1.5, -5.0, 4.5]
        with pytest.raises(AttributeError):
            _ = library.hidden
    finally:
        os.close(descriptor)


def test_a_descriptor_can_neither_be_written_nor_unsealed(weak: Builder) -> None:
    descriptor = sealed(weak.library(SCALE).data)
    try:
        with pytest.raises(OSError):
            os.write(descriptor, b"x")
        with pytest.raises(PermissionError):
            _write_anew(descriptor)
        assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_WRITE
    finally:
        os.close(descriptor)


def _write_anew(descriptor: int) -> None:
    """Open the file for writing, as its owner may, and write to it, which its seals should refuse."""
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
    try:
        os.write(again, b"x")
    finally:
        os.close(again)


REFUSED = {
    "getenv": ('extern "C" char* getenv(const char*);', 'x[0] = getenv("A") != nullptr;', "native-symbol", "getenv"),
    "fork": ('extern "C" int fork();', "x[0] = fork();", "native-symbol", "fork"),
    "builtin fork": ("", "x[0] = __builtin_fork();", "native-symbol", "fork"),
    "builtin exec": ("", "__builtin_execl(nullptr, nullptr, nullptr);", "native-symbol", "execl"),
    "clock": ('extern "C" int clock_gettime(int, void*);', "x[0] = clock_gettime(1, x);", "native-symbol",
              "clock_gettime"),
    "threads": ('extern "C" int pthread_create(void*, void*, void*(*)(void*), void*);',
                "pthread_create(x, x, nullptr, x);", "native-symbol", "pthread_create"),
    "dlopen": ('extern "C" void* dlopen(const char*, int);', "x[0] = dlopen(nullptr, 1) != nullptr;", "native-symbol",
               "dlopen"),
    "syscall": ('extern "C" long syscall(long, ...);', "x[0] = syscall(39);", "native-symbol", "syscall"),
    "open": ('extern "C" int open(const char*, int, ...);', 'x[0] = open("/proc", 0);', "native-symbol", "open"),
    "weak": ('extern "C" __attribute__((weak)) int fork();', "x[0] = fork ? fork() : 0;", "native", "weak"),
    "random state": ("#include <cstdlib>", "x[0] = rand();", "native-symbol", "rand"),
    "OpenMP's clock": ("#include <omp.h>", "x[0] = omp_get_wtime();", "native-symbol", "omp_get_wtime"),
    "OpenMP's settings": ("#include <omp.h>", "omp_set_num_threads(3);", "native-symbol", "omp_set_num_threads"),
    "at exit": ("#include <cstdlib>", "atexit([] {});", "native-symbol", "__cxa_atexit"),
    "static": ("static int counter;", "x[0] = ++counter;", "native-state", "counter"),
    "initialised static": ("int counter = 3;", "x[0] = ++counter;", "native-state", "counter"),
    "static in the function": ("", "static int64_t calls = 0; x[0] = ++calls;", "native-state", "f::calls"),
    "guarded static": ("", "static float first = x[0]; x[0] = first;", "native-state", "first"),
    "template's static": ("template <class T> T kept;", "x[0] = kept<float>++;", "native-state", "kept"),
    "static vector": ("#include <vector>\nstatic std::vector<float> kept;", "kept.push_back(x[0]); x[0] = kept[0];",
                      "native-state", "kept"),
    "thread local": ("thread_local int counter;", "x[0] = ++counter;", "native-state", "thread_local"),
    "OpenMP's critical section": ("", "#pragma omp parallel\n#pragma omp critical (name)\nx[0] += 1;", "native-state",
                                  "gomp_critical_user_name"),
    "static object": ("struct S { S(); ~S() {} }; const S s; S::S() { __builtin_trap(); }", "x[0] = 1;",
                      "native-(state|load)", "kernel"),
    "many instruction sets": ("", "x[0] = __builtin_cpu_supports(\"avx2\");", "native-(state|symbol)", "kernel"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "body", "rule", "names"), REFUSED.values(), ids=REFUSED)
def test_refused(weak: Builder, before: str, body: str, rule: str, names: str) -> None:
    with pytest.raises(Rejected, match=rf"\b{names}\b") as caught:
        weak.library(kernel(body, before), (), True)
    assert re.fullmatch(rule, caught.value.rule)


HONEST = {
    "vector": ("#include <vector>", "std::vector<float> v(n), w(n); v.at(0) = x[0]; x[0] = v[0] + w[0];"),
    "exceptions": ("#include <new>", 'try { if (n < 0) throw std::bad_alloc(); } catch (...) { x[0] = 0; }'),
    "virtual": ("struct A { virtual float go() const { return 1; } }; struct B : A { float go() const override"
                " { return 2; } };", "A a; B b; const A* p = n ? &a : &b; x[0] = p->go();"),
    "tables": ('static const char* const names[] = {"a", "b"}; constexpr float t[] = {1, 2};',
               "x[0] = names[n % 2][0] + t[n % 2];"),
    "reduction": ("", "float s = 0;\n#pragma omp parallel for reduction(+:s) schedule(dynamic)\n"
                  "for (int64_t i = 0; i < n; i++) s += x[i];\nx[0] = s;"),
    "critical": ("#include <omp.h>", "#pragma omp parallel\n#pragma omp critical\nx[0] += omp_get_thread_num();"),
    "memory": ("#include <cstdlib>\n#include <cstring>\n#include <memory>",
               "void* p = std::aligned_alloc(64, 64 * n); std::memcpy(p, x, n); std::memmove(x, p, n); std::free(p);"
               "auto u = std::make_unique<float[]>(n); x[0] = u[0];"),
    "mathematics": ("#include <complex>", "x[0] = std::tgamma(x[0]) + std::erf(x[1]) + sincosf_(x[2])"
                    " + std::abs(std::exp(std::complex<float>(x[0], x[1]))) + std::fmod(x[0], 3) + lrintf(x[0]);"),
    "assert": ("#include <cassert>", "assert(n > 0); x[0] = 1;"),
    "sort": ("#include <algorithm>\n#include <numeric>\n#include <functional>",
             "std::sort(x, x + n); std::function<float(float)> g = [n](float v) { return v + n; }; x[0] = g(x[1]);"),
    "containers": ("#include <map>\n#include <string>\n#include <unordered_map>",
                   "std::map<int, float> m; m[int(n)] = 1; std::unordered_map<int, float> u; u[3] = 2;"
                   "std::string s(size_t(n), 'a'); x[0] = m[3] + u[int(n)] + s.size();"),
}  # fmt: skip


@pytest.mark.parametrize(("before", "body"), HONEST.values(), ids=HONEST)
@pytest.mark.parametrize("flags", [(), ("-ffast-math",), ("-O0",)], ids=lambda flags: flags[0] if flags else "plain")
def test_honest(weak: Builder, before: str, body: str, flags: tuple[str, ...]) -> None:
    source = kernel(body, before + "\nstatic float sincosf_(float v) { return std::sin(v) + std::cos(v); }")
    assert list(weak.library(source, flags, True).functions) == ["f"]


@pytest.mark.parametrize("include", ["cstdio", "iostream"])
def test_a_kernel_that_prints_fails_but_is_not_accused(weak: Builder, include: str) -> None:
    with pytest.raises(CompileFailed, match=r"nothing to print to"):
        weak.library(kernel('printf("%f", x[0]); fprintf(stderr, "here");', f"#include <{include}>"))


def test_a_mistake_is_answered_with_the_compilers_first_error(builder: Builder) -> None:
    with pytest.raises(CompileFailed, match=r"\Akernel:6:8: error: 'nothing' was not declared"):
        builder.library(kernel("int unused;\nx[0] = nothing;"), ("-Wall",))
    with pytest.raises(CompileFailed, match="f: no way to pass a 'S'"):
        builder.library('struct S { int a; }; extern "C" void f(S s) {}')


def test_nothing_of_the_judges_environment_reaches_the_compiler(builder: Builder, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    (tmp_path / "cmath").write_text("#error planted\n")
    for name in ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert builder.library(kernel(f"// {tmp_path}"))


DEAR = {
    "memory": ("#define F(x) x x x x x x x x x x x x x x x\nint y = 0 " + "F(" * 8 + "+1" + ")" * 8 + ";", "memory"),
    "template recursion": (
        "template <int N> struct F { static const int v = F<N - 1>::v + F<N - 2>::v; };\nint v = F<99999>::v;",
        "depth exceeds",
    ),
    "a large object": ("char big[1 << 30] = {1};", "needs more room"),
    "a large constant": ("extern const char big[40 << 20] = {1};", "needs more room|larger than 16 MiB"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("before", "says"), DEAR.values(), ids=DEAR)
def test_a_dear_source_ends_within_limits(builder: Builder, before: str, says: str) -> None:
    with pytest.raises(Rejected, match=says):
        builder.library(kernel(before=before))


@pytest.mark.parametrize("name", ["std::bad_alloc", "Killed", "MemoryError"])
def test_an_error_that_quotes_the_words_of_a_limit_is_an_error(weak: Builder, name: str) -> None:
    with pytest.raises(CompileFailed, match=r"\Akernel:\d+:\d+: error: ") as caught:
        weak.library(kernel(f"throw {name}(1, 2);"))
    assert caught.value.rule == ""


@pytest.mark.parametrize(
    ("output", "limit"),
    [
        ("<stdin>:5:1: error: 'Killed' was not declared\n    5 | Killed();\n", None),
        ("/usr/bin/ld: /tmp/a.o: in function `f':\n<stdin>:(.text+0x9): undefined reference to `Killed()'\n", None),
        ("cc1plus: out of memory allocating 65536 bytes\n", "memory"),
        ("virtual memory exhausted: Cannot allocate memory\n", "memory"),
        ("<stdin>:1:1: fatal error: error writing to -: Broken pipe\n"
         "g++: fatal error: File size limit exceeded signal terminated program as\n", "room"),
        ("<stdin>:5:1: error: 'x' was not declared\n"
         "g++: internal compiler error: CPU time limit exceeded signal terminated program cc1plus\n", "time"),
    ],
)  # fmt: skip
def test_a_limit_is_named_by_the_compiler_and_not_by_the_text(output: str, limit: str | None) -> None:
    failed = limit_reached(output)
    assert (failed is None) == (limit is None)
    assert failed is None or str(failed) == f"compiling needs more {limit} than a kernel may take"


def test_a_failure_that_is_remembered_does_not_grow(weak: Builder) -> None:
    lengths = set()
    for _ in range(3):
        with pytest.raises(CompileFailed) as caught:
            weak.library('struct S { int a; }; extern "C" void g(S s) {}')
        lengths.add(len(list(traceback.walk_tb(caught.value.__traceback__))))
    assert len(lengths) <= 2  # the first one has a longer traceback than the stored ones


#: A text that takes the compiler seconds.
LENGTHY = "#include <cstdint>\n" + "".join(
    f"template <int N> struct A{i} {{ typedef typename A{i}<N - 1>::a a; }};"
    f"template <> struct A{i}<0> {{ typedef int a; }}; A{i}<800>::a a{i}();\n"
    for i in range(300)
)


def test_a_compiler_that_does_not_end_is_ended(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "TIMEOUT_SECONDS", 0.5)
    before = _descendants()
    with pytest.raises(CompileFailed, match="compiling took longer than"):
        builder.library(LENGTHY)
    assert _descendants() <= before
    monkeypatch.undo()
    with pytest.raises(CompileFailed, match="took longer than"):  # the failure is stored
        builder.library(LENGTHY)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("victim", ["cc1plus", Path(toolchain.compiler()).name[:15], "bwrap"])
def test_a_compiler_that_is_killed_from_outside_is_no_fault_of_its_text(victim: str) -> None:
    builder = Builder(WALLS["strong"], None)
    with striking(victim, signal.SIGKILL), pytest.raises(ProcessLost, match="killed from outside"):
        builder.library(LENGTHY)
    assert "scale" in builder.library(SCALE).functions


@pytest.mark.sandbox
@pytest.mark.parametrize("walls", WALLS)
def test_a_killed_compiler_is_not_waited_for_if_its_children_hold_its_pipes(walls: str) -> None:
    error = ProcessLost if WALLS[walls].strong else CompileFailed  # without bubblewrap there are no strong walls
    command = ["/bin/sh", "-c", "sleep 20 & kill -9 $$"]
    with pytest.raises(error, match="killed from outside"):
        compile.run_compiler(command, b"", {"PATH": "/usr/bin:/bin"}, 10, 10, WALLS[walls])


@pytest.mark.bubblewrap
def test_a_compiler_that_is_stopped_from_outside_is_no_fault_of_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile, "TIMEOUT_SECONDS", 3)
    with striking("cc1plus", signal.SIGSTOP), pytest.raises(ProcessLost, match="stopped from outside"):
        Builder(WALLS["strong"], None).library(LENGTHY)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("says", ["Killed", r"\ng++: fatal error: Killed signal terminated program cc1plus\n"])
def test_a_text_cannot_claim_that_its_compiler_was_killed(says: str) -> None:
    with pytest.raises(CompileFailed):
        Builder(WALLS["strong"], None).library(kernel(before=f'static_assert(false, "{says}");'))


@contextlib.contextmanager
def striking(victim: str, number: signal.Signals) -> Iterator[None]:
    """Send a signal to the first new process of this name. Old ones belong to sandboxes of other tests."""
    over, earlier = threading.Event(), _descendants()

    def watch() -> None:
        while not over.wait(0.003):
            for pid in [pid for pid in _descendants() - earlier if processes.name(pid) == victim][:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _descendants() -> set[int]:
    return set(processes.descendants(os.getpid()))


def test_900_kilobytes_of_text_are_refused_at_once(weak: Builder) -> None:
    with pytest.raises(Rejected, match="too complex"):
        weak.library("int f(int x) { return x; }\n" * 35_000)
    with pytest.raises(Rejected, match="half of a character"):
        weak.library("// \ud800")


# ---- the cache


def test_the_cache_is_private_and_serves_other_builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    built = Builder(WEAK, folder).library(SCALE)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(compile, "run", None)
    again = Builder(WEAK, folder).library(SCALE)
    assert (again.data, again.functions) == (built.data, built.functions)
    with pytest.raises(TypeError):
        Builder(WEAK, folder).library(SCALE, ("-O2",))


def test_a_damaged_entry_of_the_cache_is_built_anew(tmp_path: Path) -> None:
    built = Builder(WEAK, tmp_path).library(SCALE)
    (entry,) = tmp_path.iterdir()
    stored = bytearray(entry.read_bytes())
    for damaged in (b"", bytes(stored[:100]), bytes(stored[:-1]) + b"x"):
        entry.write_bytes(damaged)
        assert Builder(WEAK, tmp_path).library(SCALE).data[:4] == built.data[:4]
        assert entry.read_bytes()[:32] == stored[:32]


def test_builders_that_race_all_build(tmp_path: Path) -> None:
    found: list[Any] = []
    racers = [threading.Thread(target=lambda: found.append(Builder(WEAK, tmp_path).library(SCALE))) for _ in range(3)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len({built.data for built in found}) == 1
    assert len(found) == 3
    assert len(list(tmp_path.iterdir())) == 1


# ---- libraries that our compiler has not made


def test_no_library_makes_the_check_raise_anything_else(weak: Builder) -> None:
    source = kernel("x[0] = std::sin(x[1]);", "struct A { virtual void g() {} };\nA a() { return {}; }")
    good = weak.library(source).data
    assert check.check(good) == {"f"}
    rng = random.Random(7)
    outcomes = set()
    for _ in range(2000):
        try:
            outcomes.add(bool(check.check(_mutated(good, rng))))
        except Rejected:
            outcomes.add(None)
    assert None in outcomes


def _mutated(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(rng.choice((64, 64 + 9 * 56, 0x1000, len(data))))
        width = rng.choice((1, 2, 4, 8))
        most = (1 << 8 * width) - 1
        value = rng.choice((0, 1, most, 1 << 31, len(data), rng.getrandbits(8), rng.getrandbits(64)))
        changed[at : at + width] = (value & most).to_bytes(width, "little")
    return bytes(changed[: rng.randrange(len(changed))]) if rng.random() < 0.1 else bytes(changed)


def _with_segment(data: bytes, kind: int, fields: dict[str, int]) -> bytes:
    """Return ``data`` with fields of its first program header of ``kind`` changed."""
    changed, headers = bytearray(data), struct.unpack_from("<Q", data, 32)[0]
    for at in range(headers, headers + 56 * struct.unpack_from("<H", data, 56)[0], 56):
        if struct.unpack_from("<I", data, at)[0] == kind:
            struct.pack_into("<I", changed, at, fields.get("kind", kind))
            if "flags" in fields:
                struct.pack_into("<I", changed, at + 4, fields["flags"])
            return bytes(changed)
    raise AssertionError


@pytest.mark.parametrize(
    ("kind", "fields", "says"),
    [
        (0x6474E551, {"flags": 7}, "executable stack"),
        (0x6474E551, {"kind": 4}, "executable stack"),
        (1, {"flags": 7}, "both writable and executable"),
        (0x6474E552, {"kind": 4}, "keeps storage"),
        (4, {"kind": 3}, "segments that no kernel has"),
        (4, {"kind": 7}, "thread_local"),
    ],
)
def test_segments(weak: Builder, kind: int, fields: dict[str, int], says: str) -> None:
    with pytest.raises(Rejected, match=says):
        check.check(_with_segment(weak.library(SCALE).data, kind, fields))


def test_a_library_that_prints_and_runs_code_at_load_is_accused() -> None:
    source = kernel('printf("%f", x[0]);', "#include <cstdio>")
    data = bytearray(compile.run(source, toolchain.options((), openmp=False), ["f"], WEAK))
    library = check.ElfLibrary(bytes(data))
    address = next(value for tag, value in library.dynamic if tag == check.JMPREL)
    struct.pack_into("<I", data, library._at(address, 24) + 8, 37)  # the kind R_X86_64_IRELATIVE, an ifunc
    with pytest.raises(Rejected, match="a relocation that no kernel has"):
        check.check(bytes(data))


# ---- candidates


Load = tuple[str, tuple[str, ...], bool]


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], list[Load]]:
    """Return a function that imports a folder's passes, and returns the kernels that they load, not compiled."""

    def load(folder: Path) -> list[Load]:
        found: list[Load] = []

        def record(source: str, *, flags: tuple[str, ...] = (), openmp: bool = False) -> Any:
            found.append((source, tuple(flags), openmp))
            return cpp.CppLibrary(source, ())

        monkeypatch.setattr(cpp, "load", record)
        package = types.ModuleType(f"of_{folder.name.replace('-', '_')}")
        package.__path__ = [str(folder)]
        monkeypatch.setitem(sys.modules, package.__name__, package)
        monkeypatch.syspath_prepend(str(folder))
        for name in json.loads((folder / "sorted_output_pass_rule_names.json").read_text()):
            importlib.import_module(f"{package.__name__}.{name}")
        return found

    return load


@pytest.mark.slow
def test_every_kernel_of_the_shipped_candidate_builds(weak: Builder, loads: Any) -> None:
    kernels = loads(ROOT / "candidates" / "cpu-fused")
    assert kernels
    for source, flags, openmp in kernels:
        assert weak.library(source, flags, openmp).functions


def named(entries: list[corpus.Entry], prefix: str) -> list[Any]:
    return [pytest.param(entry, id=entry.name) for entry in entries if entry.name.startswith(prefix)]


@pytest.mark.parametrize("entry", named(corpus.honest(), "cpp-"))
def test_honest_candidates_build(weak: Builder, loads: Any, entry: corpus.Entry, tmp_path: Path) -> None:
    for source, flags, openmp in loads(entry.write(tmp_path / entry.name)):
        assert weak.library(source, flags, openmp).functions


@pytest.mark.parametrize("entry", named(corpus.exploits(), "builder-"))
def test_exploits_are_refused_or_left_to_the_measured_process(
    weak: Builder, loads: Any, entry: corpus.Entry, tmp_path: Path
) -> None:
    ((source, flags, openmp),) = loads(entry.write(tmp_path / entry.name))
    if entry.expect == "neutralised" or entry.name == "builder-written-code":
        assert weak.library(source, flags, openmp).functions
    else:
        with pytest.raises(Rejected):
            weak.library(source, flags, openmp)
