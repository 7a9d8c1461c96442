"""The allow-lists: what of every library, of tensors and of builtins a candidate may use.

Everything that is not listed is refused. A page of prose on each list is in docs/integrity-rules.md.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import itertools
import math
import operator
import re
import string
import typing


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _public(names: typing.Iterable[str]) -> frozenset[str]:
    return frozenset(name for name in names if not name.startswith("_"))


ALLOCATION = words("""
    empty empty_like zeros zeros_like ones ones_like full full_like as_tensor tensor empty_strided""")
DTYPES = words("""
    float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 uint16 uint32 uint64 short
    int long bool complex32 complex64 complex128 cfloat cdouble chalf quint8 qint8 qint32 float8_e4m3fn
    float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz""")
TYPES = words("""
    Tensor dtype device Size SymInt strided contiguous_format channels_last channels_last_3d preserve_format
    memory_format layout inf nan pi e""")
METADATA_FUNCTIONS = words("""
    finfo iinfo is_tensor numel is_floating_point is_complex broadcast_shapes promote_types result_type
    get_default_dtype get_num_threads no_grad inference_mode __version__ version fx.wrap
    cuda.is_available cuda.device_count cuda.current_device cuda.get_device_properties
    cuda.get_device_capability cuda.get_device_name cuda.device cuda.Stream cuda.Event cuda.stream
    cuda.current_stream cuda.default_stream cuda.synchronize cuda.is_bf16_supported version.cuda version.hip
    Size.numel nn.Parameter.data""")
VIEWS = words("""
    view reshape as_strided expand permute transpose t unsqueeze squeeze flatten unflatten narrow select
    movedim moveaxis swapaxes swapdims diagonal chunk split tensor_split unbind detach ravel broadcast_to
    view_as_real view_as_complex split_with_sizes functional.split hsplit vsplit dsplit""")
TENSOR_METADATA = words("""
    shape size stride dtype device numel nelement data_ptr is_contiguous dim ndim ndimension element_size
    storage_offset is_cuda is_cpu is_floating_point is_complex is_signed requires_grad layout itemsize nbytes
    get_device is_sparse is_quantized is_meta sym_size record_stream""")
TENSOR_VIEWS = (VIEWS - {"functional.split"}) | words("T mT data view_as expand_as reshape_as unfold")
TENSOR_ALLOCATION = words("new_empty new_zeros new_ones new_full new_empty_strided zero_ fill_")

# The open policy: operators wherever they live, but nothing that loads, compiles, patches or sets.
OPERATOR_NAMESPACES = words("""
    nn.functional linalg special fft ops.aten ops.prims _C._nn functional Tensor sparse""")
NOT_OPERATORS = words("""
    compile load save hub jit package multiprocessing distributed library utils overrides _dynamo _inductor
    _C _higher_order_ops _subclasses _prims _refs _ops fx compiler export onnx profiler autograd testing
    backends ops classes cuda nn cpu mps xpu accelerator mtia random futures monitor func types serialization
    set_num_threads set_num_interop_threads set_default_dtype set_default_device set_default_tensor_type
    set_float32_matmul_precision set_flush_denormal set_deterministic_debug_mode set_grad_enabled
    set_warn_always set_printoptions use_deterministic_algorithms manual_seed seed set_rng_state
    get_rng_state initial_seed from_file from_dlpack frombuffer from_numpy sys os importlib builtins inspect
    threading ctypes platform textwrap warnings math functools typing glob
    _tensor storage UntypedStorage TypedStorage Storage Generator import_ir_module vmap cond while_loop""")
TENSOR_NEVER = words("""
    numpy share_memory_ share_memory untyped_storage storage _typed_storage register_hook apply_ map_ set_
    resize_ resize_as_ as_subclass backward grad_fn grad register_post_accumulate_grad_hook pin_memory
    module_load to_dlpack retain_grad storage_type""")

CONTAINER_METHODS = words("""
    get items keys values append extend insert pop setdefault update index count copy remove discard clear
    startswith endswith join format split rsplit strip lstrip rstrip lower upper replace find title
    capitalize zfill isdigit partition rpartition splitlines encode decode hex bit_length bit_count
    is_integer as_integer_ratio add union sort reverse appendleft popleft
    kwargs num_warps num_stages num_ctas all_kwargs named_args best_config configs arg_names
    wait_stream wait_event record_event synchronize record query cuda_stream type major minor index name
    multi_processor_count total_memory n_regs n_spills metadata shared value""")
TENSOR_LIKE = words("add sort index_add count type hex name sum max min copy")  # means another thing there

OPERATOR = _public(operator.__all__) - {"attrgetter", "methodcaller"}
LIBRARIES: dict[str, frozenset[str]] = {
    "math": _public(dir(math)),
    "operator": OPERATOR,
    "functools": words("partial reduce lru_cache cache wraps cached_property cmp_to_key"),
    "itertools": _public(dir(itertools)),
    "typing": _public(typing.__all__) - {"get_type_hints", "ForwardRef"},
    "typing_extensions": _public(typing.__all__) - {"get_type_hints", "ForwardRef"},
    "dataclasses": _public(dataclasses.__all__) - {"make_dataclass"},
    "collections": _public(collections.__all__) | {"abc"},
    "enum": _public(enum.__all__),
    "abc": words("ABC ABCMeta abstractmethod"),
    "contextlib": words("contextmanager nullcontext suppress ExitStack"),
    "re": _public(re.__all__),
    "string": _public(string.__all__) - {"Formatter"},
    "numbers": words("Number Integral Real"),
    "copy": words("copy deepcopy"),
    "warnings": words("warn filterwarnings simplefilter"),
    "__future__": words("annotations"),
    "os": words("path.dirname path.abspath path.realpath path.join path.basename path.normpath path"),
    "sys": words("path path.insert path.append version_info maxsize float_info"),
    "pathlib": words("Path"),
    "numpy": words("""
        prod ceil floor log2 log sqrt exp inf pi nan float16 float32 float64 int8 int16 int32 int64 uint8
        uint16 uint32 uint64 bool_ iinfo finfo"""),
    "triton": words("""
        jit autotune heuristics Config cdiv next_power_of_2 set_allocator __version__ language
        runtime.driver.active.get_current_device runtime.driver.active.utils.get_device_properties
        runtime.driver.active.get_current_target tools.tensor_descriptor.TensorDescriptor"""),
    "triton.language": words("""
        float16 float32 float64 bfloat16 int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 constexpr
        dtype pointer_type float8e4nv float8e5 float8e4b15 tensor""") | {"void"},
    "pytest_passbench.kernels": words("cpp cpp.load"),
}  # fmt: skip
IMPORTABLE = words("""
    math operator functools itertools typing typing_extensions dataclasses collections enum abc contextlib re
    string numbers copy warnings __future__ os sys pathlib numpy torch triton pytest_passbench.kernels""")
NAMESPACES = words("""
    torch torch.nn torch.nn.functional torch.ops torch.ops.aten torch.ops.prims torch.fx torch.cuda
    torch.linalg torch.special torch.fft torch.functional torch._C torch._C._nn torch.version torch.sparse
    triton triton.language triton.runtime triton.runtime.driver triton.runtime.driver.active
    triton.runtime.driver.active.utils triton.tools triton.tools.tensor_descriptor triton.language.math
    triton.language.extra triton.language.extra.cuda triton.language.extra.cuda.libdevice
    triton.language.extra.libdevice os os.path sys sys.path pathlib pytest_passbench
    pytest_passbench.kernels collections.abc""") | {name for name in IMPORTABLE if "." not in name}
EXCEPTIONS_THAT_STOP = words("SystemExit KeyboardInterrupt GeneratorExit")
BUILTINS = words("""
    abs all any bool bytes bytearray callable chr classmethod complex dict divmod enumerate filter float
    format frozenset getattr hasattr hash hex id int isinstance issubclass iter len list map max min next
    object oct ord pow print property range repr reversed round set slice sorted staticmethod str sum super
    tuple type zip True False None Ellipsis NotImplemented __file__ __name__ __debug__ ImportError
    ModuleNotFoundError Exception ValueError TypeError RuntimeError KeyError IndexError AttributeError
    AssertionError NotImplementedError ArithmeticError ZeroDivisionError OverflowError StopIteration
    LookupError NameError MemoryError Warning UserWarning DeprecationWarning RuntimeWarning FutureWarning
    UnicodeError""")
BUILTIN_ARITHMETIC = words("abs all any bool complex divmod float int max min pow round sum hash sorted")
BUILTIN_READS = words("str repr format bytes bytearray")
DUNDER_ATTRIBUTES = words("__name__ __doc__ __version__ __file__ __post_init__ __init__ __call__")
DUNDER_METHODS = words("""
    __init__ __call__ __post_init__ __repr__ __str__ __enter__ __exit__ __len__ __iter__ __getitem__""")
DUNDER_NAMES = words("__file__ __name__ __doc__ __all__ __version__ __author__ __debug__")
FRAME_ATTRIBUTES = words("""
    f_back f_locals f_globals f_builtins f_code f_trace gi_frame gi_code cr_frame cr_code ag_frame tb_frame
    tb_next func_globals func_code co_code co_consts mro with_traceback""")
KERNEL_NEVER = words("handle data builder interpreter_builder __self__ fn run")
