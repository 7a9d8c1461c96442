"""Calls that only move elements: joining, padding, rolling, shuffling, taking by index."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import rows
from pytest_passbench.scaffold.emitter import (
    EmittedKernel,
    PointerArg,
    literal,
    refuse,
)
from pytest_passbench.scaffold.lowering.pooling import Pooling, numbers_of
from pytest_passbench.scaffold.text import Python


class Moves(Pooling):
    """The calls that move elements."""

    def _mover(
        self, name: str, body: str, pointers: Sequence[PointerArg], numbers: Sequence[str], comment: str
    ) -> None:
        """Add a kernel that a helper launches."""
        self._helper(name)
        self.launches += 1
        kernel = EmittedKernel(name, tuple(pointers), tuple(("int64_t", number) for number in numbers), comment, body)
        if kernel not in self.kernels:
            self._used.add(name)
            self.kernels.append(kernel)

    def _moved(self, text: str) -> str:
        whole = (torch.int64,)
        self._mover(
            "moved", rows.MOVE,
            [PointerArg("x"), PointerArg("out", written=True),
             PointerArg("sizes", whole), PointerArg("strides", whole)],
            ["n", "rank", "size"], "Copies elements of `size` bytes into one dense block.\n"
            "Faster: loops over the dimensions, and whole rows where they are dense.",
        )  # fmt: skip
        return f"moved({text})"

    def _do_cat(self, node: Node, call: CanonicalCall) -> None:
        parts = call.args["tensors"]
        refuse(any(self.form.dtypes(part) != self.form.dtypes(node) for part in parts), "cat of several dtypes")
        (dim,) = self._dims(parts[0], call.get("dim") or 0)
        self._joined(node, [self._variable(part) for part in parts], dim)

    def _joined(self, node: Node, texts: Sequence[str], dim: int) -> None:
        self._mover("joined", rows.PLACE, [PointerArg("x"), PointerArg("out", written=True)],
                    ["rows", "bytes", "step", "start"], "Copies rows of `bytes` bytes to every `step`-th byte.\n"
                    "Faster: let the kernel before write its result there at once.")  # fmt: skip
        self._set(node, f"join([{', '.join(texts)}], {dim})", dense=True)

    def _do_stack(self, node: Node, call: CanonicalCall) -> None:
        parts = call.args["tensors"]
        rank = len(self.form.shapes(node)[0])
        dim = literal(call.get("dim") or 0) % rank
        self._joined(node, [f"{self._variable(part)}.unsqueeze({dim})" for part in parts], dim)

    def _do_pad(self, node: Node, call: CanonicalCall) -> None:
        refuse(call.get("mode") not in (None, "constant"), "pad of this mode")
        value = call.get("value")
        widths = call.args["pad"]
        self._helper("padded")
        source = self._variable(call.args["input"])
        text = Python(self._variables).value(tuple(widths))
        self._set(node, f"padded({source}, {text}, {self._scalar(value, 0.0)})")
        self._dense.add(self.names[node])

    def _do_roll(self, node: Node, call: CanonicalCall) -> None:
        x = call.args["input"]
        dims, shifts = literal(call.get("dims")), literal(call.get("shifts"))
        refuse(dims in (None, ()), "roll of all elements")
        name, text = self.names[node], self._variable(x)
        for dim, shift in zip(numbers_of(dims), numbers_of(shifts), strict=True):
            parts = [f"{text}.narrow({dim}, -{shift}, {shift})",
                     f"{text}.narrow({dim}, 0, {text}.shape[{dim}] - {shift})"]  # fmt: skip
            refuse(shift <= 0, "roll to the front")
            self._joined(node, parts, dim)
            text = name

    def _do_pixel_shuffle(self, node: Node, call: CanonicalCall) -> None:
        factor = literal(call.get("upscale_factor"))
        refuse(len(self.form.shapes(node)[0]) != 4, "pixel_shuffle without a batch")
        text = self._variable(call.args["input"])
        self._set(node, f"{text}.unflatten(1, (-1, {factor}, {factor})).permute(0, 1, 4, 2, 5, 3)"
                        ".flatten(4, 5).flatten(2, 3)")  # fmt: skip

    def _do_pixel_unshuffle(self, node: Node, call: CanonicalCall) -> None:
        factor = literal(call.get("downscale_factor"))
        text = self._variable(call.args["input"])
        self._set(node, f"{text}.unflatten(3, (-1, {factor})).unflatten(2, (-1, {factor}))"
                        ".permute(0, 1, 3, 5, 2, 4).flatten(1, 3)")  # fmt: skip

    def _do_repeat_interleave(self, node: Node, call: CanonicalCall) -> None:
        count, dim = literal(call.args.get("repeats", call.args.get("size"))), literal(call.get("dim"))
        refuse(not isinstance(count, int) or dim is None, "repeat_interleave of this form")
        text = self._variable(call.args["input"])
        dim %= len(self.form.shapes(node)[0])
        sizes = ", ".join(["-1"] * (dim + 1) + [str(count)] + ["-1"] * (len(self.form.shapes(node)[0]) - dim - 1))
        self._set(node, f"{text}.unsqueeze({dim + 1}).expand({sizes}).flatten({dim}, {dim + 1})")

    def _take(self, node: Node, base: Node, index: Node) -> None:
        refuse(set(self.form.dtypes(index)) != {torch.int64}, "an index of this dtype")
        x, places = self._variable(base), self._variable(index)
        dense = self._dense_text(x)
        out = self._set(
            node, f"torch.empty((*{places}.shape, *{x}.shape[1:]), dtype={self._dtype(self.form.dtypes(node))})",
            dense=True,
        )  # fmt: skip
        kernel = EmittedKernel(
            "take", (PointerArg("x"), PointerArg("index", (torch.int64,)), PointerArg("out", written=True)),
            tuple(("int64_t", name) for name in ("rows", "bytes", "count")),
            "Copies the rows of x that index names.\nFaster: let the kernel behind read them there.", rows.TAKE,
        )  # fmt: skip
        row = f"{x}.shape[1:].numel() * {x}.element_size()"
        self._launch(kernel, [dense, self._dense_text(places), out, f"{places}.numel()", row, f"{x}.shape[0]"])

    def _do_embedding(self, node: Node, call: CanonicalCall) -> None:
        refuse(literal(call.get("max_norm")) is not None, "embedding with max_norm")
        self._take(node, call.args["weight"], call.args["input"])

    def _do_index_select(self, node: Node, call: CanonicalCall) -> None:
        x = call.args["input"]
        (dim,) = self._dims(x, call.get("dim"))
        refuse(dim % len(self.form.shapes(x)[0]) != 0, "index_select of another dimension")
        self._take(node, x, call.args["index"])

    def _do_gather(self, node: Node, call: CanonicalCall) -> None:
        x, index = call.args["input"], call.args["index"]
        rank = len(self.form.shapes(x)[0])
        (dim,) = self._dims(x, call.get("dim"))
        refuse(dim % rank != rank - 1 or any(a[:-1] != b[:-1] for a, b in
               zip(self.form.shapes(x), self.form.shapes(index), strict=True)), "gather of this form")  # fmt: skip
        text, places = self._variable(x), self._variable(index)
        out = self._set(node, f"torch.empty({places}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        kernel = EmittedKernel(
            "gather", (PointerArg("x"), PointerArg("index", (torch.int64,)), PointerArg("out", written=True)),
            tuple(("int64_t", name) for name in ("rows", "n", "count", "size")),
            "Copies the elements that index names.", rows.GATHER,
        )  # fmt: skip
        count = f"{out}.numel() // {out}.shape[-1]"
        self._launch(kernel, [self._dense_text(text), self._dense_text(places), out, count, f"{out}.shape[-1]",
                              f"{text}.shape[-1]", f"{text}.element_size()"])  # fmt: skip

    def _do_scatter_add(self, node: Node, call: CanonicalCall) -> None:
        base, index, source = call.args["input"], call.args["index"], call.args["src"]
        (dim,) = self._dims(base, call.get("dim"))
        self._float(base, source)
        refuse(dim != 0, "scatter_add of another dimension")
        shapes = zip(self.form.shapes(base), self.form.shapes(index), self.form.shapes(source), strict=True)
        refuse(any(b != s or a[1:] != b[1:] for a, b, s in shapes), "scatter_add of this form")
        name = self.names[node]
        # One row per column: the dimension that is scattered along comes last.
        self.lines.append(
            f"{name}_rows = {self._variable(base)}.movedim(0, -1).clone(memory_format=torch.contiguous_format)"
        )
        target = f"{name}_rows"
        x, places = f"{self._variable(source)}.movedim(0, -1)", f"{self._variable(index)}.movedim(0, -1)"
        self._row_kernel(
            "scatter_add", rows.SCATTER_ADD,
            [("x", self.form.dtypes(source), False), ("index", self.form.dtypes(index), False),
             ("out", self.form.dtypes(base), True)],
            [("int64_t", "rows"), ("int64_t", "n"), ("int64_t", "count")],
            [f"{x}.contiguous()", f"{places}.contiguous()", target, f"{target}.numel() // {target}.shape[-1]",
             f"{self._variable(source)}.shape[0]", f"{target}.shape[-1]"],
            "Adds each element to the place that index names.",
        )  # fmt: skip
        self._set(node, f"{target}.movedim(-1, 0)")
