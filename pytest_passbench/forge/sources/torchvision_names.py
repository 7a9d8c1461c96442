"""A stand-in for the torchvision names that ``timm`` touches while it is imported.

No torchvision wheel fits every build of torch. timm's models compute with none of its code: they need some of
its names to exist, as base classes, annotations and keys of tables.
"""

from __future__ import annotations

import enum
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager


class InterpolationMode(enum.Enum):
    """The names of torchvision's interpolation modes, which are keys of timm's tables."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


CLASSES = {
    "torchvision": (),
    "torchvision.transforms": ("ToTensor", "PILToTensor", "CenterCrop", "Compose"),
    "torchvision.transforms.functional": (),
    "torchvision.ops": (),
    "torchvision.ops.misc": ("FrozenBatchNorm2d",),
    "torchvision.datasets": ("CIFAR100", "CIFAR10", "MNIST", "KMNIST", "FashionMNIST", "ImageFolder"),
}
"""The modules of the stand-in, parents first, and the empty classes in each."""


@contextmanager
def stand_in() -> Iterator[None]:
    """Make the names importable inside the block if torchvision is not installed.

    They leave ``sys.modules`` at its end, so no other library takes them for torchvision.
    """
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        yield
        return
    modules = _modules()
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name in modules:
            del sys.modules[name]


def _modules() -> dict[str, types.ModuleType]:
    modules: dict[str, types.ModuleType] = {}
    for name, classes in CLASSES.items():
        modules[name] = module = types.ModuleType(name)
        module.__path__ = []  # a package: its submodules can be imported
        for word in classes:
            setattr(module, word, type(word, (), {"__module__": name}))
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(modules[parent], last, module)
    modules["torchvision.transforms.functional"].InterpolationMode = InterpolationMode  # type: ignore[attr-defined]
    return modules
