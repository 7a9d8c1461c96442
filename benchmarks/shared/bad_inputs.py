"""Inputs that a user may get wrong, by the name of what is bad about each. :mod:`good_inputs` has good ones.

A case writes its files into a folder and returns the command line that reads them. ``says`` is what its one message
has to contain; the folder's own path may stand in it as ``{folder}``. ``code`` is the exit code.
"""

from __future__ import annotations

import sys

from shared import bad_files, bad_results  # noqa: F401 - each adds its cases
from shared.bad_case import CASES, sparse

__all__ = ["CASES", "sparse"]

if __name__ == "__main__":
    print(*(case.name for case in CASES), sep="\n", file=sys.stdout)
