"""The arguments that name a user's own model, and the reading of it."""

from __future__ import annotations

import argparse
import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import abbreviated

if TYPE_CHECKING:
    from pytest_passbench.forge.models import ModelCase, Variant

MODEL_HELP = "a module class, or a function that makes a module"
HUB_HELP = "a transformers configuration, by hub id or local folder"
SPECS = """\
a SPEC of --input is [NAME=]DTYPE SIZE...
  DTYPE: float, bool, int1000 (0 to 999) or int5..99 (5 to 99)
  SIZE:  b (batch), n (size), n/8, n*2 or a number
arguments that are dicts or lists: define example_inputs() in the file, and give no --input
"""


def add_inputs(parser: argparse.ArgumentParser, model: str) -> None:
    """Add the options for the inputs of the model that the argument ``model`` names."""
    # fmt: off
    parser.add_argument("--input", action="append", default=[], metavar="SPEC",
                        help=f"an input of {model}, such as 'float b 3 n n' or 'ids=int1000 b n'; repeatable")
    parser.add_argument("--size", action="append", default=[], metavar="B,N",
                        help="batch and size for --input (default: 1,224); repeatable")
    # fmt: on


def case_of(args: argparse.Namespace) -> tuple[ModelCase, str | None]:
    """Return the model that the arguments name, and the remedy if it fails. Raises UserError if there is none."""
    from pytest_passbench.forge import user_model

    if args.model:
        case = user_model.case_of_file(args.model, args.input, [_size(text) for text in args.size])
        return case, user_model.TYPED if args.input else user_model.DEFINED
    refuse_inputs(args)
    return user_model.case_of_hub(args.hub), None


def refuse_inputs(args: argparse.Namespace) -> None:
    """Raise UserError if the options for inputs are given, which only a model in a file may have."""
    for option in ("input", "size"):
        if getattr(args, option):
            raise UserError("goes with a model of a file only", where=f"--{option}", remedy="name it as FILE.py:NAME")


def _size(text: str) -> Variant:
    from pytest_passbench.forge.models import Variant

    batch, _, size = text.partition(",")
    if not re.fullmatch(r"[1-9][0-9]{0,5},[1-9][0-9]{0,5}", text):
        raise UserError(
            f"{abbreviated(text)} is not a size", where="--size", remedy="write batch and size, such as 4,224"
        )
    return Variant(int(batch), int(size))


@contextmanager
def without_logs() -> Iterator[None]:
    """Silence the logs and warnings of libraries: Dynamo and TorchInductor report graph breaks and much else.

    Logs stay if ``TORCH_LOGS`` is set, since the user then asks for them.
    """
    before = logging.root.manager.disable
    if not os.environ.get("TORCH_LOGS"):
        logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
