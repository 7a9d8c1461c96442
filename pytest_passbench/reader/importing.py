"""Load the modules of a pass directory. This executes candidate code, so only a reader does it.

Code in the folder sees it as the package ``pass_dir``, whatever its name on disk. Its file ``helper.py`` can be
imported as ``pass_dir.helper``, ``.helper``, ``<folder name>.helper`` and ``helper``. All four give the same module,
loaded once. Byte code in the folder is never used.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, cast

from pytest_passbench.reader import registrations
from pytest_passbench.reader.registrations import Registration
from pytest_passbench.reader.trace import as_function, place_in
from pytest_passbench.rewrite.passes import PassError

PACKAGE = "pass_dir"
REGISTER = "register_replacement"
_NEVER_SHADOWED = frozenset({"torch", "triton", "numpy", "pytest_passbench"}) | sys.stdlib_module_names


@dataclass(frozen=True, eq=False)
class LoadedPass:
    """A loaded pass with a pattern. It equals only itself.

    ``wrapper`` is the kernel wrapper that the first ``replacement_func()`` returned.
    """

    name: str
    pattern: Callable[..., Any]
    replacement_args: Callable[..., Any]
    replacement_func: Callable[[], Callable[..., Any]]
    wrapper: Callable[..., Any]
    file: Path


@dataclass(frozen=True, eq=False)
class LoadedRegionPass:
    """A loaded region pass. ``supported`` returns True for a node that the pass takes."""

    name: str
    supported: Callable[..., Any]
    replacement_func: Callable[[], Callable[..., Any]]
    wrapper: Callable[..., Any]
    file: Path


@dataclass(frozen=True, eq=False)
class LoadedInductorPass:
    """A loaded pass of TorchInductor's own form. Its wrapper takes a registration's number, and its arguments."""

    name: str
    registrations: tuple[Registration, ...]
    file: Path

    def wrapper(self, number: int, *values: Any) -> Any:
        """Call the replacement of a registration."""
        return self.registrations[number].replace(*values)

    def replacement_func(self) -> Callable[..., Any]:
        """Return the wrapper."""
        return self.wrapper


AnyLoaded = LoadedPass | LoadedRegionPass | LoadedInductorPass


class _SourceOnlyLoader(importlib.machinery.SourceFileLoader):
    """A loader that compiles the source, and neither reads nor writes byte code."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes: they are the author's matter
            code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class _Same(importlib.abc.Loader):
    """A loader that gives a module of the folder a second name."""

    def __init__(self, real: str) -> None:
        self._real, self._spec = real, None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:  # noqa: ARG002
        module = importlib.import_module(self._real)
        self._spec = module.__spec__  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec


class _Finder(importlib.abc.MetaPathFinder):
    """A finder of the folder's modules under all their names. It comes before any other finder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._aliases = {folder.name} - _NEVER_SHADOWED - {PACKAGE}

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head == PACKAGE:
            spec = self._spec(fullname, rest)
            if spec is None:  # other finders would look for byte code and native modules in the folder
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
            return spec
        if head in self._aliases and self._has(rest):
            return importlib.util.spec_from_loader(fullname, _Same(".".join(filter(None, [PACKAGE, rest]))))
        if head not in _NEVER_SHADOWED and self._has(fullname):
            return importlib.util.spec_from_loader(fullname, _Same(f"{PACKAGE}.{fullname}"))
        return None

    def _has(self, dotted: str) -> bool:
        """Return True if the folder has this module, or a sub-folder of modules."""
        spec = self._spec(dotted, dotted)
        if spec is None or spec.loader is not None:
            return spec is not None
        return any(any(Path(each).glob("*.py")) for each in spec.submodule_search_locations or ())

    def _spec(self, fullname: str, dotted: str) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of the package's module ``dotted``, or None if the folder does not have it.

        An empty name is that of the package itself.
        """
        if dotted:
            where = self.folder.joinpath(*dotted.split(".")[:-1])
            return importlib.machinery.FileFinder(str(where), (_SourceOnlyLoader, [".py"])).find_spec(fullname)
        file = self.folder / "__init__.py"
        if file.is_file():
            return importlib.util.spec_from_loader(fullname, _SourceOnlyLoader(fullname, str(file)))
        spec = importlib.machinery.ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [str(self.folder)]
        return spec


def load_passes(folder: Path, stems: Iterable[str]) -> list[AnyLoaded]:
    """Import the passes of a directory and return them in order.

    Modules of a directory that was loaded earlier are removed first. So two directories never see each other's
    helpers. Raises PassError, with file and line, for a pass that cannot be imported or lacks a function.
    """
    for old in [f for f in sys.meta_path if isinstance(f, _Finder)]:
        sys.meta_path.remove(old)
        _forget(old)
    finder = _Finder(Path(folder).resolve())
    sys.meta_path.insert(0, finder)
    return [_load(finder.folder, stem) for stem in stems]


def _forget(finder: _Finder) -> None:
    inside = str(finder.folder)
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if name.partition(".")[0] == PACKAGE or (spec and str(spec.origin or "").startswith(inside + "/")):
            del sys.modules[name]


def _load(folder: Path, stem: str) -> AnyLoaded:
    file = folder / f"{stem}.py"
    registrations.take()
    try:
        module = importlib.import_module(f"{PACKAGE}.{stem}")
    except SyntaxError as error:
        raise PassError(stem, f"syntax error: {error.msg} ({error.filename}:{error.lineno})") from error
    except (Exception, SystemExit) as error:
        message = f"import failed: {type(error).__name__}: {error}{_line(error, folder)}"
        raise PassError(stem, message) from error
    registered = registrations.take()
    if registered and not hasattr(module, "pattern") and not hasattr(module, "supported"):
        return LoadedInductorPass(stem, registered, file)
    is_region = hasattr(module, "supported")
    if is_region and hasattr(module, "pattern"):
        raise PassError(stem, f"{file.name} defines both 'pattern' and 'supported'; a pass has one of them")
    names = ("supported",) if is_region else ("pattern", "replacement_args")
    functions = [_callable(module, stem, name, file) for name in (*names, "replacement_func")]
    kind: Any = LoadedRegionPass if is_region else LoadedPass
    loaded: AnyLoaded = kind(stem, *functions, _wrapper(stem, functions[-1], file), file)
    return loaded


def _callable(module: ModuleType, stem: str, name: str, file: Path) -> Callable[..., Any]:
    function = as_function(getattr(module, name, None))
    if not callable(function) and hasattr(module, REGISTER):
        raise PassError(stem, f"importing {file.name} never calls {REGISTER}; call it at the top level of the module")
    if not callable(function):
        raise PassError(stem, f"{file.name} defines no function {name!r}")
    return cast("Callable[..., Any]", function)


def _wrapper(stem: str, replacement_func: Callable[[], Any], file: Path) -> Callable[..., Any]:
    try:
        function = replacement_func()
    except (Exception, SystemExit) as error:
        message = f"replacement_func() failed: {type(error).__name__}: {error}{_line(error, file.parent)}"
        raise PassError(stem, message) from error
    if not callable(function):
        raise PassError(stem, f"replacement_func() returns {type(function).__name__}, not a callable ({file.name})")
    wrapper: Callable[..., Any] = function
    return wrapper


def _line(error: BaseException, folder: Path) -> str:
    """Return `` (file:line)`` of the deepest frame in the folder, or "" if no frame is in it."""
    file, line = place_in(error, lambda path: path.is_relative_to(folder))
    return f" ({file}:{line})" if file else ""
