"""Reductions of rows, and running sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import Node

from pytest_passbench.rewrite.normalise import CanonicalCall
from pytest_passbench.scaffold import rows
from pytest_passbench.scaffold.emitter import (
    Dtypes,
    literal,
    refuse,
)
from pytest_passbench.scaffold.lowering.wrapper import Wrapper


class Reductions(Wrapper):
    """The calls that make one value of several."""

    def _rows(self, node: Node, value: Node, dims: Sequence[int]) -> tuple[str, int]:
        """Return the variable of a dense tensor whose last dimensions are ``dims`` of ``value``, and their number."""
        rank, text = len(self.form.shapes(value)[0]), self._variable(value)
        last = list(dims) == list(range(-len(dims), 0))
        refuse(not last and any(len(shape) != rank for shape in self.form.shapes(value)), "ranks that differ")
        if [d % rank for d in dims] == list(range(rank - len(dims), rank)):
            if text in self._dense:
                return text, len(dims)
            moved = f"{text}.contiguous()"
        else:
            ends = tuple(range(-len(dims), 0))
            moved = f"{text}.movedim({_dims(dims)}, {_dims(ends)}).contiguous()"
        name = f"{self.names[node]}_rows"
        self.lines.append(f"{name} = {moved}")
        self._dense.add(name)
        return name, len(dims)

    def _dims(self, value: Node, dim: Any) -> list[int]:
        """Return dimensions as they are written, from the first to the last: a pattern may match other ranks."""
        rank = len(self.form.shapes(value)[0])
        dim = literal(dim)
        if dim is None or dim == ():
            return list(range(rank))
        written = dim if isinstance(dim, (tuple, list)) else (dim,)
        if any(d < 0 for d in written) != all(d < 0 for d in written):
            written = [d % rank for d in written]
        return sorted(written)

    def _reduction(
        self, node: Node, call: CanonicalCall, body: str, numbers: Sequence[tuple[str, str, str]] = ()
    ) -> None:
        value = call.args["input"]
        keep = bool(literal(call.get("keepdim")))
        dims = self._dims(value, call.get("dim"))
        refuse(self.form.shapes(value)[0] == (), f"{call.op} of a single number")
        x, count = self._rows(node, value, dims)
        out = self._set(
            node, f"torch.empty({x}.shape[:-{count}], dtype={self._dtype(self.form.dtypes(node))})", dense=True
        )
        n = f"{x}.shape[-1]" if count == 1 else f"{x}.shape[-{count}:].numel()"
        self._row_kernel(
            f"{call.op}_rows", body,
            [("x", self.form.dtypes(value), False), ("out", self.form.dtypes(node), True)],
            [*((kind, name) for kind, name, _text in numbers), ("int64_t", "rows"), ("int64_t", "n")],
            [x, out, *(text for _kind, _name, text in numbers), f"{out}.numel()", n],
            f"{call.op} of each row.\nFaster: do it in the sweep that makes the row or uses the result.",
        )  # fmt: skip
        if keep:
            self._dense.discard(out)
            self.lines.append(f"{out} = {out}" + "".join(
                f".unsqueeze({d})" for d in (dims if dims[0] >= 0 else dims[::-1])
            ))  # fmt: skip
            self._dense.add(out)

    def _do_sum(self, node: Node, call: CanonicalCall) -> None:
        value, kind = call.args["input"], self.types.kind(self.form.dtypes(node))
        if kind == "int":
            self._reduction(node, call, rows.SUM_WHOLE)
            return
        refuse(kind != "float" or self.types.kind(self.form.dtypes(value)) != "float", "a sum of this type")
        self._reduction(node, call, rows.REDUCTIONS["sum"])

    def _do_mean(self, node: Node, call: CanonicalCall) -> None:
        refuse(self.types.kind(self.form.dtypes(node)) != "float", "a mean of this type")
        self._reduction(node, call, rows.REDUCTIONS["mean"])

    def _do_amax(self, node: Node, call: CanonicalCall) -> None:
        self._reduction(node, call, rows.REDUCTIONS[call.op])

    _do_amin = _do_amax

    def _do_var(self, node: Node, call: CanonicalCall) -> None:
        correction = literal(call.get("correction"))
        self._reduction(node, call, rows.REDUCTIONS[call.op],
                        [("double", "correction", repr(float(1 if correction is None else correction)))])  # fmt: skip

    _do_std = _do_var

    def _do_norm(self, node: Node, call: CanonicalCall) -> None:
        order = literal(call.get("p") if call.get("p") is not None else call.get("ord"))
        refuse(order not in (2, 2.0, None, "fro"), "a norm of another order")
        refuse(call.get("dtype") is not None, "a norm with a dtype")
        self._reduction(node, call, rows.REDUCTIONS["norm"])

    _do_linalg_vector_norm = _do_linalg_norm = _do_norm

    def _do_max(self, node: Node, call: CanonicalCall) -> None:
        refuse(call.get("dim") is None or "other" in call.args, f"{call.op} of this form")
        value = call.args["input"]
        (dim,) = self._dims(value, call.get("dim"))
        x, _count = self._rows(node, value, [dim])
        dtypes, places = self._parts(node)
        name = self.names[node]
        self.lines.append(f"{name} = torch.empty({x}.shape[:-1], dtype={self._dtype(dtypes)})")
        self.lines.append(f"{name}_places = torch.empty({name}.shape, dtype=torch.int64)")
        self._row_kernel(
            f"{call.op}_rows", rows.BEST.format(sign=">" if call.op == "max" else "<",
                                                keep="pb::put(out + r, pb::get(x + best));\n    "),
            [("x", self.form.dtypes(value), False), ("out", dtypes, True), ("places", places, True)],
            [("int64_t", "rows"), ("int64_t", "n")], [x, name, f"{name}_places", f"{name}.numel()", f"{x}.shape[-1]"],
            f"The {call.op} of each row, and its place.",
        )  # fmt: skip
        end = f".unsqueeze({dim})" if literal(call.get("keepdim")) else ""
        self.lines.append(f"{name} = ({name}{end}, {name}_places{end})")
        self._variables[node] = name

    _do_min = _do_max

    def _do_argmax(self, node: Node, call: CanonicalCall) -> None:
        refuse(call.get("dim") is None, f"{call.op} of all elements")
        sign = ">" if call.op == "argmax" else "<"
        self._reduction(node, call, rows.BEST.format(sign=sign, keep="").replace("places", "out"))

    _do_argmin = _do_argmax

    def _do_sort(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        (dim,) = self._dims(value, -1 if call.get("dim") is None else call.get("dim"))
        refuse(
            literal(call.get("stable")) is not True and any(self._is_places(user) for user in node.users),
            "the places that sort gives, since eager leaves the order of equal elements open",
        )
        dtypes, places = self._parts(node)
        x, _count = self._rows(node, value, [dim])
        name = self.names[node]
        self.lines.append(f"{name} = torch.empty({x}.shape, dtype={self._dtype(dtypes)})")
        self.lines.append(f"{name}_places = torch.empty({name}.shape, dtype=torch.int64)")
        first, other = "ji" if literal(call.get("descending")) else "ij"
        self._row_kernel(
            "sort_rows", rows.SORT.format(one=first, other=other),
            [("x", self.form.dtypes(value), False), ("out", dtypes, True), ("places", places, True)],
            [("int64_t", "rows"), ("int64_t", "n")],
            [x, name, f"{name}_places", f"{name}.numel() // {name}.shape[-1]", f"{name}.shape[-1]"],
            "Each row in order, and the places that its elements come from.",
        )  # fmt: skip
        rank = len(self.form.shapes(value)[0])
        end = "" if dim % rank == rank - 1 else f".movedim(-1, {dim})"
        self.lines.append(f"{name} = ({name}{end}, {name}_places{end})")
        self._variables[node] = name

    def _is_places(self, user: Node) -> bool:
        """Return True if a use of a sorted tensor is not that of its values."""
        return user.op == "output" or self.form.call(user).args.get("index") != (0,)

    def _parts(self, node: Node) -> tuple[Dtypes, Dtypes]:
        """Return the dtypes of the two tensors that a call returns."""
        values = self.form.values[node]
        return tuple(value.parts[0].dtype for value in values), tuple(value.parts[1].dtype for value in values)

    def _do_cumsum(self, node: Node, call: CanonicalCall) -> None:
        value = call.args["input"]
        (dim,) = self._dims(value, call.get("dim"))
        kind = self.types.kind(self.form.dtypes(node))
        refuse(kind == "bool", "cumsum of this type")
        x, _count = self._rows(node, value, [dim])
        out = self._set(node, f"torch.empty({x}.shape, dtype={self._dtype(self.form.dtypes(node))})", dense=True)
        whole = kind == "int"
        self._row_kernel(
            "cumsum_rows", rows.CUMSUM.format(kind="int64_t" if whole else "double", cast="" if whole else "float"),
            [("x", self.form.dtypes(value), False), ("out", self.form.dtypes(node), True)],
            [("int64_t", "rows"), ("int64_t", "n")],
            [x, out, f"{out}.numel() // {out}.shape[-1]", f"{out}.shape[-1]"], "Running sums of each row.",
        )  # fmt: skip
        self._back(node, dim, len(self.form.shapes(value)[0]))

    def _back(self, node: Node, dim: int, rank: int) -> None:
        """Move the last dimension of a result back to ``dim``."""
        if dim % rank != rank - 1:
            name = self.names[node]
            self.lines.append(f"{name} = {name}.movedim(-1, {dim})")
            self._dense.discard(name)


def _dims(dims: Sequence[int]) -> str:
    return str(dims[0]) if len(dims) == 1 else str(tuple(dims))
