"""An exception of a candidate's code in words for its author."""

from __future__ import annotations

import traceback
from collections.abc import Callable

MAX_CHARACTERS = 12_000
MAX_CAUSES = 20


def explain(error: BaseException, is_user_file: Callable[[str], bool]) -> str:
    """Return the exception, the author's own places where it passed, the deepest first, and the whole traceback.

    ``own`` says of a file's name whether it is the author's. The text is cut off at :data:`MAX_CHARACTERS`.
    """
    text = "".join(traceback.format_exception_only(error)).strip()
    stacks = [traceback.extract_tb(link.__traceback__) for link in reversed(_chain(error))]
    passed = [frame for stack in stacks for frame in reversed(stack)]
    places = [f"{at.filename}:{at.lineno} in {at.name}: {at.line}" for at in passed if is_user_file(at.filename)]
    whole = "".join(traceback.format_exception(error))
    return "\n".join([text, *places, "", whole])[:MAX_CHARACTERS]


def _chain(error: BaseException) -> list[BaseException]:
    """Return an exception and the ones that caused it, the first cause last."""
    errors = [error]
    while (cause := errors[-1].__cause__) is not None and cause not in errors and len(errors) < MAX_CAUSES:
        errors.append(cause)
    return errors
