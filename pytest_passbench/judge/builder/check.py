"""The check that a compiled library is a kernel: it keeps no state, runs nothing at load, and calls listed functions.

Functions of other libraries that it may call are those for arithmetic, memory, OpenMP, and the C++ runtime's own.
Printing is not listed, since the measured process has nothing to print to; but it is a mistake, not a violation.
Functions that keep a state between calls (``rand``, ``omp_set_num_threads``) are a violation.

The check reads what the dynamic loader reads: program headers, the dynamic table, and the tables that it points to.
Section headers serve for names in messages only. Each number is checked against the file before it is used.
Sources: System V ABI, chapters 4 and 5 (segments, dynamic table, symbols), and its processor supplements for x86-64
and AArch64 (relocations).
"""

from __future__ import annotations

import mmap
import platform
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

from pytest_passbench.core.rejected import kernel_refused
from pytest_passbench.judge.builder.compile_errors import CompileFailed

_MATHS = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp10 exp2 expm1 fabs fdim floor
    fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan
    nearbyint nextafter nexttoward pow remainder remquo rint round roundeven scalbln scalbn sin sincos sinh sqrt tan
    tanh tgamma trunc j0 j1 jn y0 y1 yn cabs cacos cacosh carg casin casinh catan catanh ccos ccosh cexp cimag clog
    conj cpow cproj creal csin csinh csqrt ctan ctanh fpclassify isinf isnan finite signbit drem gamma significand"""
_MATH = re.compile(rf"(__)?({'|'.join(_MATHS.split())})(f|l|f16|f32|f64|f128)?(_finite)?")
_VECTOR_MATH = re.compile(r"_ZGV[a-zA-Z]\w*")  # libmvec
_PLAIN_WORDS = """
    memcpy memmove memset memcmp memchr bcmp strlen strcmp strncmp strchr mempcpy
    __memcpy_chk __memmove_chk __memset_chk __mempcpy_chk
    malloc free calloc realloc aligned_alloc posix_memalign memalign abs labs llabs div ldiv lldiv qsort bsearch
    abort __assert_fail __stack_chk_fail __stack_chk_guard __errno_location __libc_single_threaded
    _Unwind_Resume __gxx_personality_v0 __fpclassify __fpclassifyf __signbit __signbitf __isnan __isnanf __isinf
    __isinff __finite __finitef _dl_find_object"""
_PLAIN = frozenset(_PLAIN_WORDS.split())
_RUNTIME = re.compile(
    r"""_Zn[wa]m(RKSt9nothrow_t)?  | _Zn[wa]mSt11align_val_t(RKSt9nothrow_t)?
      | _Zd[la]Pv(m|RKSt9nothrow_t)? | _Zd[la]Pvm?St11align_val_t(RKSt9nothrow_t)? | _ZSt7nothrow
      | __cxa_(allocate_exception|free_exception|init_primary_exception|throw|rethrow|begin_catch|end_catch
              |get_exception_ptr|bad_cast|bad_typeid|throw_bad_array_new_length|throw_bad_array_length|pure_virtual
              |deleted_virtual|call_unexpected|call_terminate)
      | __dynamic_cast | _ZSt9terminatev | _ZSt\d+__throw_\w+ | _ZSt21__glibcxx_assert_failPKciS0_S0_
      | _ZT[VIS]N10__cxxabiv1\w+ | _ZT[VIS](St|NSt|[a-z]$|P[a-z]$|PK[a-z]$)\w*
      | _ZNK?St\d+(exception|bad_alloc|bad_cast|bad_array_new_length|bad_function_call|logic_error|runtime_error
                  |invalid_argument|out_of_range|length_error|domain_error|range_error|overflow_error
                  |underflow_error|bad_variant_access|bad_optional_access)\w*
      | _ZSt1[89]_Rb_tree_\w+ | _ZSt2[0-9]_Rb_tree_\w+ | _ZNK?St8__detail\w+
      | _ZNK?St7__cxx1112basic_stringIc\w+ | _ZNSaIcE[CD]\dE\w+ | _ZSt11_Hash_bytesPKvmm""",
    re.X,
)
_OPENMP = re.compile(
    r"""GOMP_(parallel|loop|barrier|critical_(start|end)|single|sections|section|atomic|ordered|task|doacross
          |cancel|scope|workshare_task|masked|error)\w*
      | omp_get_(thread_num|num_threads|max_threads|num_procs|thread_limit|dynamic|level|active_level
          |max_active_levels|ancestor_thread_num|team_size|cancellation|num_teams|team_num|num_places|proc_bind)
      | omp_in_(parallel|final)
      | __kmpc_(fork_call|fork_call_if|for_static_(init|fini)_?\w*|dispatch_\w+|barrier|global_thread_num
          |push_num_threads|push_proc_bind|serialized_parallel|end_serialized_parallel|single|end_single
          |master|end_master|masked
          |end_masked|reduce|reduce_nowait|end_reduce|end_reduce_nowait|critical|critical_with_hint|end_critical|ordered
          |end_ordered
          |atomic_\w+|omp_task\w*|taskgroup|end_taskgroup|taskloop\w*|flush|bound_\w+|ok_to_fork|in_parallel)""",
    re.X,
)
_PRINTING = re.compile(  # functions that only write to the terminal
    r"(__)?(f|v|vf)?printf(_chk)?|f?puts|f?putc|putchar|fflush|fwrite|perror|stdout|stderr|_ZSt4(cout|cerr)"
)
_LIBRARIES = re.compile(  # that a kernel may be linked with
    r"lib(c|m|mvec|gomp|omp|omp5|iomp5|stdc\+\+|c\+\+|c\+\+abi|gcc_s|pthread|atomic)\.so(\.\d+)*"
    r"|ld-linux-(x86-64|aarch64)\.so\.\d"
)
MACHINES = {"x86_64": 62, "aarch64": 183}
LOAD, DYNAMIC, TLS, STACK, RELRO = 1, 2, 7, 0x6474E551, 0x6474E552
EXECUTE, WRITE = 1, 2
NEEDED, HASH, STRTAB, SYMTAB, RELA, RELASZ, STRSZ, JMPREL, PLTRELSZ = 1, 4, 5, 6, 7, 8, 10, 23, 2
_MAX_HEADERS, _MAX_ENTRIES, _MAX_RECORDS, _MAX_NAME_BYTES = 32, 256, 200_000, 4096
_NOTE, _PHDR, _EH_FRAME, _PROPERTY = 4, 6, 0x6474E550, 0x6474E553
_SEGMENTS = {LOAD, DYNAMIC, STACK, RELRO, _NOTE, _PHDR, _EH_FRAME, _PROPERTY}
_FUNCTION, _IFUNC, _THREAD = 2, 10, 6
# Allowed dynamic entries: needed libraries, SONAME, flags, and tables of symbols, strings, versions and relocations.
_TABLES = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 16, 20, 23, 24, 30}
_FLAGS = {30: 0x0A, 0x6FFFFFFB: 0x01}  # bind at load. No flag for text relocations, or for static thread storage
_MORE_TABLES = {0x6FFFFFF0, 0x6FFFFFF9, 0x6FFFFFFB, 0x6FFFFFFE, 0x6FFFFFFF, 0x70000001, 0x70000003, 0x70000005}
_AT_LOAD = {12: "DT_INIT", 13: "DT_FINI", 25: "DT_INIT_ARRAY", 26: "DT_FINI_ARRAY", 32: "DT_PREINIT_ARRAY"}
_AT_LOAD_SIZES = {27, 28, 33}
# Relocations by machine: addresses in the library and of named symbols; no copies, no thread storage, no ifuncs.
_RELOCATIONS = {62: {1, 6, 7, 8}, 183: {257, 1025, 1026, 1027}}
_INSTEAD = "a kernel computes on its arguments; make tables const, and pass memory as an argument"
_OF_THE_LINKER = ("_DYNAMIC", "_GLOBAL_OFFSET", "_ZGV")


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
            raise Malformed("not a 64-bit little-endian shared library")
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
            raise Malformed("an entry stands twice in the dynamic table")
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
            name, info, _, section, _, _ = self._unpack("<IBBHQQ", at)
            result.append(Symbol(self._string(name), info & 15, section))
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


def may_call(name: str) -> bool:
    """Return True if a kernel may use the symbol ``name`` of another library."""
    return name in _PLAIN or any(pattern.fullmatch(name) for pattern in (_MATH, _RUNTIME, _OPENMP, _VECTOR_MATH))


def check(data: bytes) -> frozenset[str]:
    """Return the names of exported functions. Raises Rejected, or CompileFailed if its only fault is printing."""
    try:
        library = ElfLibrary(data)
        _segments(library)
        _storage(library)
        _run_at_load(library)
        printing = _dependencies(library)
        _relocations(library)
    except Malformed as error:
        raise kernel_refused("native-library", f"the built library can't be read: {error}") from None
    if printing:  # last, since this is only a mistake
        raise CompileFailed(
            f"the kernel prints ({readable(printing[0])}): a measured process has nothing to print to;"
            " print from the wrapper, or with --passbench-trusted"
        )
    return frozenset(s.name for s in library.symbols if s.section and s.kind == _FUNCTION)


def _segments(library: ElfLibrary) -> None:
    if library.machine != MACHINES.get(platform.machine()):
        raise Malformed("built for another machine")
    if library.of_kind(TLS):
        raise kernel_refused("native-state", f"the kernel keeps storage between calls (thread_local): {_INSTEAD}")
    if {segment.kind for segment in library.segments} - _SEGMENTS:
        raise kernel_refused("native-library", "the built library has segments that no kernel has")
    loads = library.of_kind(LOAD)
    for before, after in pairwise(loads):
        if _down(after.address) < _up(before.end):
            raise Malformed("segments overlap")
    if any(segment.flags & WRITE and segment.flags & EXECUTE for segment in loads):
        raise kernel_refused("native-library", "the built library has memory that is both writable and executable")
    stacks = library.of_kind(STACK)
    if len(stacks) != 1 or stacks[0].flags & EXECUTE:
        raise kernel_refused("native-library", "the built library wants an executable stack")


def _run_at_load(library: ElfLibrary) -> None:
    for tag, value in library.dynamic:
        if tag in _AT_LOAD or tag in _AT_LOAD_SIZES:
            raise kernel_refused(
                "native-load",
                "the kernel runs code when it is loaded (a constructor or destructor, or a static object that is made"
                " at run time): compute in the function, or make the object constexpr",
            )
        if tag not in _TABLES | _MORE_TABLES or value & ~_FLAGS.get(tag, value):
            raise kernel_refused(
                "native-library", f"the built library has the dynamic entry {tag:#x}, which no kernel has"
            )


def _dependencies(library: ElfLibrary) -> list[str]:
    """Raise Rejected if the library uses libraries or functions that are not listed.

    If all such functions only print, return their names instead.
    """
    for name in library.needed_libraries:
        if not _LIBRARIES.fullmatch(name):
            raise kernel_refused("native-library", f"the kernel is linked with {name}")
    for symbol in library.symbols:
        if symbol.kind == _IFUNC:
            raise kernel_refused("native-load", f"{symbol.name} is chosen by a function that runs at load (ifunc)")
        if symbol.kind == _THREAD:
            raise kernel_refused("native-state", f"the kernel uses {symbol.name}, a thread's storage")
    refused = [s.name for s in library.symbols if not s.section and s.name and not may_call(s.name)]
    if not all(map(_PRINTING.fullmatch, refused)):
        others = f" (and {', '.join(map(readable, refused[1:4]))})" if refused[1:] else ""
        raise kernel_refused(
            "native-symbol",
            f"the kernel uses {readable(refused[0])}{others}:"
            " it may call functions for arithmetic, memory and OpenMP only",
        )
    return refused


def _storage(library: ElfLibrary) -> None:
    """Raise Rejected if memory stays writable once the library is loaded."""
    relro = library.of_kind(RELRO)
    for load in library.of_kind(LOAD):
        if load.flags & WRITE and not (len(relro) == 1 and _covers(relro[0], load)):
            sealed = relro[0].end if relro else load.address
            names = [name for name in library.names_within(sealed, 1 << 40) if not name.startswith(_OF_THE_LINKER)]
            examples = f", {', '.join(map(readable, names[:3]))}" if names else ""
            raise kernel_refused(
                "native-state",
                f"the kernel keeps storage between calls ({load.end - sealed} bytes{examples}): {_INSTEAD}",
            )


def _covers(relro: Segment, load: Segment) -> bool:
    """Return True if the loader makes the whole of ``load`` read-only again."""
    return _down(relro.address) <= _down(load.address) and _up(load.end) <= _down(relro.end)


def _relocations(library: ElfLibrary) -> None:
    count, allowed = len(library.symbols), _RELOCATIONS[library.machine]
    writable = [segment for segment in library.of_kind(LOAD) if segment.flags & WRITE]
    for relocation in library.relocations:
        inside = any(s.address <= relocation.address and relocation.address + 8 <= s.end for s in writable)
        if relocation.kind not in allowed or relocation.symbol >= count or not inside:
            raise kernel_refused("native-load", "the built library has a relocation that no kernel has (text, ifunc)")


def readable(name: str) -> str:
    """Return the readable part of a mangled C++ name, or the start of the name itself if it is not simple."""
    prefix = re.match(r"_ZG?V?Z*N?K?(St)?L?", name)
    parts, at = [], prefix.end() if prefix else len(name)
    while match := re.compile(r"(?:E|v|E[PKa-z]*E)?N?L?(\d{1,3})").match(name, at):
        parts.append(name[match.end() : match.end() + int(match[1])])
        at = match.end() + int(match[1])
    return "::".join(part for part in parts[:5] if not part.startswith("_GLOBAL")) or name[:120]


def _down(address: int) -> int:
    return address - address % mmap.PAGESIZE


def _up(address: int) -> int:
    return _down(address + mmap.PAGESIZE - 1)
