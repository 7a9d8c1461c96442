"""A recording writes a call of a kernel wrapper down as a launch plan while the wrapper runs.

Operators come through torch's dispatcher, launches from the stand-ins for ``kernels.cpp`` and Triton. The tensors are
CPU tensors with random values, whatever device the request states. An operator that another thread calls, or that is
hidden from the dispatcher, does not get into the plan, so it is not executed later.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import Rejected, plan_refused
from pytest_passbench.plans.launch import (
    ITEM_BYTES,
    MAX_TABLE_BYTES,
    Allocate,
    Argument,
    ConstantTable,
    Copy,
    Fill,
    Form,
    Kernel,
    LaunchPlan,
    Operand,
    Operator,
    Request,
    Source,
    Step,
    form_of,
)
from pytest_passbench.plans.values import decode, encode, storage_of, tensors_in

_ALLOCATE = frozenset(["empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"])
_FILLED = {
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
}
_FULL = {"full": 1, "full_like": 1, "new_full": 2, "scalar_tensor": 0}  # the position of the fill value
_COPIES = frozenset(["clone", "_to_copy", "contiguous", "_reshape_copy", "view_copy"])
_READS = frozenset(["_local_scalar_dense", "is_nonzero", "equal", "item"])
_SHAPED_BY_VALUES = frozenset(
    ["nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "nonzero_static", "bincount"]
)
_MEMORY = frozenset(["set_", "resize_", "resize_as_", "record_stream"])
_MAX_RANDOM_BYTES = 1 << 20  # at the beginning of a tensor; the rest is zero
_LINE_BYTES = 64  # of a cache line
_FIRST_ADDRESS = 1 << 20  # that may be one; no memory lies at smaller numbers
_READING_METHODS = frozenset({
    "numpy", "tolist", "item", "__array__", "__bool__", "__int__", "__float__", "__index__", "__complex__",
    "__dlpack__", "__contains__",
})  # fmt: skip


class Recording(TorchDispatchMode):
    """The steps of a call so far. It is active as a context while the wrapper runs."""

    def __init__(self, request: Request, tensors: list[torch.Tensor], policy: str) -> None:
        super().__init__()
        self._request, self._policy = request, policy
        self._tensors = list(tensors)  # kept alive, so that no address is given out twice
        self._places: dict[int, tuple[Source, int, int]] = {}  # by storage: source, index, first address
        self._buffers = 0
        self._tables: list[ConstantTable] = []
        self._kernels: dict[Kernel, int] = {}
        self.steps: list[Step] = []
        for index, tensor in enumerate(tensors):
            self._places[storage_of(tensor)] = ("argument", index, tensor.data_ptr())

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, or the first call in this mode would import torch's compiler, which takes over a second."""
        return False

    def plan(self, result: Any) -> LaunchPlan:
        """Return the plan of a call that returned ``result``. Raises Rejected for a result that no plan returns."""
        returns = tuple(self.operand(value) for value in self._results(result))
        tables = tuple(self._tables)
        return LaunchPlan(self._request.tensors, tables, tuple(self._kernels), tuple(self.steps), returns)

    def _results(self, result: Any) -> tuple[Any, ...]:
        values = self._request.values(result)
        if values is None:
            actual = counted(len(result), "value") if isinstance(result, (tuple, list)) else _kind(result)
            raise plan_refused("result", f"returns {actual}, and the pattern returns {self._request.outputs}")
        for value in values:
            if not isinstance(value, torch.Tensor):
                raise plan_refused("result", f"returns {_kind(value)}, not a tensor")
        return values

    # -- memory -----------------------------------------------------------------------------------------------------

    def operand(self, tensor: torch.Tensor) -> Operand:
        """Return a tensor as an operand. Raises Rejected for a subclass, and for memory outside of the plan."""
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise plan_refused("subclass", f"uses a tensor subclass ({type(tensor).__name__})")
        source, index, begin = self._place(tensor)
        offset = tensor.data_ptr() - begin if tensor.numel() else 0
        if offset < 0:
            raise plan_refused("outside", "reads memory before the first element of its argument")
        return Operand(source, index, offset, form_of(tensor))

    def address(self, address: int) -> Operand | None:
        """Return the operand at an address, or None for a null pointer. Raises Rejected for unknown memory."""
        if address == 0:
            return None
        tensor = self._tensor_at(address)
        if tensor is None:
            raise plan_refused("address", "passes an address that lies in no tensor of this call")
        source, index, first = self._place(tensor)
        if address < first:
            raise plan_refused("outside", "points before the first element of its argument")
        return Operand(source, index, address - first, Form("uint8", (), ()))

    def _tensor_at(self, address: int) -> torch.Tensor | None:
        """Return the first tensor of the call in whose memory an address lies."""
        for tensor in self._tensors:
            begin, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
            if begin <= address < begin + max(size, 1):
                return tensor
        return None

    def _place(self, tensor: torch.Tensor) -> tuple[Source, int, int]:
        place = self._places.get(storage_of(tensor))
        return self._table(tensor) if place is None else place

    def _table(self, tensor: torch.Tensor) -> tuple[Source, int, int]:
        """Make a tensor from outside of the call a constant table. Raises Rejected if the tables get too large."""
        storage = tensor.untyped_storage()
        table_bytes = sum(table.nbytes for table in self._tables)
        if tensor.device.type != "cpu" or table_bytes + storage.nbytes() > MAX_TABLE_BYTES:
            limit = f"all such tensors together may have {MAX_TABLE_BYTES >> 10} KiB, on the CPU"
            raise plan_refused("outside", f"uses a tensor of {storage.nbytes()} bytes made outside the call; {limit}")
        self._tables.append(ConstantTable(ctypes.string_at(storage.data_ptr(), storage.nbytes()).hex()))
        return self._know(tensor, "table", len(self._tables) - 1, storage.data_ptr())

    def _know(self, tensor: torch.Tensor, source: Source, index: int, begin: int) -> tuple[Source, int, int]:
        self._tensors.append(tensor)
        self._places[storage_of(tensor)] = place = (source, index, begin)
        return place

    def _new_buffer(self, tensor: torch.Tensor) -> None:
        self._know(tensor, "buffer", self._buffers, tensor.data_ptr())
        self._buffers += 1

    def kernel(self, kernel: Kernel) -> int:
        """Return a kernel's number in the plan."""
        return self._kernels.setdefault(kernel, len(self._kernels))

    def constant(self, value: Any, where: str) -> Any:
        """Return a constant that a kernel gets. Raises Rejected for an address or a value that no data can state."""
        if type(value).__module__ == "numpy" and hasattr(value, "item"):
            value = value.item()
        if isinstance(value, int) and value >= _FIRST_ADDRESS and self._tensor_at(value) is not None:
            raise plan_refused("address", f"passes an address as a number ({where})")
        try:
            encode(value)
        except Rejected as error:
            raise plan_refused("argument", f"passes {error} to a kernel ({where})") from error
        return value

    # -- operators --------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _on_meta(args, kwargs):  # it computes shapes, not values
            return func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if name in _READS:
            raise plan_refused("value", "reads a tensor's value (.item(), bool() or a comparison of tensors)")
        if name in _SHAPED_BY_VALUES:
            raise plan_refused("value", f"computes a shape from a tensor's values (aten.{name})")
        if name in _MEMORY:
            raise plan_refused("memory", f"changes what memory a tensor has (aten.{name})")
        handler = self._handler(name, func)
        return handler(func, args, kwargs)

    def _handler(self, name: str, func: Any) -> Callable[[Any, Any, Any], Any]:
        if name in _ALLOCATE or name in _FILLED or name in _FULL:
            return self._allocated
        if name in ("fill_", "zero_") and str(func._overloadname) != "Tensor":
            return self._filled
        if name == "copy_":
            return self._copied
        if name in _COPIES:
            return self._cloned
        return self._other

    def _allocated(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        fill = _FILLED.get(name)
        if name in _FULL:
            place = _FULL[name]
            fill = args[place] if len(args) > place else kwargs.get("fill_value", kwargs.get("s"))
        self._new_buffer(result)
        self.steps.append(Allocate(form_of(result), fill))
        return result

    def _filled(self, func: Any, args: Any, kwargs: Any) -> Any:
        value = 0 if len(args) < 2 else args[1]
        self.steps.append(Fill(self.operand(args[0]), value))
        return func(*args, **kwargs)

    def _copied(self, func: Any, args: Any, kwargs: Any) -> Any:
        target, origin = args[0], args[1]
        if target.dtype != origin.dtype:
            return self._other(func, args, kwargs)
        wide = origin.expand(target.shape) if origin.shape != target.shape else origin
        self.steps.append(Copy(self.operand(target), self.operand(wide)))
        return func(*args, **kwargs)

    def _cloned(self, func: Any, args: Any, kwargs: Any) -> Any:
        origin = args[0]
        if kwargs.get("dtype") not in (None, origin.dtype):
            return self._other(func, args, kwargs)
        result = func(*args, **kwargs)
        if storage_of(result) in self._places:
            return result
        self._new_buffer(result)
        self.steps.append(Allocate(form_of(result)))
        whole = origin if origin.shape == result.shape else origin.reshape(result.shape)
        self.steps.append(Copy(self.operand(result), self.operand(whole)))
        return result

    def _other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Pass a view on, and record an operator that computes. Raises Rejected if the policy forbids it."""
        mutable = bool(func._schema.is_mutable)
        before = {storage_of(tensor) for tensor in tensors_in((args, kwargs))}
        if not mutable and (func.is_view or str(func) == "aten._unsafe_view.default"):  # by reshape, on its copy
            return func(*args, **kwargs)
        if str(func) == "aten.lift_fresh.default":  # torch.tensor([...]): its result becomes a table when it is used
            return func(*args, **kwargs)
        if self._policy != "open":
            raise plan_refused("torch-op", f"computes with torch ({func})")
        arguments = tuple(self._described(value) for value in args)
        keywords = tuple((key, self._described(value)) for key, value in kwargs.items() if key not in ("pin_memory",))
        result = func(*args, **kwargs)
        returned = tensors_in(result)
        if not mutable and returned and all(storage_of(tensor) in before for tensor in returned):
            return result
        for tensor in returned:
            if storage_of(tensor) not in self._places:
                self._new_buffer(tensor)
        results = tuple(self.operand(tensor) for tensor in returned)
        self.steps.append(Operator(str(func), arguments, keywords, results))
        return result

    def _described(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.operand(value)
        if isinstance(value, (list, tuple)):
            return type(value)(self._described(item) for item in value)
        if isinstance(value, torch.device):
            return None if value.type == "meta" else value
        return self.constant(value, "operator")


def _on_meta(args: Any, kwargs: Any) -> bool:
    """Return True if a call returns tensors on the meta device, and all its tensor arguments are there too."""
    device = kwargs.get("device")
    tensors = tensors_in((args, kwargs))
    made_there = device is not None and torch.device(device).type == "meta"
    return all(tensor.is_meta for tensor in tensors) and (made_there or (bool(tensors) and device is None))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def make_tensors(request: Request, chance: random.Random) -> tuple[list[torch.Tensor], list[Any]]:
    """Return random tensors for a request, each in memory of its own, and the wrapper's decoded arguments."""
    tensors = [_tensor(argument, chance) for argument in request.tensors]
    special = lambda _tag, index: tensors[index]  # noqa: E731 - the request was checked: the tag is "tensor"
    return tensors, [decode(value, special) for value in request.arguments]


def _tensor(argument: Argument, chance: random.Random) -> torch.Tensor:
    form, item, dtype = argument.form, ITEM_BYTES[argument.form.dtype], getattr(torch, argument.form.dtype)
    memory = torch.zeros(form.nbytes + _LINE_BYTES * (4 + chance.randrange(64)), dtype=torch.uint8)
    start = -memory.data_ptr() % _LINE_BYTES + _LINE_BYTES + argument.misaligned
    start += -start % item  # a storage's offset counts whole elements
    count = min(form.nbytes, _MAX_RANDOM_BYTES) // item
    if count:
        generator = torch.Generator().manual_seed(chance.getrandbits(62))
        values = torch.rand(count, generator=generator)
        numbers = values if dtype.is_floating_point or dtype.is_complex else (2 * values).floor()
        memory[start : start + count * item].view(dtype).copy_(numbers)
    whole = torch.empty(0, dtype=dtype)
    return whole.set_(memory.untyped_storage(), start // item, form.shape, form.strides)


class Device(TorchFunctionMode):
    """A mode in which tensors and factory functions behave as on ``device``. Reading values raises Rejected.

    So a wrapper for a CUDA device sees its arguments on that device.
    """

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = torch.device(device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _READING_METHODS:
            raise plan_refused("value", f"reads a tensor's values (.{name})")
        if name == "__repr__":
            return f"tensor of shape {tuple(args[0].shape)}"
        if self._device.type == "cpu":
            return func(*args, **kwargs)
        return self._elsewhere(func, name, args, kwargs)

    def _elsewhere(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        owner = getattr(func, "__self__", None)
        if name == "__get__" and owner is torch.Tensor.device:
            return self._device
        if name == "__get__" and owner in (torch.Tensor.is_cuda, torch.Tensor.is_cpu):
            return owner is torch.Tensor.is_cuda
        if name == "get_device":
            return self._device.index or 0
        if func is torch.device:
            return func(*args, **kwargs)
        if name == "cuda":
            return args[0]
        if name == "cpu" or any(_is_cpu(value) for value in (*args[1:], kwargs.get("device"))):
            raise plan_refused("device", "makes or moves a tensor on another device")
        return func(*(_on_cpu(value) for value in args), **{key: _on_cpu(value) for key, value in kwargs.items()})


def _is_cpu(value: Any) -> bool:
    return value == "cpu" if isinstance(value, str) else isinstance(value, torch.device) and value.type == "cpu"


def _on_cpu(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type == "meta":
        return value
    if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
        return torch.device("cpu")
    return value
