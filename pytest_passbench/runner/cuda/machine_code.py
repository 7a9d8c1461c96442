"""Machine code of Triton kernels, compiled on the judge's side and launched by the CUDA driver.

No part of Triton runs here. Only addresses change from launch to launch, so all other arguments are laid out once.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Sequence
from typing import Any

import torch

from pytest_passbench.plans.launch import MAX_CALL_BYTES, Operand, TritonLaunch
from pytest_passbench.plans.machine_code import Binary, Passed
from pytest_passbench.runner.cuda import libcuda
from pytest_passbench.runner.cuda.libcuda import Driver, LaunchAttribute, LaunchConfig

_FORMATS = {
    "fp64": "<d",
    "fp16": "<e",
    "u1": "<B",
    **dict(zip(("i8", "i16", "i32", "i64"), ("<b", "<h", "<i", "<q"), strict=True)),
    **dict(zip(("u8", "u16", "u32", "u64"), ("<B", "<H", "<I", "<Q"), strict=True)),
}
_WARP = 32  # threads


class PlanBinaries:
    """The machine code of a plan.

    ``data`` holds all binaries in one piece. ``layout`` has the place of each binary, and the binary of each launch.
    A binary is loaded when its first launch is prepared.
    """

    def __init__(self, data: bytes, layout: dict[str, Any], driver: Driver, device: str) -> None:
        self._data, self._driver, self._device = data, driver, device
        self._binaries = [(Binary.from_data(entry["binary"]), entry["place"]) for entry in layout["binaries"]]
        self._launches: list[int | str] = layout["launches"]
        self._functions: dict[int, ctypes.c_void_p] = {}

    def prepare(self, number: int, step: TritonLaunch) -> PreparedLaunch:
        """Return launch number ``number`` of the plan, ready to be called.

        Raises RuntimeError, with the reason, if it is a configuration of a tuned launch without machine code. Raises
        DriverError if the driver cannot load the code.
        """
        which = self._launches[number]
        if isinstance(which, str):
            raise RuntimeError(which)
        binary, (start, size) = self._binaries[which]
        if which not in self._functions:
            code = self._data[start : start + size]
            self._functions[which] = self._driver.function(
                code, binary.name, binary.shared, binary.num_ctas, binary.sizes
            )
        return PreparedLaunch(self._driver, self._functions[which], binary, step, self._device)


class PreparedLaunch:
    """A launch that is called with the addresses of its ``operands``, in order."""

    def __init__(
        self, driver: Driver, function: ctypes.c_void_p, binary: Binary, step: TritonLaunch, device: str
    ) -> None:
        self._driver, self._function, self._name = driver, function, binary.name
        self._scratch = _scratch(binary, step.grid, device)
        values = [_value(step, passed) for passed in binary.passed]
        self.operands: tuple[Operand, ...] = tuple(value for value in values if isinstance(value, Operand))
        self._addresses = (ctypes.c_uint64 * len(self.operands))()
        hidden = [0 if self._scratch is None else self._scratch.data_ptr(), 0][: binary.hidden]
        self._constants = _constants([*zip(binary.passed, values, strict=True)], hidden)
        places = iter(range(ctypes.addressof(self._addresses), 1 << 64, ctypes.sizeof(ctypes.c_uint64)))
        at = [next(places) if constant is None else ctypes.addressof(constant) for constant in self._constants]
        self._parameters = (ctypes.c_void_p * len(at))(*at)
        self._attributes = _attributes(binary)
        x, y, z = step.grid
        self._empty = 0 in step.grid
        self._config = LaunchConfig(
            (x * binary.num_ctas, y, z),
            (_WARP * binary.num_warps, 1, 1),
            binary.shared,
            None,
            self._attributes,
            len(self._attributes),
        )
        self._arguments = ctypes.byref(self._config), function, self._parameters, None

    def __call__(self, *addresses: int) -> None:
        """Launch on the current stream. Raises DriverError if the driver refuses."""
        if self._empty:
            return
        self._addresses[:] = list(addresses)
        self._config.stream = self._driver.stream()
        code = self._driver.launch(*self._arguments)
        if code:
            self._driver.check(code, f"launch the kernel {self._name}")


def _value(step: TritonLaunch, passed: Passed) -> Any:
    name, *places = passed.path
    value: Any = dict(step.arguments)[str(name)]
    for place in places:
        value = value[place]
    return value


def _constants(passed: Sequence[tuple[Passed, Any]], hidden: Sequence[int]) -> list[Any]:
    """Return memory with the value of each parameter, or None for an operand, whose address comes with each call."""
    buffers: list[Any] = []
    for parameter, value in passed:
        buffers.append(None if isinstance(value, Operand) else _buffer(_packed(parameter.kind, value)))
    return buffers + [_buffer(struct.pack("<Q", address)) for address in hidden]


def _packed(kind: str, value: float) -> bytes:
    if kind in ("fp32", "bf16"):  # cast as in C, as Triton's own launcher does; a bfloat16 is a float's upper half
        return bytes(ctypes.c_float(value))[0 if kind == "fp32" else 2 :]
    return struct.pack(_FORMATS[kind], value)


def _buffer(data: bytes) -> Any:
    memory = (ctypes.c_uint64 * 1)()  # aligned for all kinds
    ctypes.memmove(memory, data, len(data))
    return memory


def _scratch(binary: Binary, grid: tuple[int, int, int], device: str) -> torch.Tensor | None:
    """Return scratch memory for all programs of a launch, or None. Launches on one stream use it in turn."""
    size = binary.scratch_bytes * binary.num_ctas * math.prod(grid)
    if size > MAX_CALL_BYTES:
        raise libcuda.DriverError(f"the kernel {binary.name} needs {size} bytes of scratch memory")
    return torch.empty(size, dtype=torch.uint8, device=device) if size else None


def _attributes(binary: Binary) -> Any:
    pairs: list[tuple[int, tuple[int, ...]]] = []
    if binary.dependent:
        pairs.append((libcuda.DEPENDENT, (1,)))
    if binary.cooperative:
        pairs.append((libcuda.COOPERATIVE, (1,)))
    if binary.num_ctas != 1:
        pairs.append((libcuda.CLUSTER_DIMENSION, (binary.num_ctas, 1, 1)))
        pairs.append((libcuda.CLUSTER_SCHEDULING, (libcuda.SPREAD,)))
    attributes = (LaunchAttribute * len(pairs))()
    for place, (attribute, values) in enumerate(pairs):
        attributes[place].id = attribute
        attributes[place].value[: len(values)] = values
    return attributes
