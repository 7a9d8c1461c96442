"""Windows of an image: their reductions, and images from and to windows."""

from __future__ import annotations

from typing import Any

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import rows
from pytest_passbench.scaffold.emitter import (
    literal,
    refuse,
    wrapped_call,
)
from pytest_passbench.scaffold.lowering.products import Products


class Pooling(Products):
    """The calls that reduce windows, or copy them."""

    def _do_avg_pool1d(self, node: Node, call: CanonicalCall) -> None:
        self._pool(node, call, 1, "mean")

    def _do_avg_pool2d(self, node: Node, call: CanonicalCall) -> None:
        self._pool(node, call, 2, "mean")

    def _do_max_pool2d(self, node: Node, call: CanonicalCall) -> None:
        self._pool(node, call, 2, "amax")

    def _pool(self, node: Node, call: CanonicalCall, axes: int, kind: str) -> None:
        x = call.args["input"]
        self._float(x)
        refuse(call.get("return_indices") is True or call.get("divisor_override") is not None, "this form of pooling")
        padded = set(numbers_of(call.get("padding") or 0)) != {0}
        refuse(
            padded and kind == "mean" and call.get("count_include_pad") is False, "pooling that leaves padding out"
        )
        refuse(len(self.form.shapes(x)[0]) != axes + 2, "pooling without a batch")
        kernel = self._axes(call, "kernel_size", axes, 1)
        stride = kernel if call.get("stride") in (None, ()) else self._axes(call, "stride", axes, 1)
        padding, dilation = self._axes(call, "padding", axes, 0), self._axes(call, "dilation", axes, 1)
        if call.get("ceil_mode") is True:
            self._check_floor(node, call, axes)
        self._helper("windows")
        fill = ['-float("inf")'] if kind == "amax" and padded else []
        name, rows_name = self.names[node], f"{self.names[node]}_rows"
        head = f"{rows_name} = windows"
        self.lines += wrapped_call(head, [self._variable(x), kernel, stride, padding, dilation, *fill], 0).split("\n")
        self.lines.append(f"{rows_name} = {rows_name}.contiguous()")
        self._windows_to_rows(node, x, kind, rows_name, axes)
        self._variables[node] = name

    def _check_floor(self, node: Node, call: CanonicalCall, axes: int) -> None:
        """Raise NoPlainKernel if rounding a size up makes a difference in any subgraph."""
        x = call.args["input"]
        kernel = numbers_of(literal(call.get("kernel_size")), axes)
        stride = numbers_of(literal(call.get("stride")) or kernel, axes)
        padding = numbers_of(literal(call.get("padding") or 0), axes)
        for before, after in zip(self.form.shapes(x), self.form.shapes(node), strict=True):
            floor = [(s + 2 * p - k) // t + 1
                     for s, k, t, p in zip(before[2:], kernel, stride, padding, strict=True)]  # fmt: skip
            refuse(floor != list(after[2:]), "pooling with ceil_mode")

    def _windows_to_rows(self, node: Node, x: Node, kind: str, text: str, count: int) -> None:
        self._dense.add(text)
        dtypes = self.form.dtypes(x)
        out = self._set(node, f"torch.empty({text}.shape[:-{count}], dtype={self._dtype(dtypes)})", dense=True)
        self._row_kernel(
            f"{kind}_rows", rows.REDUCTIONS[kind], [("x", dtypes, False), ("out", dtypes, True)],
            [("int64_t", "rows"), ("int64_t", "n")],
            [text, out, f"{out}.numel()", f"{text}.shape[-{count}:].numel()"],
            f"{kind} of each row.\nFaster: read each window where it lies; the wrapper copies it into a row.",
        )  # fmt: skip

    def _adaptive(self, node: Node, call: CanonicalCall, axes: int, kind: str) -> None:
        x = call.args["input"]
        self._float(x)
        refuse(call.get("return_indices") is True, "pooling with indices")
        refuse(
            any(set(shape[-axes:]) != {1} for shape in self.form.shapes(node)), "adaptive pooling to more than one"
        )
        text, _count = self._rows(node, x, self._last(x, axes))
        self._windows_to_rows(node, x, kind, text, axes)
        out = self.names[node]
        self._dense.discard(out)
        self.lines.append(f"{out} = {out}" + ".unsqueeze(-1)" * axes)

    def _last(self, value: Node, count: int) -> list[int]:
        rank = len(self.form.shapes(value)[0])
        return list(range(rank - count, rank))

    def _do_adaptive_avg_pool1d(self, node: Node, call: CanonicalCall) -> None:
        self._adaptive(node, call, 1, "mean")

    def _do_adaptive_avg_pool2d(self, node: Node, call: CanonicalCall) -> None:
        self._adaptive(node, call, 2, "mean")

    def _do_adaptive_max_pool2d(self, node: Node, call: CanonicalCall) -> None:
        self._adaptive(node, call, 2, "amax")

    def _do_unfold(self, node: Node, call: CanonicalCall) -> None:
        if "kernel_size" not in call.args:  # a tensor's own method, which is a view
            self._view(node)
            return
        refuse(len(self.form.shapes(call.args["input"])[0]) != 4, "unfold without a batch")
        self._helper("windows")
        arguments = [self._axes(call, name, 2, default) for name, default in
                 (("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))]  # fmt: skip
        text = f"windows({', '.join([self._variable(call.args['input']), *arguments])})"
        self._set(node, f"{text}.permute(0, 1, 4, 5, 2, 3).flatten(1, 3).flatten(2, 3)")

    def _do_fold(self, node: Node, call: CanonicalCall) -> None:
        x = call.args["input"]
        self._float(x, node)
        refuse(len(self.form.shapes(x)[0]) != 3, "fold without a batch")
        text = self._variable(x)
        pairs = (("output_size", 1), ("kernel_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1))
        numbers = [self._pair(call, name, default) for name, default in pairs]
        (height, width), (high, wide) = numbers[:2]
        shape = f"({text}.shape[0], {text}.shape[1] // ({high} * {wide}), {height}, {width})"
        out = self._set(node, f"torch.zeros({shape}, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        names = ("planes", "height", "width", "kh", "kw", "sh", "sw", "ph", "pw", "dh", "dw")
        self._row_kernel(
            "fold_windows", rows.FOLD,
            [("x", self.form.dtypes(x), False), ("out", self.form.dtypes(node), True)],
            [("int64_t", name) for name in names],
            [self._dense_text(text), out, f"{out}.shape[0] * {out}.shape[1]", *(n for pair in numbers for n in pair)],
            "Adds each window to its place in the image.\nFaster: windows that do not overlap are only copied.",
        )  # fmt: skip

    def _pair(self, call: CanonicalCall, name: str, default: int) -> tuple[str, str]:
        value = call.get(name)
        high, wide = numbers_of(default if value is None else value, 2)
        return self._whole(high), self._whole(wide)


def numbers_of(value: Any, count: int = 1) -> list[int]:
    items = list(value) if isinstance(value, (tuple, list)) else [value]
    return items * count if len(items) == 1 else items
