"""The operator sequences of the lite suite: chains of different families on which a fused kernel can beat eager."""

from __future__ import annotations

LITE = tuple(
    tuple(line.split())
    for line in """
dropout add layer_norm
add relu
to pow mean add rsqrt mul to mul
add to pow mean add rsqrt mul to mul
silu mul
relu square
div tanh mul add softmax to dropout
mul pow mul add mul tanh add mul
pow mean add rsqrt mul mul
add add softmax
batch_norm silu
batch_norm relu
add view softmax
mul add layer_norm
add permute layer_norm
mul softmax dropout
mul sigmoid mul
add softplus
group_norm silu
mean add div mul mul add
""".strip().splitlines()
)
