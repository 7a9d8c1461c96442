"""A recording writes a call of a kernel wrapper down as a launch plan while the wrapper runs.

Operators come through torch's dispatcher, launches from the stand-ins for ``kernels.cpp`` and Triton. The tensors are
CPU tensors with random values, whatever device the request states. An operator that is not seen here is not in the
plan, so it is not executed later: one of another thread, or one hidden from the dispatcher.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_passbench.core.plurals import counted
from pytest_passbench.core.rejected import Rejected, plan_refused
from pytest_passbench.plans.launch import (
    MAX_TABLE_BYTES,
    Allocate,
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
from pytest_passbench.plans.values import encode, storage_of, tensors_in

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
        """Return the plan of a call that returned ``result``. Raises Rejected for any other result."""
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
        for tensor in self._tensors:
            begin, size = tensor.untyped_storage().data_ptr(), tensor.untyped_storage().nbytes()
            if begin <= address < begin + max(size, 1):
                source, index, first = self._place(tensor)
                if address < first:
                    raise plan_refused("outside", "points before the first element of its argument")
                return Operand(source, index, address - first, Form("uint8", (), ()))
        raise plan_refused("address", "passes an address that lies in no tensor of this call")

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
        """Return a constant that a kernel gets. Raises Rejected for an address, and for a value that has no form."""
        if type(value).__module__ == "numpy" and hasattr(value, "item"):
            value = value.item()
        if isinstance(value, int) and self._is_address(value):
            raise plan_refused("address", f"passes an address as a number ({where})")
        try:
            encode(value)
        except Rejected as error:
            raise plan_refused("argument", f"passes {error} to a kernel ({where})") from error
        return value

    def _is_address(self, number: int) -> bool:
        if number < 1 << 20:
            return False
        storages = [tensor.untyped_storage() for tensor in self._tensors]
        return any(
            storage.nbytes() and storage.data_ptr() <= number < storage.data_ptr() + storage.nbytes()
            for storage in storages
        )

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
        if not mutable and (func.is_view or str(func) == "aten._unsafe_view.default"):  # reshape's, of its own copy
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
    """Return True if a call gives tensors on the meta device, and gets no others."""
    device = kwargs.get("device")
    tensors = tensors_in((args, kwargs))
    made_there = device is not None and torch.device(device).type == "meta"
    return all(tensor.is_meta for tensor in tensors) and (made_there or (bool(tensors) and device is None))


def _kind(value: Any) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"
