"""Write a tiny model with random weights and a tokenizer of its own, to try the recipes without a download.

    python -m pytest_passbench.recipes.tiny_model OUT --data sft.parquet

The tokens are whole lines of the data if possible. So an answer from the data has few tokens, and a step of training
takes a second on a CPU. Other text is split into smaller tokens.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from datasets import load_dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl.chat_template_utils import qwen2_5_chat_template

from pytest_passbench.recipes.trainers import run

MARKS = ["<pad>", "<|im_start|>", "<|im_end|>"]
TAGS = [f"<{slash}{name}>" for name in ("tools", "tool_call", "tool_response") for slash in ("", "/")]


def main(argv: Sequence[str] | None = None) -> None:
    """Write the model's folder."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", nargs="+", required=True, help="files of `passbench trajectories`")
    parser.add_argument("--vocabulary", type=int, default=8192, help="the most tokens")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    args = parser.parse_args(argv)
    tokenizer = make_tokenizer(args.data, args.vocabulary)
    set_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=args.width, intermediate_size=3 * args.width,
        num_hidden_layers=args.layers, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=16384,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    print(f"{args.out}: {model.num_parameters():,} parameters with random weights, {len(tokenizer):,} tokens")


def make_tokenizer(paths: Sequence[str], size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer for the rows of files, with a chat template that has tools."""
    corpus: list[str] = []
    for path in paths:
        rows = load_dataset("parquet", data_files=path, split="train")
        corpus += [text for row in rows for text in texts(row)]
    bpe = new_bpe()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=MARKS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )  # fmt: skip
    bpe.train_from_iterator(corpus, trainer)
    return as_chat(bpe)


def new_bpe() -> Tokenizer:
    """Return a tokenizer without tokens, which merges bytes within a line."""
    bpe = Tokenizer(models.BPE())
    lines = pre_tokenizers.Split("\n", "merged_with_previous")
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [lines, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def as_chat(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a tokenizer as transformers has them, with marks, tags and a chat template."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token=MARKS[0], eos_token=MARKS[2], padding_side="left",
        additional_special_tokens=MARKS[1:2],
    )  # fmt: skip
    tokenizer.add_tokens(TAGS)
    tokenizer.chat_template = qwen2_5_chat_template
    return tokenizer


def texts(row: dict[str, Any]) -> list[str]:
    """Return the pieces between marks of a row's conversations, as the chat template prints them."""
    template = as_chat(new_bpe())
    conversations = [row["messages"]] if "messages" in row else []
    conversations += [row["prompt"] + row[name] for name in ("completion", "chosen", "rejected") if name in row]
    printed = [template.apply_chat_template(item, tools=row.get("tools"), tokenize=False) for item in conversations]
    return [piece for text in printed for piece in re.split("|".join(map(re.escape, MARKS + TAGS)), text)]


if __name__ == "__main__":
    run(main)
