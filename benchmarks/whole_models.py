"""Graphs of whole models, captured as `passbench forge` captures them: configurations of ``transformers`` with random
weights, whose layers and heads are drawn. Nothing is downloaded. The graphs are the same each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx

from pytest_passbench.core.task import Subgraph, Task, TaskHeader, TensorSpec
from pytest_passbench.forge.capture import Captured, capture
from pytest_passbench.forge.clean import clean, lift
from pytest_passbench.forge.models import Variant
from pytest_passbench.forge.sources.transformers import make_inputs
from pytest_passbench.suite.printing import to_source
from pytest_passbench.suite.source import parse

LEAST, MOST = 200, 10_000  # statements
FEW_LAYERS = 2


@dataclass(frozen=True)
class Family:
    """Models of one ``model_type``; the statements of their graphs grow by ``layer`` with each layer."""

    model_type: str
    layer: int
    variant: Variant
    settings: tuple[tuple[str, Any], ...] = ()


TEXT, IMAGE = Variant(1, 64), Variant(1, 32)
PATCHES = (("image_size", 32), ("patch_size", 8))
FAMILIES = (
    Family("bert", 29, TEXT),
    Family("llama", 71, TEXT),
    Family("vit", 30, IMAGE, PATCHES),
    Family("roberta", 29, TEXT),
    Family("mistral", 75, TEXT),
    Family("deit", 30, IMAGE, PATCHES),
    Family("qwen2", 71, TEXT),
    Family("electra", 29, TEXT),
    Family("gpt_neox", 55, TEXT),
)


def whole_models(count: int) -> Iterator[tuple[Task, int]]:
    """Yield tasks of one graph, and the number of its statements, which are between LEAST and MOST.

    The numbers are spread evenly on a logarithmic scale. A model whose graph misses the range gets other layers.
    """
    generator = random.Random(0)
    for number in range(count):
        family = FAMILIES[number % len(FAMILIES)]
        target = LEAST * (MOST / LEAST) ** ((number + generator.random()) / count)
        layers = max(FEW_LAYERS, round(target / family.layer))
        yield from _within(family, layers, generator.choice((2, 4, 8)))


def _within(family: Family, layers: int, heads: int) -> Iterator[tuple[Task, int]]:
    """Yield the task of a model. Layers are added or left out until its statements are in the range."""
    while True:
        task = task_of(family, layers, heads)
        statements = len(parse(task.graphs["g0"], task.id).body)
        if LEAST <= statements <= MOST:
            yield task, statements
            return
        layers = layers + FEW_LAYERS if statements < LEAST else int(layers * 0.9 * MOST / statements)


def task_of(family: Family, layers: int, heads: int) -> Task:
    """Return the largest graph of a model with so many layers and heads, as a task."""
    captures = capture(*_model(family, layers, heads), execute=False)
    largest = max(captures, key=lambda captured: len(captured.module.graph.nodes))
    clean(largest.module)
    lift(largest)
    name = f"{family.model_type}-{layers}-{heads}"
    inputs = tuple(_spec(i, node, largest) for i, node in enumerate(_placeholders(largest)))
    header = TaskHeader(name, ("none",), (f"transformers/{family.model_type}",), (), 1, "text")
    return Task(header, Path(name), {"g0": to_source(largest.module)}, (Subgraph("0", "g0", "float32", inputs),))


def _model(family: Family, layers: int, heads: int) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import AutoConfig, AutoModel

    sizes = {"hidden_size": 8 * heads, "intermediate_size": 16 * heads, "num_attention_heads": heads}
    sizes |= {"num_hidden_layers": layers, "num_key_value_heads": heads // 2, "embedding_size": 8 * heads}
    words = {} if family.variant is IMAGE else {"vocab_size": 1_000}
    config = AutoConfig.for_model(family.model_type, **sizes, **words, **dict(family.settings))
    torch.manual_seed(0)
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    return model, make_inputs(model, family.variant)


def _placeholders(captured: Captured) -> list[fx.Node]:
    return [node for node in captured.module.graph.nodes if node.op == "placeholder"]


def _spec(place: int, node: fx.Node, captured: Captured) -> TensorSpec:
    """Return an input, named as the printer names it."""
    value = node.meta.get("example_value")
    stats = captured.values.get(node.name)
    shape = tuple(map(int, value.shape)) if stats is None else stats.shape
    dtype = str(value.dtype).removeprefix("torch.") if stats is None else stats.dtype
    if dtype.startswith("float"):
        return TensorSpec(f"in_{place}", shape, dtype, mean=0.0, std=1.0)
    return TensorSpec(f"in_{place}", shape, dtype, min=0, max=1)
