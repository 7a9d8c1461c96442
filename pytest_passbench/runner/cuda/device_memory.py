"""Memory of a device that several processes map: one that writes to it, and others that may only read.

Source: CUDA's driver interface, "Virtual Memory Management". A piece of memory is exported as a file descriptor. Any
process that gets the descriptor may map the memory. Each mapping has access rights of its own.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from pytest_passbench.runner.cuda.libcuda import check

PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
AS_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
MINIMUM = 0  # CU_MEM_ALLOC_GRANULARITY_MINIMUM
READ, READ_AND_WRITE = 1, 3  # CUmemAccess_flags
_NO_FLAGS = ctypes.c_ulonglong(0)


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """The structure ``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _AccessDescription(ctypes.Structure):
    """The structure ``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DeviceMemory:
    """A piece of memory of device number ``index``, mapped at ``address``.

    The process must have a context of the device. The memory stays until all processes that have mapped it have
    ended, or have closed it.
    """

    def __init__(self, library: Any, index: int, size: int, descriptor: int | None = None) -> None:
        """Make memory of at least ``size`` bytes and map it, or map the memory behind ``descriptor`` read-only.

        Raises DriverError if the driver refuses.
        """
        self._library, self._location = library, _Location(ON_DEVICE, index)
        self.size = self._rounded(size)
        self._handle = ctypes.c_ulonglong()
        if descriptor is None:
            status = library.cuMemCreate(
                ctypes.byref(self._handle), ctypes.c_size_t(self.size), ctypes.byref(self._properties()), _NO_FLAGS
            )
            self._check(status, f"make {self.size} bytes of memory that can be shared")
        else:
            status = library.cuMemImportFromShareableHandle(
                ctypes.byref(self._handle), ctypes.c_void_p(descriptor), ctypes.c_int(AS_DESCRIPTOR)
            )
            self._check(status, "map shared memory")
        self.address = self._mapped(READ if descriptor is not None else READ_AND_WRITE)

    def _properties(self) -> _Properties:
        return _Properties(PINNED, AS_DESCRIPTOR, self._location)

    def _rounded(self, size: int) -> int:
        step = ctypes.c_size_t()
        status = self._library.cuMemGetAllocationGranularity(
            ctypes.byref(step), ctypes.byref(self._properties()), ctypes.c_int(MINIMUM)
        )
        self._check(status, "share memory")
        return -(-max(size, 1) // step.value) * step.value

    def _mapped(self, rights: int) -> int:
        address, size = ctypes.c_ulonglong(), ctypes.c_size_t(self.size)
        zero = ctypes.c_size_t(0)
        place = self._library.cuMemAddressReserve(ctypes.byref(address), size, zero, ctypes.c_ulonglong(0), _NO_FLAGS)
        self._check(place, "reserve addresses")
        self._check(self._library.cuMemMap(address, size, zero, self._handle, _NO_FLAGS), "map memory")
        access = _AccessDescription(self._location, rights)
        allowed = self._library.cuMemSetAccess(address, size, ctypes.byref(access), ctypes.c_size_t(1))
        self._check(allowed, "allow reading" if rights == READ else "allow writing")
        return address.value

    def export(self) -> int:
        """Return a file descriptor of the memory, for another process. Raises DriverError."""
        descriptor = ctypes.c_int(-1)
        status = self._library.cuMemExportToShareableHandle(
            ctypes.byref(descriptor), self._handle, ctypes.c_int(AS_DESCRIPTOR), _NO_FLAGS
        )
        self._check(status, "export memory")
        return descriptor.value

    def write(self, source: int, size: int) -> None:
        """Copy ``size`` bytes from the host's address ``source`` to the beginning. Raises DriverError."""
        copied = self._library.cuMemcpyHtoD_v2(
            ctypes.c_ulonglong(self.address), ctypes.c_void_p(source), ctypes.c_size_t(size)
        )
        self._check(copied, "write to memory")

    def tensor(self, device: torch.device) -> torch.Tensor:
        """Return the memory as a flat tensor of bytes, without a copy."""
        if device.type == "cpu":  # in a rehearsal
            return torch.frombuffer((ctypes.c_ubyte * self.size).from_address(self.address), dtype=torch.uint8)
        return torch.as_tensor(_Described(self.address, self.size), device=device)

    def close(self) -> None:
        """Give the memory back, and its addresses. No tensor of it may be used any more."""
        address, size = ctypes.c_ulonglong(self.address), ctypes.c_size_t(self.size)
        self._check(self._library.cuMemUnmap(address, size), "unmap memory")
        self._check(self._library.cuMemAddressFree(address, size), "free addresses")
        self._check(self._library.cuMemRelease(self._handle), "release memory")

    def _check(self, code: int, what: str) -> None:
        check(self._library, code, what)


class _Described:
    """Memory in the form of CUDA's array interface, version 3, from which torch makes tensors.

    It is declared to be writable, since torch refuses memory that is declared to be read-only.
    """

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "strides": None,
            "version": 3,
        }
