"""Supervised training with TRL on what models did: whole conversations with tools, or answers in one turn.

    passbench trajectories reports/agents --format sft --honest --right fp64 --out sft.parquet
    python -m pytest_passbench.recipes.sft --data sft.parquet --model MODEL --out trained

Rows of the format ``sft`` train every answer of the model (``assistant_only_loss``), those of ``single`` the
completion. ``trainer_state.json`` in the output's folder has the loss of each step.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence

from datasets import load_dataset
from transformers.utils import get_json_schema
from trl import SFTConfig, SFTTrainer

from pytest_passbench.agents.environment import TOOLS, PassEnvironment
from pytest_passbench.recipes.trainers import device_settings, run, train


def main(argv: Sequence[str] | None = None) -> None:
    """Train a model on the rows of a Parquet file, and save it."""
    args = parsed(argv)
    rows = load_dataset("parquet", data_files=args.data, split="train")
    conversations = "messages" in rows.column_names
    rows = rows.select_columns(["messages", "tools"] if conversations else ["prompt", "completion"])
    if conversations and args.tools == "environment":
        rows = rows.remove_columns("tools").add_column("tools", [environment_tools()] * len(rows))
    trainer = SFTTrainer(
        args.model,
        args=SFTConfig(
            args.out,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=args.learning_rate,
            max_length=args.max_tokens,
            assistant_only_loss=conversations,
            **device_settings(),
        ),
        train_dataset=rows,
    )
    train(trainer, args.out, f"{len(rows)} rows", "loss")


def environment_tools() -> str:
    """Return the tools of an environment as GRPO's trainer shows them, in JSON."""
    return json.dumps([get_json_schema(getattr(PassEnvironment, name)) for name in sorted(TOOLS)])


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", nargs="+", required=True, help="files of `passbench trajectories`: sft, or single")
    parser.add_argument("--model", required=True, help="a model's folder, or its name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tools", choices=("log", "environment"), default="log", help="the tools in the prompts: as "
                        "the model in the log had them (default), or as the recipe grpo shows them")  # fmt: skip
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1, help="rows of a step")
    parser.add_argument("--learning-rate", type=float, default=2e-5)
    parser.add_argument("--max-tokens", type=int, default=16384, help="rows are cut to this length")
    return parser.parse_args(argv)


if __name__ == "__main__":
    run(main)
