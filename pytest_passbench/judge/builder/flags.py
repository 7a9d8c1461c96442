"""The compiler flags that a candidate may add: flags that only tune the compiled code."""

from __future__ import annotations

import re

from pytest_passbench.core.rejected import kernel_refused

_MAX_FLAGS, _MAX_FLAG_CHARACTERS = 64, 80
_OPTIMISATIONS = """
    aggressive-loop-optimizations associative-math builtin cx-limited-range delete-null-pointer-checks exceptions
    fast-math finite-math-only gcse if-conversion inline inline-functions inline-small-functions ipa-cp ivopts
    loop-interchange loop-unroll-and-jam math-errno move-loop-invariants omit-frame-pointer openmp openmp-simd
    peel-loops predictive-commoning prefetch-loop-arrays reciprocal-math rename-registers rounding-math rtti
    schedule-insns schedule-insns2 semantic-interposition signed-zeros slp-vectorize split-loops split-paths
    strict-aliasing strict-overflow trapping-math tree-loop-distribution tree-loop-vectorize tree-slp-vectorize
    tree-vectorize unroll-all-loops unroll-loops unsafe-math-optimizations unswitch-loops vectorize wrapv"""
_ISA = r"sse[\w.]*|ssse3|avx[\w.-]*|fma4?|f16c|bmi2?|popcnt|lzcnt|abm|adx|v?aes|gfni|v?pclmul(qdq)?|movbe|amx-\w+"
# -std begins with C++14, which has digit separators. Before it, a quote in a number begins a literal, so the compiler
# would read other tokens than the screen.
_ALLOWED = re.compile(
    rf"""-O([0-3sz]|fast)?
       | -std=(c|gnu)\+\+(14|1y|17|1z|20|2a|23|2b)
       | -(march|mtune|mcpu)=[\w.+-]+
       | -m(no-)?({_ISA}) | -mprefer-vector-width=(none|128|256|512) | -mfpmath=sse | -mrecip(=[\w,!-]+)?
       | -f(no-)?({"|".join(_OPTIMISATIONS.split())}) | -ffp-contract=(fast|on|off) | -fPIC
       | -fvect-cost-model=\w+ | -fsimd-cost-model=\w+ | -fexcess-precision=(fast|standard)
       | -W(no-)?(?![alp]\b)[a-z][a-z0-9+-]*(=\d+)? | -w | -g[0-3]?""",
    re.X,
)
# A macro's value can't be a name: with -Dname=asm the compiler would read a keyword, and the screen a name.
_DEFINITION = re.compile(r"-D(?P<name>[A-Za-z]\w*)(=-?\d+(\.\d+)?f?)?", re.ASCII)
_KEYWORDS_WORDS = """
    alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype default
    defined delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int
    long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch template this
    thread_local throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor
    xor_eq"""
_KEYWORDS = frozenset(_KEYWORDS_WORDS.split())


def check(flags: tuple[str, ...]) -> None:
    """Raise Rejected for the first flag that does more than tune."""
    if len(flags) > _MAX_FLAGS:
        raise kernel_refused("native-flag", f"{len(flags)} compiler flags: a kernel may add {_MAX_FLAGS}")
    for flag in flags:
        if not isinstance(flag, str) or len(flag) > _MAX_FLAG_CHARACTERS or not _plain(flag):
            raise kernel_refused(
                "native-flag",
                f"the compiler flag {str(flag)[:_MAX_FLAG_CHARACTERS]!r} is not one that a kernel may add:"
                " give flags that only tune the code, -DNAME or -DNAME=number",
            )


def _plain(flag: str) -> bool:
    if match := _DEFINITION.fullmatch(flag):
        return match["name"] not in _KEYWORDS
    return flag.isascii() and _ALLOWED.fullmatch(flag) is not None
