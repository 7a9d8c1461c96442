"""The checks of a kernel's C++ text and flags: what they refuse, what they must never refuse, and in what time."""

from __future__ import annotations

import re
import subprocess
import time

import pytest

from pytest_passbench.candidate import cpp_text
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.judge.builder.build import check_flags
from pytest_passbench.kernels import signatures, toolchain
from pytest_passbench.kernels.toolchain import CompileError

REFUSED = {
    'asm("nop");': "native",
    'int f() __asm__("g");': "native",
    '__asm volatile ("nop");': "native",
    'a\\\nsm("nop");': "native",
    'a\\ \t\nsm("nop");': "native",
    'as??/\nm("nop");': "native",
    '\\u0061sm("nop");': "native",
    "#define GLUE(a, b) a##b": "native",
    "%:define GLUE(a, b) a%:%:b": "native",
    '__CONCAT(as, m)("nop")': "native",
    "_tile_zero(0; syscall)": "native",
    'const char* s = R"x(")x"; asm("nop");': "native",
    'int x = 1\'0; asm("nop");': "native",
    "__attribute__((constructor)) void f() {}": "native",
    "__attribute__((unused, destructor)) void f() {}": "native",
    "[[gnu::constructor]] void f();": "native",
    "[ [using gnu: cold, constructor]] void f();": "native",
    '__attribute__((section(".text"))) int x;': "native",
    '#define PLACE section(".text")\n__attribute__((PLACE)) int x;': "native",
    "#define PLACE(x) section x\n": "native",
    "#define HERE __attribute__\n": "native",
    '__attribute__((symver("f@V"))) int f();': "native",
    '[\n[gnu::unknown]] void f();': "native",
    'void f() __attribute__\n((constructor));': "native",
    "<:<:gnu::unknown:>:> void f();": "native",
    "struct S <%int x; %>;": "native",
    'int x, section\n(".text");': "native",
    '[\n[gnu::section\n(".text.k,\\"ax\\",@progbits\\nk:\\n\\trdtsc\\n\\tret\\n#")]] void f() {}': "native",
    'int x, section\n#define A\n\n(".text,\\"ax\\"\\n");': "native",
    '#define A (".text;rdtsc")\n#define E\n[E[gnu::section A]] int x;': "native",
    '#define I(x) x\nI([)I([) gnu::I(section)(".text\\n") I(])I(]) int x;': "native",
    "#define S(x) #x\n#define I(x) x\nI([)I([) gnu::I(section)(S(.text;rdtsc)) I(])I(]) int x;": "native",
    '#define R(s) ), s P, aligned(8\n#define P (".text.k")\n__attribute__((aligned(8 R(section)))) int x;': "native",
    '#define L(x) [x]\n#define P (".text.k")\nL([gnu::section P]) int x;': "native",
    '#define L(x) [x]\n#define P (".text.k")\n#define C ::\nL([gnu C section P]) int x;': "native",
    '#define A(hot) __attribute__((hot))\n#define P (".text.k")\nA(section P) int x;': "native",
    '#define A(hot) [[gnu::hot]]\n#define I(x) x\nA(I(section)(".text.k")) int x;': "native",
    '#define hot(x) x\n#define A(n) __attribute__((hot(n)))\nA(I(section)(".text.k")) int x;': "native",
    '#define O + ((\n#define P (".text.k")\n__attribute__((aligned(8 O 0))), section P)) int x;': "native",
    '#define O ) + (\n#define P (".text.k")\n__attribute__((aligned(8 O 0)), section P)) int x;': "native",
    '#define P (".text.k")\n#define C ,\nvoid f(int*) __nonnull((1) C section P);': "native",
    '#define P (".text.k")\n__attribute__((hot\n#if 0\n))\n#else\n, section P))\n#endif\nint x;': "native",
    "#pragma GCC poison x": "native",
    "#pragma weak f": "native",
    "#define P(x) _Pragma(#x)\n": "native",
    '_Pragma("weak f")': "native",
    '#ident "x"': "native",
    '# 3 "x.h" 3': "native",
    "long t = __rdtsc();": "native",
    "long t = _rdtsc();": "native",
    "long t = __builtin_ia32_rdtsc();": "native",
    "void* p = __builtin_return_address(0);": "native",
    "#include <thread>": "native-include",
    "#include <unistd.h>": "native-include",
    '#include "planted.h"': "native-include",
    "#include </etc/passwd>": "native-include",
    "#include MACRO": "native-include",
    "#/* hidden */include <fstream>": "native-include",
    "/* a\n */ # include <fstream>": "native-include",
    "#include_next <cmath>": "native-include",
    "#import <cmath>": "native-include",
    '#embed "/etc/passwd"': "native-include",
    "#if __has_include(<x>)\n#endif": "native-include",
    "#include <iostream>": "native-prints",
}
FINE = [
    '#include <cmath>\n # include "passbench.h" // asm\nint x;  /* asm("x") */',
    'const char* asm_text = "asm __asm__ \\" asm";',
    "int a[3]; int b = a[a[1]]; [[maybe_unused]] auto f = [&] { return a[0]; };",
    "__attribute__((always_inline, vector_size(4 * 8))) typedef float v;",
    "#define INLINE __attribute__((always_inline)) inline\nINLINE float f(float x) { return x; }",
    "#pragma omp parallel for reduction(+:s)\n#pragma GCC ivdep\n#pragma GCC unroll 4\n#pragma once",
    '_Pragma("omp simd")',
    "#if 0\n don't do this\n#endif\nint x = 1'000;",
    "float section = 1; struct Alias { float alias, open, time, clock; }; int weak(int);",
    "__m256 a = _mm256_add_ps(b, c); float* __restrict__ p; __builtin_prefetch(p); __int128 i;",
    "#ifdef __AVX512F__\n#elif defined(__ARM_NEON)\n#endif\n#if __GNUC__ > 5\n#endif",
    "template <int _N, class _Tp> void f(); constexpr int _BLOCK = 3;",
    "std::vector<::ns::T> v;",
    "int µ = 1; // Größe",
    "__attribute__\n((always_inline)) inline int f(); [\n[maybe_unused]] int i = section\n+ 1;",
    '#define MAX(a, b) ((a) > (b) ? (a) : (b))\nint i = MAX(section, alias); static_assert(i, "text");',
    'int section[2] = {}; const char* s = "text";',
    "#pragma omp section\n(void)f();",
    'struct Symbol { int section, alias; }; const char* s = "a;\\n"; int f(Symbol* s) { return s->section && 1; }',
    '#define TEXT(x) #x\nint section = 1; const char* s = "a\\tb";\n#define TWO(x) (x * 2)\nint i = TWO(section);',
    "#define ALIGN(n) __attribute__((aligned(n)))\nALIGN(64) float a[8];\n#define LOOP for (;;) {\n",
    "#define likely(x) __builtin_expect(!!(x), 1)\nint a[3]; int b = a[0]; [[gnu::hot]] int f(); [[likely]];",
    "#pragma clang loop vectorize(enable)\n#if defined(clang)\n#endif\n#pragma clang fp contract(fast)",
]


@pytest.mark.parametrize(("text", "rule"), REFUSED.items(), ids=range(len(REFUSED)))
def test_what_a_kernel_has_no_need_of_is_refused(text: str, rule: str) -> None:
    assert rule in {found for _, found, _ in cpp_text.screen(f"int before;\n{text}\nint after;")}
    assert rule in {found for _, found, _ in cpp_text.screen(text)}


@pytest.mark.parametrize("text", FINE, ids=range(len(FINE)))
def test_what_kernels_say_is_not(text: str) -> None:
    assert list(cpp_text.screen(text)) == []


def test_a_finding_has_the_line_of_the_file() -> None:
    assert [line for line, _, _ in cpp_text.screen('int a; \\\n\n"\\\n";\r\n/*\n*/ asm("x");')] == [6]


def test_no_macro_of_an_allowed_header_can_put_a_name_together() -> None:
    """A header's macro may paste, or make strings, pragmas, attributes or assembly. Either its name is refused, or
    all that it can make is a number's suffix."""
    macros = _macros()
    risky = {name for name, text in macros.items() if re.search(r"#|asm|_Pragma|__attribute|\bsection\b", text)}
    while more := {n for n, text in macros.items() if n not in risky and risky & set(re.findall(r"\w+", text))}:
        risky |= more
    number = re.compile(r"U?INT\w+_(C|MAX|MIN)|M_\w+f\d+x?")
    # Attributes, which are allowed; and a macro whose string is an argument of a call.
    harmless = {"__always_inline", "__nonnull", "__returns_nonnull", "assert"}
    assert len(risky) > 50
    assert {n for n in risky - harmless if not number.fullmatch(n) and not list(cpp_text.screen(f"{n}(x)"))} == set()


def _macros() -> dict[str, str]:
    """Return all macros that this machine's compiler has after the allowed headers, with their definitions."""
    command = [toolchain.compiler(), *toolchain.BASE_FLAGS, "-fopenmp", f"-I{toolchain.INCLUDE}", "-x", "c++"]
    text = "\n".join(f"#if __has_include(<{name}>)\n#include <{name}>\n#endif" for name in sorted(cpp_text.INCLUDES))
    done = subprocess.run([*command, "-E", "-dM", "-"], input=text, text=True, capture_output=True, check=True)
    found = (re.match(r"#define (\w+)(?:\([^)]*\))?\s*(.*)", line) for line in done.stdout.splitlines())
    return {match[1]: match[2] for match in found if match}


SIZE = signatures.MAX_CHARACTERS // 4
LONG = ["/*", '"', "'", "\\ ", "__attribute__((", 'extern "C" void f(', 'extern "C" int a, b;', "[[", "#pragma ",
        "#pragma\n", "_Pragma(", "(?", "1'", "\\\n", "#include <",
        "#define ", 'R"(', "a", " ", "int f(int x) { return x; }\n"]  # fmt: skip


@pytest.mark.parametrize("piece", LONG)
def test_reading_takes_time_linear_in_the_text(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        start = time.process_time()
        list(cpp_text.screen(text))
        signatures.parse(text)
        return time.process_time() - start

    # 16 times the text may cost 16 times the time; quadratic is 256. A busy machine can only make it look worse.
    assert any(seconds(SIZE) < 64 * max(seconds(SIZE // 16), 0.005) for _ in range(4))


def test_a_source_that_is_too_long_is_said_to_be() -> None:
    text = "int f(int x) { return x; }\n" * 35_000
    assert [what for _, _, what in cpp_text.screen(text) if "too complex" in what]
    with pytest.raises(CompileError, match="too complex"):
        signatures.parse(text)


@pytest.mark.parametrize(
    ("text", "name", "result", "parameters"),
    [
        ("void f(const float* __restrict x, int64_t n, double)", "f", "void", ("pointer", "int64", "float64")),
        ("int64_t g(std::int64_t n, unsigned u, unsigned long long l)", "g", "int64", ("int64", "uint32", "uint64")),
        ("void h(pb::in x, pb::out y, pb::dtype, bool b, size_t s)", "h", "void",
         ("pointer", "pointer", "dtype", "bool", "uint64")),
        ("float* k(void) noexcept", "k", "pointer", ()),
        ("void m(float x[], uint8_t c, float // , int\n y)", "m", "void", ("pointer", "uint8", "float32")),
    ],
)  # fmt: skip
def test_signatures(text: str, name: str, result: str, parameters: tuple[str, ...]) -> None:
    source = f'// extern "C" void no() {{\nextern "C" void declared(int);\nextern "C" {text} {{ }}'
    ((found, signature),) = signatures.parse(source).items()
    assert (found, signature.result, signature.parameters) == (name, result, parameters)


def test_pointers_that_a_kernel_may_write_through():
    parameters = "const float* a, float* b, float const* c, float d[], const float e[], float* const f, int64_t g"
    source = f'extern "C" void h({parameters}, pb::in i, pb::out j) {{ }}'
    assert signatures.parse(source)["h"].written == {1, 3, 5, 8}


@pytest.mark.parametrize("flag", [
    "-O2", "-O3", "-Ofast", "-march=native", "-mtune=znver4", "-mavx2", "-mno-avx512f", "-msse4.1", "-ffast-math",
    "-ffp-contract=off", "-fno-math-errno", "-funroll-loops", "-std=c++20", "-DNDEBUG", "-DROWS=64", "-DEPS=0.5f",
    "-Wall", "-Wno-unused-variable", "-fopenmp", "-mprefer-vector-width=512", "-fno-trapping-math",
    "-fassociative-math",
])  # fmt: skip
def test_flags_that_tune(flag: str) -> None:
    check_flags((flag,))
    with pytest.raises(Rejected, match="one that a kernel may add"):
        check_flags((f"{flag} -I/tmp",))  # the whole flag is checked, not only its beginning


@pytest.mark.parametrize("flag", [
    "-Dname=asm", "-Dasm", "-Dif", "-D", "-D_X", "-D__asm__", "-DX=1+asm", "-Df(x)=1", "-I/tmp", "-include", "-B/tmp",
    "-specs=x", "-wrapper", "-fplugin=/x.so", "-lm", "-L/tmp", "-Wl,-z,execstack", "-Wa,-I", "-Wp,-D", "-Wl", "-x",
    "@file", "-T", "-nostdlib", "-static", "-o", "-c", "-E", "-S", "/etc/passwd", "-", "", "-O2 -I.", "-O2\n",
    "-flto", "-fpass-plugin=x", "-mllvm", "-Xclang", "-Xlinker", "-std=c++11", "-save-temps", "-MF", "-imacros",
    "-isystem", "-pg", "-fprofile-generate", "-fsanitize=address", "-finstrument-functions",
    "-march=native -I", "--param", "-fno-pic",
    "-z", "-Tx", "-idirafter", "-aux-info", "-fdump-tree-all", "-frandom-seed=1", "-mcmodel=large", "-DÄ",
])  # fmt: skip
def test_flags_that_do_more(flag: str) -> None:
    with pytest.raises(Rejected, match="is not one that a kernel may add"):
        check_flags(("-O2", flag))


def test_many_flags() -> None:
    with pytest.raises(Rejected, match="65 compiler flags"):
        check_flags(("-O2",) * 65)
