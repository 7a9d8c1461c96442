"""The model: a decoder of some 5 million parameters with random weights, from a configuration alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trained_model.tokens import END, PAD, mark_id

LONGEST = 1024
"""The most tokens of a question with its answer."""


@dataclass(frozen=True)
class Size:
    """The size of a model."""

    width: int = 256
    layers: int = 6
    heads: int = 8
    inner: int = 704


SIZES = {"full": Size(), "toy": Size(32, 2, 2, 64)}


def new_model(tokenizer: Tokenizer, size: Size, seed: int) -> Any:
    """Return a model with random weights of a seed."""
    from transformers import LlamaConfig, LlamaForCausalLM  # here, since importing them takes seconds

    torch.manual_seed(seed)
    tokens = -(-tokenizer.get_vocab_size() // 32) * 32
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tokens, hidden_size=size.width, intermediate_size=size.inner, num_hidden_layers=size.layers,
            num_attention_heads=size.heads, num_key_value_heads=size.heads, max_position_embeddings=LONGEST,
            tie_word_embeddings=True, pad_token_id=mark_id(tokenizer, PAD), bos_token_id=None,
            eos_token_id=mark_id(tokenizer, END),
            attn_implementation="eager",  # at these lengths a tenth faster to train than the fused one, in bfloat16
        )
    )  # fmt: skip


def load(folder: Path) -> Any:
    """Return the model of a folder."""
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM.from_pretrained(folder, local_files_only=True)


def batch(rows: list[tuple[list[int], list[int]]], pad: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return ids, mask and labels of questions with answers; labels are -100 outside of answers."""
    longest = max(len(question) + len(answer) for question, answer in rows)
    ids = torch.full((len(rows), longest), pad)
    labels = torch.full((len(rows), longest), -100)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for place, (question, answer) in enumerate(rows):
        end = len(question) + len(answer)
        ids[place, :end] = torch.tensor([*question, *answer])
        labels[place, len(question) : end] = torch.tensor(answer)
        mask[place, :end] = 1
    return ids, mask, labels
