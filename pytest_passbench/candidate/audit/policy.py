"""What may be named where: the tables of :mod:`~.tables` as one question each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from pytest_passbench.candidate.audit import tables

PolicyName = Literal["kernels", "open"]
_TORCH_KERNELS = (
    tables.ALLOCATION | tables.DTYPES | tables.TYPES | tables.METADATA_FUNCTIONS
    | {name for name in tables.VIEWS if name != "detach"} | {"detach"}
)  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """``kernels``: of torch only allocation, metadata and views. ``open``: any operator of torch's."""

    name: PolicyName

    def refuses(self, path: str, mode: str) -> str | None:
        """The rule that a mention of the library member ``path`` breaks in ``mode``, or None.

        In a pattern any operator may be named; at import too, since there are no inputs to compute on yet.
        """
        if path in tables.NAMESPACES:
            return None
        if path.startswith("torch."):
            loose = self.name == "open" or mode != "code"
            return _torch(path[6:], loose=loose)
        return _library(path)


@cache
def _torch(name: str, *, loose: bool) -> str | None:
    if name in _TORCH_KERNELS or name.split(".")[0] in ("iinfo", "finfo", "version"):
        return None
    return None if loose and is_operator(name) else "torch-op"


@cache
def is_operator(name: str) -> bool:
    """Is ``torch.<name>`` an operator, rather than something that loads, compiles, patches or sets?"""
    if any(name == space or name.startswith(space + ".") for space in tables.OPERATOR_NAMESPACES):
        return "__" not in name
    return not name.startswith("_") and "." not in name and name not in tables.NOT_OPERATORS


@cache
def _library(path: str) -> str | None:
    for library in sorted(tables.LIBRARIES, key=len, reverse=True):
        if path.startswith(library + "."):
            rest = path[len(library) + 1 :]
            allowed = tables.LIBRARIES[library]
            return None if rest in allowed or rest.split(".")[0] in allowed - _DEEP else "external"
    # A library that may not be imported at all is reported where it is imported.
    return "external" if path.split(".")[0] in _TOPS else None


_TOPS = frozenset(name.split(".")[0] for name in tables.IMPORTABLE)
# Names whose own attributes are looked at one by one.
_DEEP = frozenset({"path", "runtime", "tools", "language", "cpp", "Path"})


def importable(module: str) -> bool:
    """May a candidate import ``module``?"""
    return any(module == name or module.startswith(name + ".") for name in tables.IMPORTABLE) or (
        module in ("pytest_passbench",)
    )


@cache
def kernel_refuses(path: str) -> bool:
    """Is the library member ``path`` out of place in the body of a Triton kernel?"""
    if path in tables.NAMESPACES and path.startswith("triton"):
        return False
    parts = path.split(".")
    if any(part.startswith("_") for part in parts):
        return True
    if parts[:2] == ["triton", "language"]:
        return len(parts) > 3 and parts[2] not in ("math", "extra", "dtype", "libdevice")
    if parts[0] == "triton":
        return path not in ("triton.cdiv", "triton.next_power_of_2", "triton.jit")
    return parts[0] not in ("math", "builtins") and path not in {f"torch.{name}" for name in tables.DTYPES}
