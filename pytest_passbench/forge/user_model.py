"""A model that a user names: a Python file with a module and its inputs, or a configuration of a model hub.

Each failure is one message: the exception, and the line of the user's file that raised it.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated, line
from pytest_passbench.core.files import kind_of
from pytest_passbench.core.paths import PACKAGE
from pytest_passbench.core.plurals import counted
from pytest_passbench.forge import models
from pytest_passbench.forge.capture import dtype_name
from pytest_passbench.forge.models import ModelCase, Variant
from pytest_passbench.suite.limits import limited_memory

LIBRARIES = (str(PACKAGE), sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), "<")
"""Beginnings of file names of other code: this package, installed ones, and code without a file."""

EXAMPLE = "example_inputs"
"""The function of this name in the user's file returns the inputs: a tuple or dict of forward's arguments."""
DEFAULT_SIZE = Variant(1, 224)
TYPED = (
    'give an --input per argument of forward, such as --input="float b n 64" or --input="ids=int1000 b n"; '
    f"an argument that is a dict or a list needs {EXAMPLE}() in the file"
)
DEFINED = f"let {EXAMPLE}() return the arguments of forward: a tuple of tensors, or a dict by name"


def case_of_file(spec: str, inputs: Sequence[str], sizes: Sequence[Variant]) -> ModelCase:
    """Return the case of ``FILE.py:Name``: a module, or a class or function that makes one without arguments.

    Inputs come from the file's ``example_inputs()``, or from ``inputs`` in the notation of
    :mod:`pytest_passbench.forge.models` at each of ``sizes``. Raises UserError if the file, the name or the inputs
    are missing or wrong, or if the file cannot be imported.
    """
    path, name = _parts(spec)
    notations = models.parse_all(inputs)
    for variant in sizes or (DEFAULT_SIZE,):
        models.check_memory(notations, variant)
    module = _load(path)
    if not hasattr(module, name):
        raise UserError(f"has no {abbreviated(name)}", where=path, remedy=_proposal(module))
    if not inputs and not hasattr(module, EXAMPLE):
        raise UserError("does not define the model's inputs", where=path, remedy=TYPED)
    if sizes and not inputs:
        raise UserError(f"has no effect on {EXAMPLE}()", where="--size", remedy="give --input as well, or no --size")
    tensors = functools.partial(models.tensors, notations) if inputs else functools.partial(_examples, module, path)
    return ModelCase(
        name=f"{path.stem}/{name}",
        modality="own",
        build=functools.partial(_build, getattr(module, name), path),
        inputs=tensors,
        variants=(tuple(sizes) or (DEFAULT_SIZE,)) if inputs else (Variant(1, 0),),
        note=f"{path.name}:{name}",
    )


def _parts(spec: str) -> tuple[Path, str]:
    path, _, name = spec.rpartition(":")
    if not path or not name:
        remedy = f"write {line(name or path)}:NAME, with the name of a class or function of that file"
        is_file = (name or path).endswith(".py")
        raise UserError("names no class" if is_file else "names no file", where=spec.rstrip(":") or "the model",
                        remedy=remedy if is_file else "write FILE.py:NAME")  # fmt: skip
    if kind_of(Path(path)) != "file":
        raise UserError("no such file", where=path, remedy="write FILE.py:NAME")
    return Path(path), name


def _proposal(module: Any) -> str:
    proposals = [name for name, value in vars(module).items()
                 if name != EXAMPLE and getattr(value, "__module__", "") == module.__name__]  # fmt: skip
    return f"it has {line(', '.join(proposals))}" if proposals else "name a class, a function or module of that file"


def _load(path: Path) -> Any:
    name = f"passbench_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError("is no Python file", where=path, remedy="name a file that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.absolute()))  # for modules beside it, as if it were run as a script
    sys.modules[name] = module  # dataclasses and Dynamo look up a module by its name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's own code
        sys.modules.pop(name, None)
        raise user_fault("cannot be imported: ", error, path) from error
    finally:
        sys.path.pop(0)
    return module


def _build(factory: Any, where: Path) -> torch.nn.Module:
    torch.manual_seed(0)
    is_maker = inspect.isclass(factory) or inspect.isfunction(factory)
    try:
        if is_maker:
            inspect.signature(factory).bind()
    except TypeError as error:
        raise UserError(f"cannot be made without arguments: {error}", where=where,
                        remedy="name a function without arguments that makes the model") from error  # fmt: skip
    try:
        model = factory() if is_maker else factory
    except Exception as error:
        raise user_fault("the model cannot be made: ", error, where) from error
    if not isinstance(model, torch.nn.Module):
        raise UserError(f"gives a {type(model).__name__}, not a torch.nn.Module", where=where)
    return model.eval()


def _examples(module: Any, path: Path, _model: torch.nn.Module, _variant: Variant) -> Any:
    torch.manual_seed(1)
    make: Callable[[], Any] = getattr(module, EXAMPLE)
    try:
        examples = make()
    except Exception as error:
        raise user_fault(f"{EXAMPLE}() fails: ", error, path) from error
    if isinstance(examples, torch.Tensor | list):
        examples = (examples,) if isinstance(examples, torch.Tensor) else tuple(examples)
    if not isinstance(examples, tuple | dict) or not examples:
        raise UserError(f"{EXAMPLE}() returns {abbreviated(examples)}", where=path, remedy=DEFINED)
    if isinstance(examples, dict) and not all(isinstance(name, str) for name in examples):
        raise UserError(f"{EXAMPLE}() returns a dict with keys that are no names", where=path, remedy=DEFINED)
    return examples


def case_of_hub(name: str) -> ModelCase:
    """Return the case of a ``transformers`` configuration: a folder with ``config.json``, or an id of a model hub.

    Raises UserError if transformers is not installed, or if there is no such configuration.
    """
    if importlib.util.find_spec("transformers") is None:
        raise UserError("transformers is not installed", remedy="pip install 'pytest-passbench[forge]'")
    from transformers import AutoConfig

    from pytest_passbench.forge.sources.transformers import case_of_config

    try:
        config = AutoConfig.from_pretrained(name)
    except Exception as error:  # offline, unknown id, broken file: the library's own message names the reason
        first = line(str(error).strip().partition("\n")[0] or type(error).__name__, 500)
        raise UserError(f"no configuration: {first}", where=name,
                        remedy="name a folder with config.json, or check the network") from error  # fmt: skip
    return case_of_config(config, Path(name).name)


@contextmanager
def as_user_error(case: ModelCase, remedy: str | None) -> Iterator[None]:
    """Limit the memory inside the block, and raise UserError, with ``remedy``, for any exception of the model."""
    with limited_memory():
        try:
            yield
        except UserError:
            raise
        except Exception as error:  # the model's own
            raise fault_of(case, error, remedy) from error


def fault_of(case: ModelCase, error: Exception, remedy: str | None) -> UserError:
    """Return the error for a case that cannot be captured.

    ``torch.compile`` wraps what a model raises. So the model is run again without it, for the plain cause.
    """
    try:
        model = case.build()
        inputs = case.inputs(model, case.variants[0])
    except UserError as cause:
        return cause
    except Exception as cause:
        return user_fault("the model cannot be made: ", cause, case.name)
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    if mismatch := _mismatch(model, args, kwargs):
        return UserError(mismatch, where=case.name, remedy=remedy)
    try:
        with torch.no_grad():
            model(*args, **kwargs)
    except Exception as cause:
        return user_fault(f"forward fails on {_forms(inputs)}: ", cause, case.name, remedy)
    root: BaseException = error
    while (before := root.__cause__ or root.__context__) is not None:  # Dynamo's own message may not say why
        root = before
    return user_fault("torch.compile cannot capture it: ", root, case.name, "try its parts one by one")


def user_fault(what: str, cause: BaseException, where: str | Path, remedy: str | None = None) -> UserError:
    """Return the error that a user's code raised ``cause``, at the line of that code if known, else at ``where``."""
    text = line(str(cause).strip().partition("\n")[0], 300)
    return UserError(f"{what}{type(cause).__name__}: {text}", where=user_line(cause) or where, remedy=remedy)


def user_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the last frame in the user's own code, or None if there is no such frame."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)]
    if not user_frames:
        return None
    path = Path(user_frames[-1].filename)
    display_path = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{display_path}:{user_frames[-1].lineno}"


def _mismatch(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    signature = inspect.signature(model.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        arguments = counted(len(args), "input") if args else f"the inputs {', '.join(kwargs)}"
        return f"forward{line(str(signature))} does not take {arguments}: {error}"
    return None


def _forms(inputs: Any) -> str:
    named = inputs.items() if isinstance(inputs, dict) else (("", value) for value in inputs)
    return line(", ".join(f"{name} {_form(value)}".strip() for name, value in named))


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{dtype_name(value)} {list(value.shape)}"
    return type(value).__name__
