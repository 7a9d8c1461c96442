"""A program that runs Triton kernels in Triton's interpreter, as they are and as made from their checked text.

Its argument is the folder with the corpus's candidates for Triton.
Prints JSON: for each candidate the kernel's reference, its text or refusal, and how far both answers differ.
"""

from __future__ import annotations

import importlib
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.candidate.triton import KernelReference, kernel_text
from pytest_passbench.core.rejected import Rejected
from pytest_passbench.reader.triton_reference import reference_of
from pytest_passbench.runner.triton_kernels import make_kernel

CORPUS = Path(sys.argv[1])
FUSED = Path(__file__).parents[2] / "candidates" / "triton-fused"


def arguments(stem: str) -> tuple[Any, ...]:
    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(torch.bfloat16)

    generator = torch.Generator().manual_seed(7)
    given: dict[str, Callable[[], tuple[Any, ...]]] = {
        "attention_softmax": lambda: (draw(2, 3, 40), 0.3, torch.float32),
        "batch_norm_relu": lambda: (draw(2, 3, 4, 5), draw(3), draw(3).abs(), draw(3), draw(3), 1e-5),
        "dropout_add_layer_norm": lambda: (draw(4, 33), draw(4, 33), draw(33), draw(33), 1e-5),
        "quick_gelu": lambda: (draw(5, 60),),
        "rms_norm": lambda: (draw(4, 33), draw(33), 1e-6, torch.bfloat16),
        "silu_mul": lambda: (draw(4, 33), draw(4, 33)),
    }
    return given.get(stem, lambda: tuple(draw(*shape).float() for shape in ((3, 256), (3, 256), (256,), (256,))))()


def load(folder: Path, stem: str) -> types.ModuleType:
    package = types.ModuleType(folder.name.replace("-", "_"))
    package.__path__ = [str(folder)]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.{stem}")


def probe(folder: Path, stem: str, *, launch: bool) -> dict[str, Any]:
    module = load(folder, stem)
    try:
        reference = json.loads(json.dumps(reference_of(module.kernel, folder)))
    except ValueError as error:
        return {"unreadable": str(error)}
    try:
        text = kernel_text(folder, KernelReference.from_json(reference))
    except Rejected as refusal:
        return {"reference": reference, "refused": str(refusal), "rule": refusal.rule}
    kernel = make_kernel(json.loads(json.dumps(text.to_json())))
    found = {"reference": reference, "text": text.to_json()}
    if launch:
        before = module.replacement_func()(*arguments(stem))
        module.kernel = kernel
        after = module.replacement_func()(*arguments(stem))
        both = ((item if isinstance(item, tuple) else (item,)) for item in (before, after))
        pairs = list(zip(*both, strict=True))
        found["difference"] = max(float((old.float() - new.float()).abs().max()) for old, new in pairs)
        found["magnitude"] = max(float(old.float().abs().max()) for old, _ in pairs)
    return found


def main() -> None:
    found = {}
    stems = [path.stem for path in sorted(FUSED.glob("*.py")) if path.stem != "rounding"]
    for stem in stems:
        found[f"triton-fused/{stem}"] = probe(FUSED, stem, launch=True)
    for name in ("plain", "device-function", "grid-function", "grid-lambda"):
        found[f"triton-{name}"] = probe(CORPUS / f"triton-{name}", "gelu_add_norm", launch=True)
    for name in ("autotune", "heuristics", "libdevice", "zeroing-hook"):
        found[f"triton-{name}"] = probe(CORPUS / f"triton-{name}", "gelu_add_norm", launch=False)
    x, y, w, b = arguments("")
    expected = torch.nn.functional.layer_norm(torch.nn.functional.gelu(x) + y, (256,), w, b, 1e-5)
    patches = ("text-patched-inspect", "text-patched-linecache")  # last: they patch this process
    exploits = [path.name for path in sorted(CORPUS.glob("text-*")) if path.name not in patches]
    for name in ("triton-torch-in-kernel", *exploits, *patches):
        found[name] = probe(CORPUS / name, "gelu_add_norm", launch=False)
        if name in patches:
            answer = sys.modules[f"{name.replace('-', '_')}.gelu_add_norm"].replacement_func()(*arguments(""))
            found[name]["fooled"] = float((answer - expected).abs().max())
    print(json.dumps(found))


main()
