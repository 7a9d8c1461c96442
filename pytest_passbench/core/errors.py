"""A mistake of the user, the exit code of a harness that failed, and a candidate's exception in words."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pytest_passbench.core.paths import PACKAGE

HARNESS_FAILED = 75
"""The exit code if some subgraphs could not be judged (``harness_fail``): EX_TEMPFAIL of sysexits.h.

A failed case or gate takes precedence: that verdict holds, whatever the missing subgraphs would have shown.
"""

MAX_CHARACTERS = 12_000
MAX_CAUSES = 20

MAX_PART = 1_000
"""How many characters of a place, a fault or a remedy are shown."""


class UserError(Exception):
    """A mistake in the user's input, shown as one message and never as a traceback.

    ``where`` names the file (with ``:line`` if known) or the option, ``remedy`` says what to do. A very long part is
    shortened in its middle, since it may quote the input.
    """

    def __init__(self, what: str, *, where: str | Path | None = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = _short(what), where, remedy
        place = f"{_short(str(where))}: " if where is not None else ""
        super().__init__(f"{place}{self.what}" + (f" ({_short(remedy)})" if remedy else ""))

    def __reduce__(self) -> tuple[Callable[..., UserError], tuple[object, ...]]:
        """Return the callable and the arguments from which pickle makes the same error in another process."""
        return partial(type(self), self.what, where=self.where, remedy=self.remedy), ()


def _short(text: str) -> str:
    half = MAX_PART // 2
    return text if len(text) <= MAX_PART else f"{text[:half]}…{text[-half:]}"


def explain(error: BaseException, is_user_file: Callable[[str], bool]) -> str:
    """Return an exception's text, the places in the author's files that it passed, and the whole traceback.

    The deepest place comes first. The traceback is left out if it has nothing but one such place.

    ``is_user_file`` says whether the file of a name is the author's. If the exception passed such a file, the
    traceback leaves this package out. The text is cut off at a line's end, at :data:`MAX_CHARACTERS`.
    """
    text = "".join(traceback.format_exception_only(error)).strip()
    stacks = [traceback.extract_tb(link.__traceback__) for link in reversed(causes(error))]
    passed = [frame for stack in stacks for frame in reversed(stack)]
    places = [f"{at.filename}:{at.lineno} in {at.name}: {at.line}" for at in passed if is_user_file(at.filename)]
    whole = traceback.TracebackException.from_exception(error)
    if places:
        _leave_out_package(whole)
    one_place = len(places) == 1 and len(whole.stack) == 1 and not (whole.__cause__ or whole.__context__)
    message = "\n".join([text, *places, *([] if one_place else ["", "".join(whole.format())])])
    begin = message[:MAX_CHARACTERS]
    return message if len(message) <= MAX_CHARACTERS else begin.rpartition("\n")[0] or begin


def _leave_out_package(error: traceback.TracebackException) -> None:
    """Leave this package's frames out of a traceback, and out of those that it follows from."""
    link: traceback.TracebackException | None = error
    while link is not None:
        frames = [frame for frame in link.stack if not Path(frame.filename).is_relative_to(PACKAGE)]
        link.stack = traceback.StackSummary.from_list(frames)
        link = link.__cause__ or link.__context__


def causes(error: BaseException) -> list[BaseException]:
    """Return an exception and the ones that caused it, the first cause last."""
    errors = [error]
    while (cause := errors[-1].__cause__) is not None and cause not in errors and len(errors) < MAX_CAUSES:
        errors.append(cause)
    return errors
