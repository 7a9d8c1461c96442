"""Tensors in pieces that fit into a core's cache, and the wider dtypes by which their errors are computed."""

from __future__ import annotations

import torch

PIECE_SIZE = 1 << 15  # elements compared at a time
FIRST_SIZE = 1 << 8  # elements of the first piece, which shows nearly every wrong answer
WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32}


def pieces(flat: torch.Tensor) -> list[torch.Tensor]:
    """Return a flat tensor in pieces that fit into a core's cache. The first one is small."""
    return [flat[:FIRST_SIZE], *flat[FIRST_SIZE:].split(PIECE_SIZE)] if flat.numel() > FIRST_SIZE else [flat]
