"""Training on pairs with TRL: of two judged answers to a task, the better by its reward is to become likelier.

    passbench trajectories reports/agents --format dpo --out dpo.parquet
    python -m pytest_passbench.recipes.dpo --data dpo.parquet --model MODEL --out trained

``--min-gap`` leaves out pairs whose rewards lie close together. ``trainer_state.json`` in the output's folder has the
loss of each step, and the margin between the two answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from datasets import load_dataset
from trl import DPOConfig, DPOTrainer

from pytest_passbench.core.errors import UserError
from pytest_passbench.recipes.trainers import device_settings, run, train


def main(argv: Sequence[str] | None = None) -> None:
    """Train a model on the pairs of a Parquet file, and save it."""
    args = parsed(argv)
    rows = load_dataset("parquet", data_files=args.data, split="train")
    rows = rows.filter(lambda row: row["chosen_reward"] - row["rejected_reward"] >= args.min_gap)
    if not len(rows):
        raise UserError("no pair is left", where="--min-gap", remedy="give a smaller one")
    trainer = DPOTrainer(
        args.model,
        args=DPOConfig(
            args.out,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=args.learning_rate,
            max_length=args.max_tokens,
            **device_settings(),
        ),
        train_dataset=rows.select_columns(["prompt", "chosen", "rejected"]),
    )
    train(trainer, args.out, f"{len(rows)} pairs", "loss")


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--data", nargs="+", required=True, help="files of `passbench trajectories --format dpo`")
    parser.add_argument("--model", required=True, help="a model's folder, or its name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1, help="pairs of a step")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--min-gap", type=float, default=0.05, help="the least difference of a pair's rewards")
    parser.add_argument("--max-tokens", type=int, default=16384, help="answers are cut to this length")
    return parser.parse_args(argv)


if __name__ == "__main__":
    run(main)
