"""Failures of a user's model, each as one message: the exception, and the line of the user's file that raised it."""

from __future__ import annotations

import inspect
import sysconfig
import traceback
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line
from pytest_passbench.core.paths import PACKAGE
from pytest_passbench.forge.models import ModelCase

LIBRARIES = (
    str(PACKAGE),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("stdlib"),
    "<",
)
"""Beginnings of file names of other code: this package, installed ones, and code without a file."""


def fault_of(case: ModelCase, error: Exception, remedy: str | None) -> UserError:
    """Return the message for a case that cannot be captured.

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
    """Return the message that a user's code raised ``cause``, with its own line in place of ``where`` if known."""
    text = line(str(cause).strip().partition("\n")[0], 300)
    return UserError(f"{what}{type(cause).__name__}: {text}", where=user_line(cause) or where, remedy=remedy)


def user_line(error: BaseException) -> str | None:
    """Return ``file:line`` of the last frame in the user's own code, or None if no frame is."""
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
        arguments = f"{len(args)} inputs" if args else f"the inputs {', '.join(kwargs)}"
        return f"forward{line(str(signature))} does not take {arguments}: {error}"
    return None


def _forms(inputs: Any) -> str:
    named = inputs.items() if isinstance(inputs, dict) else (("", value) for value in inputs)
    return line(", ".join(f"{name} {_form(value)}".strip() for name, value in named))


def _form(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return type(value).__name__
