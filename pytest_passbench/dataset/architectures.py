"""The architectures that the data set is drawn from: those of the suite's tables, and those of whole libraries."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import runpy
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.grouping import grouped
from pytest_passbench.dataset.sources import small, timm, transformers, x_transformers
from pytest_passbench.forge import sources as tables
from pytest_passbench.forge.models import ModelCase
from pytest_passbench.forge.sources.rows import Library

FULLY_CUT = 1
"""How many architectures of a family are cut in every way. Later ones have few parts that these lack."""
WHOLE_AFTER_CUT = 4
"""How many architectures of whole graphs alone follow each one that is cut. One takes about a tenth of its time."""


@dataclass(frozen=True)
class Architecture:
    """A case with its library, the library's licence, and the family that it is split by.

    ``parts`` is False if its whole graphs alone become rows, at one size and in float32. ``position`` is its
    place in the library's list.
    """

    case: ModelCase
    library: str
    license: str
    family: str
    parts: bool = True
    position: int = 0

    @property
    def rank(self) -> tuple[int, str]:
        """The key of the order of architectures. If several have a text, the first by rank gives its row."""
        return self.position, self.case.name

    @property
    def version(self) -> str:
        """The version of the library; empty if it is not installed as a package."""
        return _version(self.library)


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


Cases = Callable[[], Iterable[tuple[str, ModelCase]]]
#: Libraries as a whole: name, licence, and a family and a case each.
WIDE: tuple[tuple[str, str, Cases], ...] = (
    (transformers.LIBRARY, transformers.LICENSE, transformers.cases),
    (timm.LIBRARY, timm.LICENSE, timm.cases),
    (x_transformers.LIBRARY, x_transformers.LICENSE, x_transformers.cases),
    *small.LIBRARIES,
)


def libraries(names: Collection[str] = (), also: Iterable[Path] = ()) -> dict[str, list[Architecture]]:
    """Return the architectures of these libraries, of all that are installed if none is named.

    Different families take turns. ``also`` are a user's own files (:func:`from_file`). Raises UserError for
    a library that is not installed or cannot be imported, and for a file that has no architectures.
    """

    def is_left_out(library: str) -> bool:
        return bool(names) and library not in names

    from_files = (architecture for path in also for architecture in from_file(path))
    groups = grouped(from_files, lambda architecture: architecture.library)
    suite: list[tuple[str, str, Cases]] = [
        (source.name, source.license, functools.partial(_with_families, source)) for source in tables.SOURCES
    ]
    for library, license_name, cases in [*suite, *WIDE]:
        listed = {architecture.case.name for architecture in groups.get(library, [])}
        for family, case in [] if is_left_out(library) else _listed(library, cases):
            if case.name not in listed:
                groups.setdefault(library, []).append(Architecture(case, library, license_name, family))
    missing = sorted(set(names) - set(groups))
    if missing:
        raise UserError(f"{', '.join(missing)}: no such library is installed here", where="--sources",
                        remedy=f"name some of {', '.join(sorted(libraries(also=also)))}")  # fmt: skip
    return {
        library: [
            dataclasses.replace(item, position=position)
            for position, item in enumerate(_mixed(_first_cut(_families_in_turn(group))))
        ]
        for library, group in groups.items()
        if not is_left_out(library)
    }


def _with_families(source: Library) -> Iterator[tuple[str, ModelCase]]:
    return ((family_of(case.name), case) for case in source.cases())


def _listed(library: str, cases: Cases) -> list[tuple[str, ModelCase]]:
    """Return a library's cases. Raises UserError if the library is installed and cannot be imported."""
    try:
        return list(cases())
    except Exception as error:  # of the library's own, such as a torchvision that was built for another torch
        remedy = "install builds that fit this torch; torchvision may be removed: pip uninstall torchvision"
        what = f"cannot be imported: {type(error).__name__}: {line(str(error))}"
        raise UserError(what, where=library, remedy=remedy) from error


def family_of(name: str) -> str:
    """Return the library, and the model's name up to its first digit or separator."""
    library, _, model = name.partition("/")
    head = "".join(itertools.takewhile(str.isalpha, model.lower()))
    return f"{library}/{head or model}"


def _families_in_turn(items: Iterable[Architecture]) -> Iterator[Architecture]:
    """Yield the items so that families take turns."""
    for batch in itertools.zip_longest(*grouped(items, lambda item: item.family).values()):
        yield from (item for item in batch if item is not None)


def _first_cut(items: Iterable[Architecture]) -> Iterator[Architecture]:
    """Yield the items. ``parts`` becomes False after the first :data:`FULLY_CUT` of a family."""
    numbers: Counter[str] = Counter()
    for item in items:
        numbers[item.family] += 1
        yield dataclasses.replace(item, parts=numbers[item.family] <= FULLY_CUT)


def _mixed(items: Iterable[Architecture]) -> Iterator[Architecture]:
    """Yield the items, :data:`WHOLE_AFTER_CUT` of those without parts after each that has parts."""
    listed = list(items)
    whole = (item for item in listed if not item.parts)
    for item in listed:
        if item.parts:
            yield item
            yield from itertools.islice(whole, WHOLE_AFTER_CUT)
    yield from whole


def from_file(path: Path) -> list[Architecture]:
    """Return the architectures of a Python file with ``LIBRARY``, ``LICENSE`` and ``cases()``.

    ``cases()`` yields pairs of a family and a :class:`~pytest_passbench.forge.models.ModelCase`. The file is the
    user's own and is executed. Raises UserError if that fails, or if a name is missing.
    """
    try:
        names = runpy.run_path(str(path))
        missing = [name for name in ("LIBRARY", "LICENSE", "cases") if name not in names]
        if not missing:
            library, license_name = names["LIBRARY"], names["LICENSE"]
            return [Architecture(case, library, license_name, family) for family, case in names["cases"]()]
    except Exception as error:  # the user's own code
        raise UserError(f"cannot be run: {type(error).__name__}: {line(str(error))}", where=path,
                        remedy="correct the file given by --also") from error  # fmt: skip
    raise UserError(f"defines no {', no '.join(missing)}", where=path,
                    remedy="define LIBRARY, LICENSE and cases(): see docs/dataset.md")  # fmt: skip
