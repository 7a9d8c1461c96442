"""The architectures that the data set is drawn from: those of the suite's tables, and whole libraries beside them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata

from pytest_passbench.core.errors import UserError
from pytest_passbench.dataset.sources import timm, transformers, x_transformers
from pytest_passbench.forge import sources as tables
from pytest_passbench.forge.models import ModelCase


@dataclass(frozen=True)
class Architecture:
    """A case with its library, the library's licence, and the family that it is split by."""

    case: ModelCase
    library: str
    license: str
    family: str

    @property
    def version(self) -> str:
        """The version of the library; empty if it is not installed as a package."""
        try:
            return metadata.version(self.library)
        except metadata.PackageNotFoundError:
            return ""


Wide = Callable[[], Iterable[tuple[str, ModelCase]]]
#: Libraries as a whole: a family and a case each.
WIDE: tuple[tuple[str, str, Wide], ...] = (
    (transformers.LIBRARY, transformers.LICENSE, transformers.cases),
    (timm.LIBRARY, timm.LICENSE, timm.cases),
    (x_transformers.LIBRARY, x_transformers.LICENSE, x_transformers.cases),
)


def libraries() -> dict[str, list[Architecture]]:
    """Return the architectures of each library that is installed here, those of different families in turn."""
    groups: dict[str, list[Architecture]] = {}
    for source in tables.SOURCES:
        for case in source.cases():
            groups.setdefault(source.LIBRARY, []).append(
                Architecture(case, source.LIBRARY, source.LICENSE, family_of(case.name))
            )
    for library, license_name, wide in WIDE:
        listed = {architecture.case.name for architecture in groups.get(library, [])}
        for family, case in wide():
            if case.name not in listed:
                groups.setdefault(library, []).append(Architecture(case, library, license_name, family))
    return {library: list(in_turn(group, lambda item: item.family)) for library, group in groups.items()}


def family_of(name: str) -> str:
    """Return the library, and the model's name up to its first digit or separator."""
    library, _, model = name.partition("/")
    head = "".join(itertools.takewhile(str.isalpha, model.lower()))
    return f"{library}/{head or model}"


def in_turn(items: Sequence[Architecture], key: Callable[[Architecture], str]) -> Iterator[Architecture]:
    """Yield the items so that groups with the same key take turns."""
    groups: dict[str, list[Architecture]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    for batch in itertools.zip_longest(*groups.values()):
        yield from (item for item in batch if item is not None)


def pick(names: Sequence[str]) -> dict[str, list[Architecture]]:
    """Return the architectures of these libraries, all if none is named. Raises UserError for an unknown one."""
    groups = libraries()
    missing = sorted(set(names) - set(groups))
    if missing:
        raise UserError(f"{', '.join(missing)}: no such library is installed here", where="--sources",
                        remedy=f"name some of {', '.join(sorted(groups))}")  # fmt: skip
    return {name: group for name, group in groups.items() if not names or name in names}
