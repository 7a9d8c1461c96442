"""A dress rehearsal in the zygote: what is imported and set up lazily is then there once, for every template.

Without it each template pays again for FakeTensor, Dynamo and the like, several times what its own work costs.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from ..rewrite.load import load_passes
from ..rewrite.pipelines import build, build_baseline
from ..suite.build import build_graph

_SOURCE = """
def forward(in_0, in_1):
    tmp_0 = torch.nn.functional.relu(in_0)
    tmp_1 = tmp_0 + in_1
    tmp_2 = torch.nn.functional.linear(tmp_1, in_1)
    return (tmp_2,)
"""
_PASS = """
import torch

def pattern(x, y):
    return torch.nn.functional.relu(x) + y

def replacement_args(x, y):
    return (x, y)

def kernel(x, y):
    return torch.empty_like(x)

def replacement_func():
    return kernel
"""


def rehearse(arm: str, pipeline: str) -> None:
    """Take a graph and a pass of our own through what ``arm`` will do, and forget what Dynamo made of it."""
    module, sample = build_graph(_SOURCE, "rehearsal"), [torch.ones(4, 4), torch.ones(4, 4)]
    with torch.no_grad():
        if arm == "candidate":
            with TemporaryDirectory() as folder:
                Path(folder, "rehearsal.py").write_text(_PASS)
                build(pipeline, module, load_passes(Path(folder), ["rehearsal"]), sample)
        elif arm != "eager":
            build_baseline(f"{arm}-baseline", module, sample)
    if arm != "eager" and pipeline != "direct":
        torch._dynamo.reset()
