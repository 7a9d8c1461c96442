"""A zygote's imports on a device, where every function of ``torch.cuda`` that could initialise CUDA ends the process.

``python zygote_program.py arms`` or ``reader``. With ``warm`` it also compiles, as a zygote on the CPU does.
"""

from __future__ import annotations

import sys
import traceback

import torch

ASKED: list[str] = []


def forbidden(name: str) -> object:
    def called(*_arguments: object, **_named: object) -> object:
        ASKED.append(name)
        traceback.print_stack()
        raise AssertionError(f"torch.cuda.{name} was called")

    return called


NAMES = (
    "_lazy_init", "init", "is_available", "device_count", "current_device", "get_device_properties", "synchronize",
    "get_device_capability", "get_rng_state", "current_stream", "set_device", "is_bf16_supported", "mem_get_info",
)  # fmt: skip
for name in NAMES:
    setattr(torch.cuda, name, forbidden(name))

from pytest_passbench.protocol import READ  # noqa: E402
from pytest_passbench.runner import zygote  # noqa: E402

if __name__ == "__main__":
    zygote._import({"pipeline": READ if sys.argv[1] == "reader" else "inductor", "device": "warm" not in sys.argv})
    assert ASKED == []
    print("modules", "torch._inductor.compile_fx" in sys.modules, "torch._dynamo" in sys.modules)
