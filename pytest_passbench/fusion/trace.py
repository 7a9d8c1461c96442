"""A computation as ATen calls: it runs on meta tensors, and the calls that reach the dispatcher are recorded.

These are the calls that eager's kernels get. So composites are decomposed, each result is a tensor that eager stores,
and strides are eager's. A view is no call: it is another value of the same buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_passbench.fusion.ir import C_TYPES, Buffer, Call, Trace, Unsupported, Value
from pytest_passbench.fusion.windows import POOLS, padded
from pytest_passbench.plans.values import storage_of, tensors_in

VIEWS_IN_PLACE = frozenset({"as_strided_", "detach_", "squeeze_", "t_", "transpose_", "unsqueeze_"})
KEEPS_FORMAT = frozenset({"pixel_shuffle", "pixel_unshuffle"})
"""The operators whose kernels on the CPU keep the order of dimensions in memory, unlike those on meta tensors."""
LARGEST = 2**31
"""Tensors have fewer elements than this."""


class Recorder(TorchDispatchMode):
    """A recorder of calls on meta tensors. ``tensors`` keeps these alive: an address identifies memory."""

    def __init__(self, overwrite: bool = False) -> None:
        super().__init__()
        self.overwrite = overwrite
        self.name = ""
        self.tensors: list[torch.Tensor] = []
        self.buffers: dict[int, Buffer] = {}
        self.count = 0

    def add(
        self, tensor: torch.Tensor, argument: int | None = None, maker: Call | None = None, place: int = 0
    ) -> Buffer:
        """Note the memory of a tensor, and forget an earlier note of it. Raises Unsupported if it is too large."""
        if tensor.numel() >= LARGEST:
            raise Unsupported(f"a tensor of {tensor.numel()} elements")
        self.tensors.append(tensor)
        buffer = Buffer(
            self.count, tensor.dtype, tuple(tensor.shape), tensor.stride(), argument, maker, place, self.name
        )
        self.buffers[storage_of(tensor)] = buffer
        self.count += 1
        return buffer

    def value(self, item: Any) -> Any:
        """Return an argument with values in place of tensors. Raises Unsupported for an unknown tensor."""
        if isinstance(item, (list, tuple)):
            return [self.value(part) for part in item]
        if not isinstance(item, torch.Tensor):
            return item
        if storage_of(item) not in self.buffers:
            raise Unsupported("a tensor that is not an argument")
        buffer = self.buffers[storage_of(item)]
        if item.dtype != buffer.dtype or item.is_conj() or item.is_neg():
            raise Unsupported("a view as another dtype")
        return Value(buffer, tuple(item.shape), item.stride(), item.storage_offset())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a call, and note it unless it is a view."""
        if func is torch.ops.aten.lift_fresh.default and args[0].device.type == "cpu" and not args[0].dim():
            number = twin(args[0])  # torch.tensor(0.5)
            filled = Call("full", {"fill_value": args[0].item()})
            filled.results.append(self.add(number, maker=filled))
            return number
        kwargs = {name: "meta" if name == "device" else item for name, item in (kwargs or {}).items()}
        call = Call(func._schema.name.partition("::")[2], _named(func._schema, args, kwargs, self.value))
        result = func(*args, **kwargs)
        if call.name in KEEPS_FORMAT:
            result = _in_format_of(args[0], result)
        if call.name == "log_sigmoid_forward":  # contiguous on a CPU; on the meta device it has its input's strides
            result = tuple(torch.empty_like(item, memory_format=torch.contiguous_format) for item in result)
        if call.name in POOLS:
            with self:
                image = padded(call, args[0], result[0] if isinstance(result, tuple) else result)
            if image is not None:
                call.arguments["self"] = self.value(image)
        if call.name in VIEWS_IN_PLACE:
            return result
        if func._schema.is_mutable:
            self._replace(call, func, args, result)
        elif not (isinstance(result, torch.Tensor) and storage_of(result) in self.buffers):
            self._results(call, result)
        else:
            self.tensors.append(result)
        return result

    def _results(self, call: Call, result: Any) -> None:
        for place, tensor in enumerate(result if isinstance(result, (list, tuple)) else [result]):
            if not isinstance(tensor, torch.Tensor):
                raise Unsupported(f"{call.name}: a result that is not a tensor")
            if storage_of(tensor) not in self.buffers:
                call.results.append(self.add(tensor, maker=call, place=place))

    def _replace(self, call: Call, func: Any, args: tuple[Any, ...], result: Any) -> None:
        """Give what a call writes in place a new buffer, so that earlier values stay as they were."""
        target = args[0] if args else None
        written = [argument.name for argument in func._schema.arguments if argument.is_write]
        if not call.name.endswith("_") or target is not result or written != [func._schema.arguments[0].name]:
            raise Unsupported(f"{call.name}, which writes to an argument")
        buffer = self.buffers[storage_of(target)]
        outside = buffer.argument is not None and not self.overwrite
        if outside or not self.value(target).whole:
            target_name = "an input" if outside else "a part of a tensor"
            raise Unsupported(f"{call.name} into {target_name}")
        call.name = call.name.removesuffix("_")
        call.results.append(self.add(target, maker=call))


def _in_format_of(image: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """Return a result in the memory format of an image."""
    if image.dim() != 4 or not image.is_contiguous(memory_format=torch.channels_last) or image.is_contiguous():
        return result
    return torch.empty_like(result, memory_format=torch.channels_last)


def _named(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: Callable[[Any], Any]) -> dict[str, Any]:
    parameters = schema.arguments
    defaults = {each.name: each.default_value for each in parameters if each.has_default_value()}
    placed = dict(zip((each.name for each in parameters), args, strict=False))
    return {**defaults, **{name: value(item) for name, item in {**placed, **kwargs}.items()}}


def twin(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form on the meta device, with memory of its own."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def trace(
    function: Callable[..., Any], inputs: Sequence[Any], overwrite: bool = False, recorder: Recorder | None = None
) -> Trace:
    """Return the calls of a function on tensors of these shapes, strides and dtypes. Their values are not read.

    An input is a tensor, a number, or a tuple of these; the trace's inputs are the tensors among them, in order.
    With ``overwrite``, a call in place on an input gives a new tensor, and the input keeps its values.
    A ``recorder`` may be given. The function then sets its ``name`` to that of the value that it computes.
    Raises Unsupported for a computation that needs values, or that writes to an input without ``overwrite``.
    """
    twins = pytree.tree_map_only(torch.Tensor, twin, list(inputs))
    recorder = recorder or Recorder(overwrite)
    buffers = [recorder.add(leaf, argument=place) for place, leaf in enumerate(tensors_in(twins))]
    arguments = [Value(buffer, buffer.sizes, buffer.strides, 0) for buffer in buffers]
    try:
        with torch.no_grad(), recorder:
            result = function(*twins)
    except Unsupported:
        raise
    except RuntimeError as error:
        raise Unsupported(f"a computation that does not run on meta tensors: {error}") from None
    single = isinstance(result, torch.Tensor)
    results = [result] if single else list(result)
    if not all(isinstance(tensor, torch.Tensor) for tensor in results):
        raise Unsupported("a result that is not a tensor")
    values = tuple(recorder.value(tensor) for tensor in results)
    for value in (*arguments, *values):
        if value.dtype not in C_TYPES:
            raise Unsupported(str(value.dtype).removeprefix("torch."))
    return Trace(tuple(arguments), values, single)
