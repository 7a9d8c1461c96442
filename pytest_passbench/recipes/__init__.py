"""Training recipes for TRL, scripts to run or to copy, and a tiny model to try them with (docs/training.md)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line


def run(main: Callable[[], None]) -> None:
    """Run a recipe. A mistake of the user's, as a file or model that is not there, ends it with one line."""
    try:
        main()
    except (UserError, OSError) as error:  # transformers says with OSError that there is no such model
        sys.exit(f"{Path(sys.argv[0]).stem}: error: {line(str(error), 300)}")
