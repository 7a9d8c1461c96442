"""Softmax and norms."""

from __future__ import annotations

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import rows
from pytest_passbench.scaffold.emitter import (
    literal,
    refuse,
)
from pytest_passbench.scaffold.lowering.reductions import Reductions


class Norms(Reductions):
    """The calls that bring rows to a common scale."""

    def _do_softmax(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        (dim,) = self._dims(value, call.get("dim"))
        self._float(value, node)
        x, _count = self._rows(node, value, [dim])
        out = self._set(node, f"torch.empty({x}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        self._row_kernel(
            "softmax_rows", rows.SOFTMAX,
            [("x", self.form.dtypes(value), False), ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n")],
            [x, out, f"{out}.numel() // {out}.shape[-1]", f"{out}.shape[-1]"],
            "softmax of each row.\nFaster: pb::map_greatest and pb::map_sum (candidates/cpu-fused/softmax.py), and "
            "read the\noperands of what comes before in the same sweep.",
        )  # fmt: skip
        self._back(node, dim, len(self.form.shapes(value)[0]))

    def _do_layer_norm(self, node: Node, call: CanonicalCall) -> None:
        value, size = call.args["input"], call.args["normalized_shape"]
        count = len(size) if isinstance(size, (tuple, list)) else 1
        self._float(value, node)
        rank = len(self.form.shapes(value)[0])
        x, _count = self._rows(node, value, list(range(rank - count, rank)))
        pointers, arguments = self._parameters(call, value, "weight", "bias")
        out = self._set(node, f"torch.empty({x}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        n = f"{x}.shape[-1]" if count == 1 else f"{x}.shape[-{count}:].numel()"
        self._row_kernel(
            "layer_norm_rows", rows.LAYER_NORM,
            [("x", self.form.dtypes(value), False), *pointers, ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n"), ("double", "eps")],
            [x, *arguments, out, f"{out}.numel() // {n}", n, self._scalar(call.get("eps"), 1e-5)],
            "Layer norm of each row.\nFaster: pb::sum and pb::map over the row (candidates/cpu-fused/layer_norm.py).",
        )  # fmt: skip

    def _do_rms_norm(self, node: Node, call: CanonicalCall) -> None:
        value, size = call.args["input"], call.args["normalized_shape"]
        refuse(isinstance(size, (tuple, list)) and len(size) != 1, "rms_norm over several dimensions")
        refuse(call.get("eps") is None, "rms_norm without eps")
        self._float(value, node)
        x, _count = self._rows(node, value, [len(self.form.shapes(value)[0]) - 1])
        pointers, arguments = self._parameters(call, value, "weight")
        out = self._set(node, f"torch.empty({x}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        n = f"{x}.shape[-1]"
        self._row_kernel(
            "rms_norm_rows", rows.RMS_NORM,
            [("x", self.form.dtypes(value), False), *pointers, ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n"), ("double", "eps")],
            [x, *arguments, out, f"{out}.numel() // {n}", n, self._scalar(call.get("eps"), 1e-5)],
            "RMS norm of each row.\nFaster: pb::sum and pb::map over the row (candidates/cpu-fused/rms.py).",
        )  # fmt: skip

    def _do_group_norm(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        self._groups(node, call, value, self._whole(call.args["num_groups"]))

    def _do_instance_norm(self, node: Node, call: CanonicalCall) -> None:
        refuse(call.get("use_input_stats") is False, "instance_norm with running statistics")
        value = call.args["input"]
        self._groups(node, call, value, f"{self._variable(value)}.shape[1]", stored=True)

    def _groups(self, node: Node, call: CanonicalCall, value: Node, groups: str, stored: bool = False) -> None:
        """``stored``: eager stores mean and inverse before it uses them."""
        self._float(value, node)
        body = rows.GROUP_NORM
        if stored:
            c_type = self.types.name(self.form.dtypes(node))
            line = "    for (int64_t j = 0; j < n; j++) {\n      int64_t channel"
            body = body.replace(
                line, f"    mean = pb::round<{c_type}>(float(mean)), inverse = pb::round<{c_type}>(inverse);\n{line}"
            )
        text = self._dense_text(self._variable(value))
        pointers, arguments = self._parameters(call, value, "weight", "bias")
        out = self._set(node, f"torch.empty({text}.shape, dtype={self._dtype(self.form.dtypes(node))})".replace(
            ".contiguous().shape", ".shape"), dense=True)  # fmt: skip
        of_rows = f"{out}.shape[0] * {groups}"
        self._row_kernel(
            f"{call.op}_rows", body,
            [("x", self.form.dtypes(value), False), *pointers, ("out", self.form.dtypes(node), True)],
            [("int64_t", "groups"), ("int64_t", "rows"), ("int64_t", "n"), ("int64_t", "size"), ("double", "eps")],
            [text, *arguments, out, groups, of_rows, f"{out}.numel() // ({of_rows})", f"{out}.shape[2:].numel()",
             self._scalar(call.get("eps"), 1e-5)],
            "Each row is a group of channels, and a channel has `size` elements.",
        )  # fmt: skip

    def _do_normalize(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        (dim,) = self._dims(value, 1 if call.get("dim") is None else call.get("dim"))
        refuse(literal(call.get("p")) not in (None, 2, 2.0), "normalize with another norm")
        self._float(value, node)
        x, _count = self._rows(node, value, [dim])
        out = self._set(node, f"torch.empty({x}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        self._row_kernel(
            "normalize_rows", rows.NORMALIZE.replace("TYPE", self.types.name(self.form.dtypes(node))),
            [("x", self.form.dtypes(value), False), ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n"), ("double", "eps")],
            [x, out, f"{out}.numel() // {out}.shape[-1]", f"{out}.shape[-1]", self._scalar(call.get("eps"), 1e-12)],
            "Each row over its length, which is stored between the two.",
        )  # fmt: skip
        self._back(node, dim, len(self.form.shapes(value)[0]))

    def _do_mse_loss(self, node: Node, call: CanonicalCall) -> None:
        value, other = call.args["input"], call.args["target"]
        refuse(literal(call.get("reduction")) not in (None, "mean", 1), "mse_loss of this form")
        refuse(self.form.shapes(value) != self.form.shapes(other), "mse_loss that broadcasts")
        self._float(value, other, node)
        left, right = self._dense_text(self._variable(value)), self._dense_text(self._variable(other))
        out = self._set(node, f"torch.empty((), dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        self._row_kernel(
            "mse_loss_of", rows.MSE_LOSS.replace("TYPE", self.types.name(self.form.dtypes(value))),
            [("x", self.form.dtypes(value), False), ("y", self.form.dtypes(other), False),
             ("out", self.form.dtypes(node), True)],
            [("int64_t", "n")], [left, right, out, f"{self._variable(value)}.numel()"],
            "The mean of the squared differences, which eager stores before it adds them.",
        )  # fmt: skip

    def _do__weight_norm(self, node: Node, call: CanonicalCall) -> None:
        v, g = list(call.args.values())[:2]
        refuse(literal(call.args.get("dim", 0)) != 0, "weight_norm of another dimension")
        self._float(v, g, node)
        x = self._dense_text(self._variable(v))
        out = self._set(
            node, f"torch.empty({self._variable(v)}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True
        )
        self._row_kernel(
            "weight_norm_rows", rows.WEIGHT_NORM,
            [("x", self.form.dtypes(v), False), ("g", self.form.dtypes(g), False),
             ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n")],
            [x, self._dense_text(self._variable(g)), out, f"{out}.shape[0]", f"{out}.shape[1:].numel()"],
            "Each row with the length that g has for it.",
        )  # fmt: skip
