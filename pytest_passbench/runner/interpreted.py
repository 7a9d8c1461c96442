"""Whether Triton's interpreter ran a kernel in this process: then speed means nothing."""

from __future__ import annotations

import sys


def triton_interpreter_runs() -> bool:
    """True once a kernel of this process was built for Triton's interpreter (``TRITON_INTERPRET=1``)."""
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is None:
        return False
    return bool(interpreter.__dict__.get("_passbench_used", False))


def watch() -> None:
    """Note every launch of an interpreted kernel from now on."""
    from triton.runtime import interpreter

    launch = interpreter.GridExecutor.__call__

    def noting(self: object, *args: object, **kwargs: object) -> object:
        interpreter._passbench_used = True
        return launch(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = noting
