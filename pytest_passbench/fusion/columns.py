"""One computation at several sizes: its traces become one trace, in which a size holds its number in each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_passbench.fusion.ir import Buffer, Call, Trace, Unsupported, Value


class _ByColumns:
    """A number with a value for each trace: ``columns``, which decide equality, hash and text."""

    columns: tuple[Any, ...]

    def __hash__(self) -> int:
        return hash(self.columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.columns == other.columns

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __format__(self, _spec: str) -> str:
        return "|".join(map(repr, self.columns))


def _by_column(how: Callable[[int, int], Any], first: Size, other: int) -> list[Any]:
    return [how(a, b) for a, b in zip(first.columns, columns(other, len(first.columns)), strict=True)]


def _computed(how: Callable[[int, int], int]) -> Callable[[Size, int], int]:
    """Return a method that computes each column of a size with the other operand's."""
    return lambda first, other: size(_by_column(how, first, other))


def _compared(how: Callable[[int, int], bool]) -> Callable[[Size, Any], bool]:
    """Return a method that compares each column of a size with the other operand's."""
    return lambda first, other: _agreed(_by_column(how, first, other))


class Size(_ByColumns, int):
    """A size that differs between traces: ``columns`` has its value in each. As an int it is the first value.

    A comparison that the columns do not agree on raises Unsupported, and so does the conversion to a float. A size
    never equals 1 and is always above 1, even if a column is 1.
    """

    columns: tuple[int, ...]

    def __new__(cls, columns: Sequence[int]) -> Size:
        """Return a size by its columns."""
        size = super().__new__(cls, columns[0])
        size.columns = tuple(columns)
        return size

    def __bool__(self) -> bool:
        return _agreed(map(bool, self.columns))

    def __gt__(self, other: Any) -> bool:
        return (not isinstance(other, Size) and other == 1) or _compared(int.__gt__)(self, other)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __neg__(self) -> int:
        return 0 - self

    def _refuse(self, *_operands: object) -> Any:
        raise Unsupported("a size that differs, as a number")

    __float__ = __truediv__ = __rtruediv__ = _refuse


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(Size, _method, _computed(getattr(int, _method)))
for _method in ("__lt__", "__le__", "__ge__"):
    setattr(Size, _method, _compared(getattr(int, _method)))


class SizedNumber(_ByColumns, float):
    """A number that differs between traces: ``columns`` has its values. Arithmetic on it raises Unsupported."""

    columns: tuple[float, ...]

    def __new__(cls, columns: Sequence[float]) -> SizedNumber:
        """Return a number by its columns."""
        number = super().__new__(cls, columns[0])
        number.columns = tuple(columns)
        return number

    def _refuse(self, *_operands: object) -> Any:
        raise Unsupported("arithmetic on a number that differs")

    __float__ = __int__ = __neg__ = __add__ = __sub__ = __mul__ = __truediv__ = __lt__ = __gt__ = __le__ = __ge__ = (
        _refuse
    )
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _refuse


def columns(x: int, count: int) -> tuple[int, ...]:
    """Return a size's values in all columns."""
    return x.columns if isinstance(x, Size) else (x,) * count


def size(items: Sequence[int]) -> int:
    """Return a size by its columns: a plain number if they are equal."""
    return int(items[0]) if len(set(items)) == 1 else Size(items)


def _agreed(answers: Any) -> bool:
    (first, *rest) = answers
    if any(answer != first for answer in rest):
        raise Unsupported("sizes that need different loops")
    return bool(first)


def joined(traces: Sequence[Trace]) -> Trace:
    """Return one trace for traces that differ in numbers alone. Raises Unsupported if there is another difference."""
    join = _Join()
    inputs = [join.value(items) for items in zip(*(trace.inputs for trace in traces), strict=True)]
    results = [join.value(items) for items in zip(*(trace.results for trace in traces), strict=True)]
    return Trace(tuple(inputs), tuple(results), traces[0].single)


class _Join:
    def __init__(self) -> None:
        self.buffers: dict[Buffer, Buffer] = {}
        self.calls: dict[Call, Call] = {}

    def value(self, items: Sequence[Value]) -> Value:
        rest = [(x.sizes, x.strides, x.offset) for x in items]
        sizes, strides, offset = self.join(rest)
        return Value(self.buffer([x.buffer for x in items]), sizes, _expanded(sizes, strides), offset)

    def join(self, items: Sequence[Any]) -> Any:
        """Return one argument for the same argument of a call in all traces. Raises Unsupported if there is none."""
        first = items[0]
        if isinstance(first, Value):
            return self.value(items)
        if isinstance(first, (list, tuple)):
            if len({len(item) for item in items}) > 1:
                raise Unsupported("a rank that differs")
            return type(first)(self.join(parts) for parts in zip(*items, strict=True))
        if type(first) is int and all(type(item) is int for item in items):
            return size(items)
        if any(item != first for item in items) and all(type(item) is float for item in items):
            return SizedNumber(items)
        if any(item != first or type(item) is not type(first) for item in items):
            raise Unsupported("a number that differs")
        return first

    def buffer(self, items: Sequence[Buffer]) -> Buffer:
        first = items[0]
        if first not in self.buffers:
            if any((x.dtype, x.argument, x.place) != (first.dtype, first.argument, first.place) for x in items):
                raise Unsupported("a dtype that differs")
            sizes, strides = self.join([(x.sizes, x.strides) for x in items])
            place, name, strides = first.place, first.name, _expanded(sizes, strides)
            buffer = Buffer(first.number, first.dtype, sizes, strides, first.argument, None, place, name)
            self.buffers[first] = buffer
            if first.maker is not None:
                buffer.maker = self.call([x.maker for x in items])
        return self.buffers[first]

    def call(self, items: Sequence[Any]) -> Call:
        first = items[0]
        if first not in self.calls:
            if any(x is None or x.name != first.name for x in items):
                raise Unsupported("an operator that differs")
            names = list(first.arguments)
            call = self.calls[first] = Call(
                first.name, {n: self.join([x.arguments.get(n) for x in items]) for n in names}
            )
            call.results += [self.buffer(results) for results in zip(*(x.results for x in items), strict=True)]
            _refuse_broadcast(call)
        return self.calls[first]


def _expanded(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Return strides that are 0 for dimensions that are expanded in some columns, and of size 1 in the others."""

    def repeats(n: Size, step: int) -> bool:
        ends = zip(n.columns, columns(step, len(n.columns)), strict=True)
        return not any(stride for length, stride in ends if length != 1)

    dims = zip(sizes, strides, strict=True)
    return tuple(0 if isinstance(n, Size) and repeats(n, step) else step for n, step in dims)


def _refuse_broadcast(call: Call) -> None:
    """Raise Unsupported if an operand is broadcast in some columns, and is as large as the result in others."""
    if not call.results:
        return
    for value in call.values():
        for a, b in zip(reversed(value.sizes), reversed(call.results[0].sizes), strict=False):
            if isinstance(a, Size) and any(
                x == 1 and y != 1 for x, y in zip(a.columns, columns(b, len(a.columns)), strict=True)
            ):
                raise Unsupported("a broadcast at some sizes alone")
