"""A small reader of ELF64 libraries, for the check of compiled kernels.

It reads the parts that the dynamic loader reads: program headers, the dynamic table, and the tables that it points
to. Section headers serve for names in messages only. Each number is checked against the file before it is used. So
any file gives an answer or :class:`Malformed`. The rules for a kernel are in
:mod:`~pytest_passbench.judge.builder.check`. Source: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

MACHINES = {"x86_64": 62, "aarch64": 183}
LOAD, DYNAMIC, TLS, STACK, RELRO = 1, 2, 7, 0x6474E551, 0x6474E552
EXECUTE, WRITE = 1, 2
NEEDED, HASH, STRTAB, SYMTAB, RELA, RELASZ, STRSZ, JMPREL, PLTRELSZ = 1, 4, 5, 6, 7, 8, 10, 23, 2
_MAX_HEADERS, _MAX_ENTRIES, _MAX_RECORDS, _MAX_NAME_BYTES = 32, 256, 200_000, 4096


class Malformed(Exception):
    """The file is not a library that can be read."""


@dataclass(frozen=True)
class Segment:
    """A program header."""

    kind: int
    flags: int
    offset: int
    address: int
    size: int  # bytes in the file
    memory: int  # bytes in memory

    @property
    def end(self) -> int:
        return self.address + self.memory


@dataclass(frozen=True)
class Symbol:
    """An entry of a symbol table. ``kind`` and ``section`` are as in the file; section 0 is another library."""

    name: str
    kind: int
    section: int
    address: int
    size: int


@dataclass(frozen=True)
class Relocation:
    """A place that the loader fills in."""

    address: int
    kind: int
    symbol: int


class ElfLibrary:
    """A shared library, from its bytes. Methods and attributes raise :class:`Malformed` if a part can't be read."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        ident, kind, self.machine = self._unpack("<16sHH", 0)
        if ident[:7] != b"\x7fELF\x02\x01\x01" or kind != 3:
            raise Malformed("no 64-bit little-endian shared library")
        (headers,) = self._unpack("<Q", 32)
        size, count = self._unpack("<HH", 54)
        if size != 56 or count > _MAX_HEADERS:
            raise Malformed("unusual program headers")
        self.segments: list[Segment] = []
        for index in range(count):
            kind, flags, offset, address, _, size, memory, _ = self._unpack("<IIQQQQQQ", headers + index * 56)
            if kind == LOAD and (size > memory or offset + size > len(data) or address + memory >= 1 << 40):
                raise Malformed("a segment lies outside of the file")
            self.segments.append(Segment(kind, flags, offset, address, size, memory))

    def _unpack(self, form: str, at: int) -> tuple[Any, ...]:
        if not 0 <= at <= len(self._data) - struct.calcsize(form):
            raise Malformed("a table lies outside of the file")
        return struct.unpack_from(form, self._data, at)

    def of_kind(self, kind: int) -> list[Segment]:
        """Return the segments of one kind, in the order of the file."""
        return [segment for segment in self.segments if segment.kind == kind]

    def _at(self, address: int, size: int) -> int:
        """Return the place in the file of ``size`` bytes at ``address`` in memory."""
        for segment in self.of_kind(LOAD):
            if segment.address <= address and address + size <= segment.address + segment.size:
                return segment.offset + address - segment.address
        raise Malformed("a table lies outside of the file")

    @cached_property
    def dynamic(self) -> list[tuple[int, int]]:
        """The dynamic table: tags and values, as the loader finds them in memory."""
        tables = self.of_kind(DYNAMIC)
        if len(tables) != 1:
            raise Malformed("not one dynamic table")
        entries: list[tuple[int, int]] = []
        for index in range(_MAX_ENTRIES):
            at = self._at(tables[0].address + 16 * index, 16)
            tag, value = self._unpack("<QQ", at)
            if tag == 0:
                return entries
            entries.append((tag, value))
        raise Malformed("a dynamic table without end")

    def _value(self, tag: int) -> int | None:
        values = [value for key, value in self.dynamic if key == tag]
        if len(values) > 1:
            raise Malformed("an entry twice in the dynamic table")
        return values[0] if values else None

    def _string(self, at: int) -> str:
        start, size = self._value(STRTAB), self._value(STRSZ)
        if start is None or size is None or at >= size:
            raise Malformed("a name lies outside of its table")
        first = self._at(start, size)
        end = self._data.find(b"\0", first + at, min(first + size, first + at + _MAX_NAME_BYTES))
        if end < 0:
            raise Malformed("a name without end")
        return self._data[first + at : end].decode("ascii", "backslashreplace")

    @cached_property
    def needed_libraries(self) -> list[str]:
        """Names of the libraries that this one is linked with."""
        return [self._string(value) for tag, value in self.dynamic if tag == NEEDED]

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The symbols that the loader can see."""
        table, hashes = self._value(SYMTAB), self._value(HASH)
        if table is None or hashes is None:
            raise Malformed("no symbols")
        _, count = self._unpack("<II", self._at(hashes, 8))
        if count > _MAX_RECORDS:
            raise Malformed("too many symbols")
        first = self._at(table, 24 * count)
        result: list[Symbol] = []
        for at in range(first, first + 24 * count, 24):
            name, info, _, section, address, size = self._unpack("<IBBHQQ", at)
            result.append(Symbol(self._string(name), info & 15, section, address, size))
        return result

    @cached_property
    def relocations(self) -> list[Relocation]:
        """The places that the loader fills in."""
        return [*self._table(RELA, RELASZ), *self._table(JMPREL, PLTRELSZ)]

    def _table(self, start: int, size: int) -> Iterator[Relocation]:
        address, length = self._value(start), self._value(size)
        if address is None or not length:
            return
        if length % 24 or length > 24 * _MAX_RECORDS:
            raise Malformed("an unusual table of relocations")
        first = self._at(address, length)
        for at in range(first, first + length, 24):
            place, info, _ = self._unpack("<QQQ", at)
            yield Relocation(place, info & 0xFFFFFFFF, info >> 32)

    def names_within(self, start: int, end: int) -> list[str]:
        """Return names in [start, end) from the linker's own symbol table; an empty list if it can't be read."""
        try:
            return [name for name, at in self._linker_symbols() if start <= at < end]
        except Malformed:
            return []

    def _linker_symbols(self) -> Iterator[tuple[str, int]]:
        sections, size, count = *self._unpack("<Q", 40), *self._unpack("<HH", 58)
        heads = [self._unpack("<IIQQQQII", sections + size * index) for index in range(min(count, 100))]
        for _, kind, _, _, offset, length, link, _ in heads:
            if kind != 2 or link >= len(heads):
                continue
            for at in range(offset, offset + min(length, 24 * _MAX_RECORDS), 24):
                name, info, _, _, address, _ = self._unpack("<IBBHQQ", at)
                start = heads[link][4] + name
                if info & 15 in (1, 6) and (end := self._data.find(b"\0", start, start + _MAX_NAME_BYTES)) > 0:
                    yield self._data[start:end].decode("ascii", "backslashreplace"), address
