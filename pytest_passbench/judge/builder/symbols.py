"""The functions of other libraries that a kernel may call: arithmetic, memory, OpenMP, and the C++ runtime's own.

Printing is not listed, since the measured process has nothing to print to; but it is a mistake, not a violation.
Functions that keep a state between calls (``rand``, ``omp_set_num_threads``) are a violation.
"""

from __future__ import annotations

import re

_MATHS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor
    fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan
    nearbyint nextafter nexttoward pow remainder remquo rint round roundeven scalbln scalbn sin sincos sinh sqrt tan
    tanh tgamma trunc j0 j1 jn y0 y1 yn cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog
    conj cpow cproj creal csin csinh csqrt ctan ctanh fpclassify isinf isnan finite signbit drem gamma significand"""
_MATH = re.compile(rf"(__)?({'|'.join(_MATHS.split())})(f|l|f16|f32|f64|f128)?(_finite)?")
_VECTOR_MATH = re.compile(r"_ZGV[a-zA-Z]\w*")  # libmvec
_PLAIN_WORDS = """
    memcpy memmove memset memcmp memchr bcmp strlen strcmp strncmp strchr mempcpy
    __memcpy_chk __memmove_chk __memset_chk __mempcpy_chk
    malloc free calloc realloc aligned_alloc posix_memalign memalign abs labs llabs div ldiv lldiv qsort bsearch
    abort __assert_fail __stack_chk_fail __stack_chk_guard __errno_location __libc_single_threaded
    _Unwind_Resume __gxx_personality_v0 __fpclassify __fpclassifyf __signbit __signbitf __isnan __isnanf __isinf
    __isinff __finite __finitef _dl_find_object"""
_PLAIN = frozenset(_PLAIN_WORDS.split())
_RUNTIME = re.compile(
    r"""_Zn[wa]m(RKSt9nothrow_t)?  | _Zn[wa]mSt11align_val_t(RKSt9nothrow_t)?
      | _Zd[la]Pv(m|RKSt9nothrow_t)? | _Zd[la]Pvm?St11align_val_t(RKSt9nothrow_t)? | _ZSt7nothrow
      | __cxa_(allocate_exception|free_exception|init_primary_exception|throw|rethrow|begin_catch|end_catch
              |get_exception_ptr|bad_cast|bad_typeid|throw_bad_array_new_length|throw_bad_array_length|pure_virtual
              |deleted_virtual|call_unexpected|call_terminate)
      | __dynamic_cast | _ZSt9terminatev | _ZSt\d+__throw_\w+ | _ZSt21__glibcxx_assert_failPKciS0_S0_
      | _ZT[VIS]N10__cxxabiv1\w+ | _ZT[VIS](St|NSt|[a-z]$|P[a-z]$|PK[a-z]$)\w*
      | _ZNK?St\d+(exception|bad_alloc|bad_cast|bad_array_new_length|bad_function_call|logic_error|runtime_error
                  |invalid_argument|out_of_range|length_error|domain_error|range_error|overflow_error
                  |underflow_error|bad_variant_access|bad_optional_access)\w*
      | _ZSt1[89]_Rb_tree_\w+ | _ZSt2[0-9]_Rb_tree_\w+ | _ZNK?St8__detail\w+
      | _ZNK?St7__cxx1112basic_stringIc\w+ | _ZNSaIcE[CD]\dE\w+ | _ZSt11_Hash_bytesPKvmm""",
    re.X,
)
_OPENMP = re.compile(
    r"""GOMP_(parallel|loop|barrier|critical_(start|end)|single|sections|section|atomic|ordered|task|doacross
          |cancel|scope|workshare_task|masked|error)\w*
      | omp_get_(thread_num|num_threads|max_threads|num_procs|thread_limit|dynamic|level|active_level
          |max_active_levels|ancestor_thread_num|team_size|cancellation|num_teams|team_num|num_places|proc_bind)
      | omp_in_(parallel|final)
      | __kmpc_(fork_call|fork_call_if|for_static_(init|fini)_?\w*|dispatch_\w+|barrier|global_thread_num
          |push_num_threads|push_proc_bind|serialized_parallel|end_serialized_parallel|single|end_single
          |master|end_master|masked
          |end_masked|reduce|reduce_nowait|end_reduce|end_reduce_nowait|critical|critical_with_hint|end_critical|ordered
          |end_ordered
          |atomic_\w+|omp_task\w*|taskgroup|end_taskgroup|taskloop\w*|flush|bound_\w+|ok_to_fork|in_parallel)""",
    re.X,
)
_PRINTING = re.compile(
    r"(__)?(f|v|vf)?printf(_chk)?|f?puts|f?putc|putchar|fflush|fwrite|perror|stdout|stderr|_ZSt4(cout|cerr)"
)
_LIBRARIES = re.compile(
    r"lib(c|m|mvec|gomp|omp|omp5|iomp5|stdc\+\+|c\+\+|c\+\+abi|gcc_s|pthread|atomic)\.so(\.\d+)*"
    r"|ld-linux-(x86-64|aarch64)\.so\.\d"
)


def may_call(name: str) -> bool:
    """Return True if a kernel may use the symbol ``name`` of another library."""
    return name in _PLAIN or any(pattern.fullmatch(name) for pattern in (_MATH, _RUNTIME, _OPENMP, _VECTOR_MATH))


def prints(name: str) -> bool:
    """Return True if the function ``name`` only writes to the terminal."""
    return _PRINTING.fullmatch(name) is not None


def may_need(library: str) -> bool:
    """Return True if a kernel may be linked with ``library`` (a file name such as libm.so.6)."""
    return _LIBRARIES.fullmatch(library) is not None
