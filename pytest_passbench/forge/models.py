"""The material to capture: a case is one architecture with the inputs that it is run on, in a small notation.

In ``float b 3 n n``, ``int1000 b n`` or ``input_ids=int5..99 b n`` a dtype comes first, then the sizes. ``b`` is the
batch of a variant and ``n`` its size; ``n/8`` and ``n*2`` work too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated
from pytest_passbench.suite.limits import machine_bytes, shape_problem

OPTION = "--input"
RIGHT = 'write float, bool, int1000 (0 to 999) or int5..99, then sizes, as in --input="float b 3 n n"'
MAX_SHARE = 4
"""A model's inputs may take 1 / MAX_SHARE of the machine's memory: the model needs the rest."""
ITEM_BYTES = {"float": 4, "int": 8, "bool": 1}

_SPEC = re.compile(r"\s*(?:(?P<name>[^\W\d]\w*)\s*=)?\s*(?P<dtype>[^\s=]+)(?P<sizes>(?:\s+\S+)*)\s*")
_SIZE = re.compile(r"(?P<letter>[bn])(?:(?P<sign>[/*])(?P<factor>[1-9][0-9]{0,5}))?|[1-9][0-9]{0,8}")
_INTEGERS = re.compile(r"int(?:(?P<count>[0-9]{1,18})|(?P<low>-?[0-9]{1,18})\.\.(?P<high>-?[0-9]{1,18}))")


@dataclass(frozen=True)
class Variant:
    """A batch and a size: tokens for text, pixels a side for images, samples or frames for audio."""

    batch: int
    size: int

    @property
    def label(self) -> str:
        """The short name in subgraph ids: ``b4n128``."""
        return f"b{self.batch}n{self.size}"


@dataclass(frozen=True)
class ModelCase:
    """An architecture. ``build`` makes the model with random weights, ``inputs`` the arguments of its forward."""

    name: str
    modality: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[torch.nn.Module, Variant], dict[str, Any] | tuple[Any, ...]]
    variants: tuple[Variant, ...]
    note: str = ""


@dataclass(frozen=True)
class Notation:
    """An input: ``dtype`` is float, int or bool. Integers lie in ``low`` to ``high - 1``. ``name`` may be empty."""

    name: str
    dtype: str
    low: int
    high: int
    sizes: tuple[str, ...]

    def shape(self, variant: Variant) -> list[int]:
        """Return the shape at ``variant``. Raises UserError for a size of 0, or a shape that no tensor has."""
        sizes = [size_of(word, variant) for word in self.sizes]
        if 0 in sizes:
            word = self.sizes[sizes.index(0)]
            raise UserError(f"{word} is 0 at batch {variant.batch}, size {variant.size}", where=OPTION,
                            remedy="give a larger --size=B,N")  # fmt: skip
        if problem := shape_problem(sizes):
            raise UserError(problem, where=OPTION, remedy="choose smaller sizes")
        return sizes

    def draw(self, variant: Variant, generator: torch.Generator) -> torch.Tensor:
        """Return a tensor for ``variant``: normal floats, integers of the range, or fair coins."""
        shape = self.shape(variant)
        if self.dtype == "float":
            return torch.randn(shape, generator=generator)
        integers = torch.randint(self.low, self.high, shape, generator=generator)
        return integers.to(torch.bool) if self.dtype == "bool" else integers


def parse(text: str) -> Notation:
    """Return the input that ``text`` describes. Raises UserError that names the part that is wrong."""
    match = _SPEC.fullmatch(text)
    if text.lstrip().startswith("{"):
        raise _wrong(text, "it is a dict", 'give each input by its name, as in --input="x=float b n"')
    if match is None:
        raise _wrong(text, "it is empty" if not text.strip() else "it is no dtype with sizes")
    dtype, sizes = match["dtype"], tuple(match["sizes"].split())
    low, high = _range(text, dtype)
    for word in sizes:
        if _SIZE.fullmatch(word) is None:
            remedy = 'write b (batch), n (size), n/8, n*2 or a number above 0, as in --input="float b 3 n n"'
            raise _wrong(text, f"{abbreviated(word)} is no size", remedy)
    return Notation(match["name"] or "", dtype.rstrip("-.0123456789"), low, high, sizes)


def _range(text: str, dtype: str) -> tuple[int, int]:
    if dtype in ("float", "bool"):
        return 0, 2
    if (match := _INTEGERS.fullmatch(dtype)) is not None:
        low, high = (0, int(match["count"])) if match["count"] else (int(match["low"]), int(match["high"]) + 1)
        if low >= high:
            raise _wrong(text, f"the range of {abbreviated(dtype)} is empty")
        return low, high
    if dtype.startswith("int"):
        remedy = 'write int1000 for 0 to 999, or int5..99 for 5 to 99, as in --input="int1000 b n"'
        raise _wrong(text, f"{abbreviated(dtype)} has no range", remedy)
    raise _wrong(text, f"{abbreviated(dtype)} is no dtype")


def _wrong(text: str, fault: str, remedy: str = RIGHT) -> UserError:
    return UserError(f"{abbreviated(text)}: {fault}", where=OPTION, remedy=remedy)


def size_of(word: str, variant: Variant) -> int:
    """Return the size that ``b``, ``n``, ``n/8``, ``n*2`` or a number means for ``variant``."""
    match = _SIZE.fullmatch(word)
    assert match is not None
    if match["letter"] is None:
        return int(word)
    value = variant.batch if match["letter"] == "b" else variant.size
    factor = int(match["factor"] or 1)
    return value // factor if match["sign"] == "/" else value * factor


def parse_all(texts: Sequence[str]) -> tuple[Notation, ...]:
    """Return the inputs of a forward call. Raises UserError if only some have names, or two have the same."""
    notations = tuple(map(parse, texts))
    names = [notation.name for notation in notations]
    if any(names) and not all(names):
        raise UserError(f"{abbreviated(texts[names.index('')])} has no name, and others have one", where=OPTION,
                        remedy='name every input, as in --input="input_ids=int1000 b n", or none')  # fmt: skip
    if any(names) and len(set(names)) < len(names):
        raise UserError("two inputs have the same name", where=OPTION, remedy="give each argument once")
    return notations


def check_memory(inputs: Sequence[Notation], variant: Variant) -> None:
    """Raise UserError if the inputs are too large for this machine (:data:`MAX_SHARE`)."""
    total_bytes = sum(math.prod(notation.shape(variant)) * ITEM_BYTES[notation.dtype] for notation in inputs)
    most = machine_bytes() // MAX_SHARE
    if total_bytes > most:
        what = f"the inputs take {total_bytes / 2**30:,.1f} GiB at batch {variant.batch}, size {variant.size}"
        raise UserError(f"{what}; at most {most / 2**30:,.1f} GiB fit this machine", where=OPTION,
                        remedy="choose smaller sizes")  # fmt: skip


def tensors(
    inputs: Sequence[Notation], _model: torch.nn.Module, variant: Variant
) -> dict[str, Any] | tuple[Any, ...]:
    """Return the tensors of ``variant``, the same every time and for any model: by name if the inputs have names."""
    generator = torch.Generator().manual_seed(variant.batch * 100003 + variant.size)
    values = [notation.draw(variant, generator) for notation in inputs]
    names = [notation.name for notation in inputs]
    return dict(zip(names, values, strict=True)) if names[0] else tuple(values)
