"""The allow-lists of names in Triton's language. A kernel that uses another name is refused.

The lists cover all releases. If a release lacks a name, Triton itself reports the error.
"""

from __future__ import annotations

from pytest_passbench.core.plurals import words

DTYPES = words("""
    int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
    float8e4nv float8e5 float8e4b15 float8e4b8 float8e5b16 void""")
MATH = words("""
    umulhi exp exp2 log log2 cos sin sqrt sqrt_rn rsqrt abs fdiv div_rn erf floor ceil fma
    cdiv max min maximum minimum clamp sigmoid softmax""")
LANGUAGE = (
    DTYPES
    | MATH
    | words("""
    load store make_block_ptr advance arange program_id num_programs full zeros zeros_like cat join split
    broadcast broadcast_to expand_dims permute trans reshape view ravel interleave flip gather histogram
    squeeze unsqueeze dot dot_scaled where cast to_tensor add sub mul
    sum prod argmax argmin xor_sum reduce_or reduce associative_scan cumsum cumprod sort topk bitonic_merge
    map_elementwise atomic_add atomic_and atomic_or atomic_xor atomic_max atomic_min atomic_cas atomic_xchg
    atomic_load atomic_store swizzle2d multiple_of max_contiguous max_constancy assume debug_barrier
    range static_range static_assert constexpr PropagateNan TRITON_MAX_TENSOR_NUMEL
    make_tensor_descriptor load_tensor_descriptor store_tensor_descriptor
    philox rand rand4x randn randn4x randint randint4x uint_to_uniform_float pair_uniform_to_normal
    """)
)
HOST = words("cdiv next_power_of_2")
LIBDEVICE = words("""
    clz popc byte_perm mulhi mul24 brev sad abs floor rcp64h rsqrt ceil trunc exp2 saturatef fma_rn fma_rz
    fma_rd fma_ru fast_dividef div_rn div_rz div_rd div_ru rcp_rn rcp_rz rcp_rd rcp_ru sqrt_rn sqrt_rz sqrt_rd
    sqrt_ru sqrt add_rn add_rz add_rd add_ru mul_rn mul_rz mul_rd mul_ru double2float_rn double2float_rz
    double2float_rd double2float_ru double2int_rn double2int_rz double2int_rd double2int_ru double2uint_rn
    double2uint_rz double2uint_rd double2uint_ru int2double_rn uint2double_rn float2int_rn float2int_rz
    float2int_rd float2int_ru float2uint_rn float2uint_rz float2uint_rd float2uint_ru int2float_rn
    int2float_rz int2float_rd int2float_ru uint2float_rn uint2float_rz uint2float_rd uint2float_ru
    hiloint2double double2loint double2hiint float2ll_rn float2ll_rz float2ll_rd float2ll_ru float2ull_rn
    float2ull_rz float2ull_rd float2ull_ru double2ll_rn double2ll_rz double2ll_rd double2ll_ru double2ull_rn
    double2ull_rz double2ull_rd double2ull_ru ll2float_rn ll2float_rz ll2float_rd ll2float_ru ull2float_rn
    ull2float_rz ull2float_rd ull2float_ru ll2double_rn ll2double_rz ll2double_rd ll2double_ru ull2double_rn
    ull2double_rz ull2double_rd ull2double_ru int_as_float float_as_int uint_as_float float_as_uint
    longlong_as_double double_as_longlong fast_sinf fast_cosf fast_log2f fast_logf fast_expf fast_tanhf
    fast_tanf fast_exp10f fast_log10f fast_powf hadd rhadd sub_rn sub_rz sub_rd sub_ru rsqrt_rn ffs rint
    llrint nearbyint isnan signbit copysign finitef isinf nextafter sin cos sinpi cospi tan log2 exp exp10
    cosh sinh tanh atan2 atan asin acos log log10 log1p acosh asinh atanh expm1 hypot rhypot norm3d rnorm3d
    norm4d rnorm4d cbrt rcbrt j0 j1 y0 y1 yn jn cyl_bessel_i0 cyl_bessel_i1 erf erfinv erfc erfcx erfcinv
    normcdfinv normcdf lgamma ldexp scalbn fmod remainder fma pow tgamma round llround fdim ilogb logb
    isfinited""")
PYTHON_MATH = words("pi e tau inf nan sqrt log log2 log10 exp ceil floor pow")

# By module: its name in the written text, its members, its submodules.
MODULES: dict[str, tuple[str, frozenset[str], frozenset[str]]] = {
    "triton": ("triton", HOST, words("language")),
    "triton.language": ("tl", LANGUAGE, words("math extra")),
    "triton.language.math": ("tl.math", MATH, frozenset()),
    "triton.language.extra": ("", frozenset(), words("libdevice cuda")),
    "triton.language.extra.cuda": ("", frozenset(), words("libdevice")),
    "triton.language.extra.libdevice": ("libdevice", LIBDEVICE, frozenset()),
    "triton.language.extra.cuda.libdevice": ("libdevice", LIBDEVICE, frozenset()),
    "math": ("math", PYTHON_MATH, frozenset()),
}
# Modules of members that were imported by themselves, by their tag in a recorded value: {"tl": "float32"}.
MEMBERS = {
    "tl": "triton.language",
    "tl.math": "triton.language.math",
    "libdevice": "triton.language.extra.libdevice",
    "triton": "triton",
    "math": "math",
}

# Names whose use is a violation: they run foreign code or Python, or read clocks.
NEVER: dict[str, str] = {
    "inline_asm_elementwise": "inline assembly",
    "extern_elementwise": "an external library",
    "dispatch": "an external library",
    "extern": "an external library",
    "core": "Triton's own modules",
    "semantic": "Triton's own modules",
    "standard": "Triton's own modules",
    "builtins": "Python's builtins",
    "globaltimer": "the device's clock",
    "smid": "the device's clock",
}

# Attributes and methods of tensors, dtypes, constants, block pointers and descriptors.
ATTRIBUTES = words("""
    T dtype shape type scalar element_ty numel ndim rank value primitive_bitwidth itemsize int_bitwidth
    fp_mantissa_width block_shape strides ALL NONE
    is_floating is_standard_floating is_int is_int_signed is_int_unsigned is_bool is_ptr is_block is_fp8
    is_fp8e4nv is_fp8e5 is_fp8e4b15 is_fp16 is_bf16 is_fp32 is_fp64 is_int1 is_int8 is_int16 is_int32 is_int64
    is_uint8 is_uint16 is_uint32 is_uint64 get_int_max_value get_int_min_value
    to cast broadcast_to trans permute split view reshape expand_dims ravel load store gather scatter
    logical_and logical_or atomic_add atomic_and atomic_or atomic_xor atomic_max atomic_min atomic_cas
    atomic_xchg exp exp2 log log2 cos sin sqrt sqrt_rn rsqrt abs erf floor ceil sigmoid softmax cdiv
    reduce associative_scan histogram sum max min argmax argmin xor_sum reduce_or cumsum cumprod sort flip""")
HIDDEN_ATTRIBUTES = words("handle data builder fn run src params cache_key warmup")  # they lead to Python's objects
CALLABLE_BUILTINS = words("range min max abs len int float bool")
DROPPED_CALLS = words("device_print static_print device_assert print")
RESERVED = words("tl triton libdevice math interpreter_semantic interpreter_builder _InterpreterComparison")
