"""The part of the CUDA driver's interface that loads and launches machine code."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch

_DEFAULT_SHARED_BYTES = 48 << 10  # of shared memory, up to which a kernel needs no attribute
_MAX_DYNAMIC_SHARED, _ANY_CLUSTER_SIZE = 8, 14  # attributes of a function (CUfunction_attribute)
_PREFER_SHARED = 1  # CUfunc_cache
_MAX_PORTABLE_BLOCKS = 8  # of a cluster that needs no attribute
_INVALID_VALUE = 1  # CUresult
# Attributes of a launch (CUlaunchAttributeID).
COOPERATIVE, CLUSTER_DIMENSION, CLUSTER_SCHEDULING, DEPENDENT = 2, 4, 5, 6
SPREAD = 1  # CUclusterSchedulingPolicy


class DriverError(RuntimeError):
    """An error that the CUDA driver returned."""


def library() -> ctypes.CDLL:
    """Return the driver's library. Raises OSError if there is none."""
    return ctypes.CDLL("libcuda.so.1")


def check(driver: Any, code: int, what: str) -> None:
    """Raise DriverError for a code other than success. ``what`` completes the sentence "cannot ..."."""
    if code:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(code, ctypes.byref(text))
        reason = text.value.decode(errors="replace") if text.value else "unknown"
        raise DriverError(f"the CUDA driver cannot {what}: {reason} (error {code})")


class LaunchAttribute(ctypes.Structure):
    """The structure ``CUlaunchAttribute``: a number, and a value of up to 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16))


class LaunchConfig(ctypes.Structure):
    """The structure ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint),
    )


class Driver:
    """The driver's functions. ``stream`` returns the handle of the current stream, an integer."""

    def __init__(self, library: ctypes.CDLL, stream: Callable[[], int]) -> None:
        self._library, self.stream = library, stream
        for name in ("cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuFuncSetCacheConfig"):
            getattr(library, name).restype = ctypes.c_int
        #: (configuration, function, parameters, None) -> code
        self.launch: Any = library.cuLaunchKernelEx
        self.launch.restype = ctypes.c_int
        self.launch.argtypes = [ctypes.c_void_p] * 4

    @classmethod
    def on(cls, device: str) -> Driver:
        """Return the driver, and make ``device`` the current device. Machine code is loaded into its context."""
        stated = torch.device(device).index
        index = torch.cuda.current_device() if stated is None else stated
        torch.cuda.set_device(index)
        torch.cuda.synchronize(index)  # there is a context from here on
        return cls(library(), lambda: torch._C._cuda_getCurrentRawStream(index))

    def function(self, code: bytes, name: str, shared: int, blocks: int, sizes: Sequence[int]) -> ctypes.c_void_p:
        """Load machine code and return its kernel ``name``.

        A launch needs ``shared`` bytes of shared memory and clusters of ``blocks`` blocks. ``sizes`` are the bytes of
        the parameters. Raises DriverError for code that the device cannot run, and for parameters of other sizes.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self._library.cuModuleLoadData(ctypes.byref(module), code), f"load the kernel {name}")
        status = self._library.cuModuleGetFunction(ctypes.byref(function), module, name.encode())
        self.check(status, f"find the kernel {name}")
        self._check_parameters(function, name, sizes)
        if shared > _DEFAULT_SHARED_BYTES:
            self.check(self._library.cuFuncSetCacheConfig(function, _PREFER_SHARED), f"prepare the kernel {name}")
            self._set(function, _MAX_DYNAMIC_SHARED, shared, f"give {name} {shared} bytes of shared memory")
        if blocks > _MAX_PORTABLE_BLOCKS:
            self._set(function, _ANY_CLUSTER_SIZE, 1, f"give {name} clusters of {blocks} blocks")
        return function

    def _set(self, function: ctypes.c_void_p, attribute: int, value: int, what: str) -> None:
        self.check(self._library.cuFuncSetAttribute(function, attribute, value), what)

    def _check_parameters(self, function: ctypes.c_void_p, name: str, sizes: Sequence[int]) -> None:
        """Raise DriverError for parameters of other sizes. Only drivers since CUDA 12.4 state the sizes."""
        tell = getattr(self._library, "cuFuncGetParamInfo", None)
        if tell is None:
            return
        declared: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        code = 0
        while code == 0 and len(declared) <= len(sizes):
            code = tell(function, ctypes.c_size_t(len(declared)), ctypes.byref(offset), ctypes.byref(size))
            if code == 0:
                declared.append(size.value)
        if code in (0, _INVALID_VALUE) and declared != list(sizes):
            raise DriverError(f"{name} has parameters of {declared} bytes, and is launched with {list(sizes)}")

    def check(self, code: int, what: str) -> None:
        """Raise DriverError for a code other than success. ``what`` completes the sentence "cannot ..."."""
        check(self._library, code, what)
