"""Triton kernels made from checked text, in a namespace of their own.

Triton reads a kernel's source through ``inspect``. So the text is put into ``linecache``, under a name that no file
has.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import linecache
import math
from collections.abc import Mapping
from typing import Any

KERNEL_MODULE = "passbench_kernel_"  # prefix of the names of the modules that kernels are in
_BUILTINS = ("range", "min", "max", "abs", "len", "int", "float", "bool")


def make_kernel(text: Mapping[str, Any]) -> Any:
    """Return the kernel that ``triton.jit`` makes of a checked text, as ``KernelText.to_json()`` returns it.

    ``kernel[grid](...)`` launches it. The same text gets the same names on all machines, so the same machine code.
    """
    digest = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()[:16]
    namespace = _namespace(KERNEL_MODULE + digest)
    for function in text["functions"]:
        _define(function, namespace)
    return _define(text, namespace)


def _namespace(module: str) -> dict[str, Any]:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    allowed = {name: getattr(builtins, name) for name in _BUILTINS}
    libraries = {"triton": triton, "tl": tl, "libdevice": libdevice, "math": math}
    return {"__name__": module, "__builtins__": allowed, **libraries}


def _define(text: Mapping[str, Any], namespace: dict[str, Any]) -> Any:
    import triton

    name, source = text["name"], text["source"]
    file = f"<{namespace['__name__']}.{name}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    kernel = triton.jit(**text["options"])(namespace[name])
    namespace[name] = kernel
    return kernel
