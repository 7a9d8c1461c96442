"""An exception of a candidate's code in words for its author."""

from __future__ import annotations

import traceback
from pathlib import Path

MAX_CHARACTERS = 12_000


def explain(error: BaseException, folder: Path) -> str:
    """Return the exception, the places in ``folder`` where it passed, the deepest first, and the whole traceback.

    What does not fit into :data:`MAX_CHARACTERS` is cut off at the end.
    """
    said = "".join(traceback.format_exception_only(error)).strip()
    frames = reversed(traceback.extract_tb(error.__traceback__))
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own]
    whole = "".join(traceback.format_exception(error))
    return "\n".join([said, *places, "", whole])[:MAX_CHARACTERS]
