"""Products of matrices, and convolutions as products of windows."""

from __future__ import annotations

from collections.abc import Sequence

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import rows
from pytest_passbench.scaffold.emitter import (
    refuse,
    wrapped_call,
)
from pytest_passbench.scaffold.lowering.norms import Norms


class Products(Norms):
    """The calls that add up products."""

    def _do_linear(self, node: Node, call: CanonicalCall) -> None:
        x, weight, bias = call.args["input"], call.args["weight"], call.get("bias")
        self._float(x, weight, node)
        refuse(len(self.form.shapes(weight)[0]) != 2, "linear with a vector as weight")
        left, right = self._dense_text(self._variable(x)), self._dense_text(self._variable(weight))
        source, wide = self._variable(x), self._variable(weight)
        added = self._dense_text(self._variable(bias)) if isinstance(bias, Node) else "None"
        out = self._set(
            node,
            f"torch.empty((*{source}.shape[:-1], {wide}.shape[0]), dtype={self._dtype(self.form.dtypes(node))})",
            dense=True,
        )
        sizes = ["1", f"{out}.numel() // {out}.shape[-1]", f"{out}.shape[-1]", f"{wide}.shape[1]", "0", "0", "1.0"]
        self._product(node, [x, weight, bias if isinstance(bias, Node) else x], [left, right, added, out, *sizes])

    def _product(self, node: Node, values: Sequence[Node], arguments: Sequence[str]) -> None:
        x, y, bias = values
        self._row_kernel(
            "product", rows.PRODUCT,
            [("x", self.form.dtypes(x), False), ("y", self.form.dtypes(y), False),
             ("bias", self.form.dtypes(bias), False), ("out", self.form.dtypes(node), True)],
            [*(("int64_t", name) for name in ("batches", "m", "n", "k", "y_step", "bias_step")),
             ("double", "alpha")],
            arguments,
            "Products of rows of x with rows of y.\nFaster: compute a block of results at a time, which loads each "
            "row less often.\nEager's own product is hard to beat: a pass may leave it out and begin behind it.",
        )  # fmt: skip

    def _do_matmul(self, node: Node, call: CanonicalCall) -> None:
        x, y = call.args["input"], call.args.get("other")
        assert isinstance(y, Node)
        self._float(x, y, node)
        ranks = {(len(a), len(b)) for a, b in zip(self.form.shapes(x), self.form.shapes(y), strict=True)}
        refuse(any(min(pair) < 2 for pair in ranks), "a product with a vector")
        self._helper("batched")
        name, left, right = self.names[node], self._variable(x), self._variable(y)
        self.lines.append(f"{name}_x, {name}_y = batched({left}, {right})")
        self._batches(node, [x, y, x], f"{name}_x", f"{name}_y", "None", "0", "1.0")

    _do_bmm = _do_mm = _do_matmul

    def _batches(
        self, node: Node, values: Sequence[Node], left: str, right: str, bias: str, step: str, alpha: str
    ) -> None:
        shape = f"(*{left}.shape[:-1], {right}.shape[-2])"
        out = self._set(node, f"torch.empty({shape}, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        sizes = [f"{left}.shape[:-2].numel()", f"{out}.shape[-2]", f"{out}.shape[-1]", f"{left}.shape[-1]"]
        sizes += [f"{right}.shape[-2:].numel()", step, alpha]
        self._product(node, values, [left, right, bias, out, *sizes])

    def _do_baddbmm(self, node: Node, call: CanonicalCall) -> None:
        added, x, y = call.args["input"], call.args["batch1"], call.args["batch2"]
        refuse(call.get("beta") not in (1, 1.0), "baddbmm with beta")
        self._float(added, x, y, node)
        self._helper("batched")
        name, bias = self.names[node], self._variable(added)
        self.lines.append(f"{name}_x, {name}_y = batched({self._variable(x)}, {self._variable(y)})")
        shape = f"(*{name}_x.shape[:-1], {name}_y.shape[-2])"
        self.lines.append(f"{name}_bias = {bias}.expand({shape}).contiguous()")
        alpha = self._scalar(call.get("alpha"), 1.0)
        self._batches(node, [x, y, added], f"{name}_x", f"{name}_y", f"{name}_bias", f"{name}_bias.shape[-1]", alpha)

    def _do_conv1d(self, node: Node, call: CanonicalCall) -> None:
        self._convolution(node, call, 1)

    def _do_conv2d(self, node: Node, call: CanonicalCall) -> None:
        self._convolution(node, call, 2)

    def _do_conv3d(self, node: Node, call: CanonicalCall) -> None:
        self._convolution(node, call, 3)

    def _axes(self, call: CanonicalCall, name: str, count: int, default: int) -> str:
        """Return a parameter of a convolution or pooling as a tuple, one number per axis."""
        value = call.get(name)
        if value in (None, ()):
            value = default
        if isinstance(value, str):
            return repr(value)
        items = list(value) if isinstance(value, (tuple, list)) else [value]
        items = items * count if len(items) == 1 else items
        texts = [self._variables[item] if isinstance(item, Node) else repr(int(item)) for item in items]
        return f"({', '.join(texts)}{',' if count == 1 else ''})"

    def _convolution(self, node: Node, call: CanonicalCall, axes: int) -> None:
        x, weight, bias = call.args["input"], call.args["weight"], call.get("bias")
        self._float(x, weight, node)
        refuse(len(self.form.shapes(x)[0]) != axes + 2, "a convolution without a batch")
        self._helper("windows")
        name, wide = self.names[node], self._variable(weight)
        arguments = [self._axes(call, key, axes, default) for key, default in
                     (("stride", 1), ("padding", 0), ("dilation", 1))]  # fmt: skip
        groups = self._whole(1 if call.get("groups") is None else call.get("groups"))
        self.lines += wrapped_call(
            f"{name}_x = windows", [self._variable(x), f"{wide}.shape[2:]", *arguments], 0
        ).split("\n")
        # [batch, groups, out..., channels of a group, kernel...], and the weight as [groups, channels, k]
        order = ", ".join(map(str, [0, 1, *range(3, 3 + axes), 2, *range(3 + axes, 3 + 2 * axes)]))
        self.lines.append(f"{name}_x = {name}_x.unflatten(1, ({groups}, -1)).permute({order}).contiguous()")
        self.lines.append(f"{name}_w = {self._dense_text(wide)}.view({groups}, -1, {wide}.shape[1:].numel())")
        self.lines.append(f"{name}_sizes = {name}_x.shape[2:{2 + axes}]")
        shape = f"(*{name}_x.shape[:2], {name}_sizes.numel(), {name}_w.shape[1])"
        self._variables[node] = name
        self.lines.append(f"{name} = torch.empty({shape}, dtype={self._dtype(self.form.dtypes(node))})")
        has_bias = isinstance(bias, Node)
        added = f"{self._dense_text(self._variable(bias))}.view({groups}, -1)" if has_bias else "None"
        self.lines.append(f"{name}_bias = {added}")
        self.lines.append(f"for b in range({name}.shape[0]):")
        self.lines.append(f"    for g in range({name}.shape[1]):")
        before, self.lines = self.lines, []
        sizes = ["1", f"{name}.shape[2]", f"{name}.shape[3]", f"{name}_w.shape[2]", "0", "0", "1.0"]
        self._product(
            node, [x, weight, bias if has_bias else x],
            [f"{name}_x[b, g]", f"{name}_w[g]", f"{name}_bias[g]" if has_bias else "None", f"{name}[b, g]", *sizes],
        )  # fmt: skip
        self.lines = before + [f"        {line}" for line in self.lines]
        plain = self.form.order(node) == tuple(range(axes + 2))
        end = ".contiguous()" if plain else ""
        self.lines.append(f"{name} = {name}.transpose(2, 3).flatten(1, 2).unflatten(-1, {name}_sizes){end}")
        if plain:
            self._dense.add(name)
