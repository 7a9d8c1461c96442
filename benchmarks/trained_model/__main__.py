"""The stages by name. Each writes files of its own in a folder, and goes on from those that are there already.

    cd benchmarks
    python -m trained_model graphs FOLDER
    python -m trained_model judge FOLDER
    ...

The README beside this file has all of them in order.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from trained_model import arms, collect, examples, grpo, model, pairs, repairs, sft, tokens
from trained_model.judged import Judge
from trained_model.table import table

DATASET = Path(__file__).resolve().parents[2] / "dataset"


def graphs(args: argparse.Namespace) -> None:
    """Collect real graphs and draw random ones, with their splits."""
    collect.make(args.folder, args.dataset, args.count)


def judge(args: argparse.Namespace) -> None:
    """Have the teacher's answers judged, each once."""
    pairs.judge_pairs(args.folder, args.most, args.held_out)


def mend(args: argparse.Namespace) -> None:
    """Have spoiled answers judged, for conversations of two turns."""
    repairs.judge_repairs(args.folder, args.repairs)


def tokenizer(args: argparse.Namespace) -> None:
    """Train the tokenizer on the train split."""
    right = pairs.right_pairs(args.folder, "train")
    tokens.save(tokens.train(right), args.folder, right)


def train(args: argparse.Namespace) -> None:
    """Train a model by example, and save it."""
    words, name = tokens.load(args.folder), "body" if args.body else "sft"
    rows = examples.all_examples(args.folder, words, repairs=args.repairs, extra=args.extra, body=args.body)
    settings = sft.Training(tokens=args.tokens, size=args.size, half=args.half, seed=args.seed, threads=args.threads)
    apart = examples.single(words, pairs.right_pairs(args.folder, "validation"), args.body)
    sft.train(rows, words, args.folder / f"{name}-{args.seed}", settings, apart)


def reward(args: argparse.Namespace) -> None:
    """Train a model of the stage ``sft`` further, by the judge's reward."""
    words = tokens.load(args.folder)
    fresh = [graph for graph, _ in examples.unjudged(args.folder, 1 << 30)] or collect.load(args.folder, "train")
    settings = grpo.Rewarding(steps=args.steps, seed=args.seed, threads=args.threads)
    judging = Judge(args.folder, f"grpo-{args.seed}.jsonl")
    try:
        start, out = (args.folder / f"{name}-{args.seed}" for name in ("sft", "grpo"))
        grpo.train(start, fresh, words, judging, out, settings)
    finally:
        judging.close()


def answer(args: argparse.Namespace) -> None:
    """Write the answers of an arm to the held-out graphs, or those of the controls."""
    held_out = arms.chosen(args.folder, args.split, args.held_out)
    if args.arm == "controls":
        arms.control_answers(args.folder, held_out)
        return
    words = tokens.load(args.folder)
    source = args.folder / f"{args.arm}-{args.seed}"
    trained = (
        model.new_model(words, model.SIZES[args.size], args.seed) if args.arm == "random" else model.load(source)
    )
    path = args.folder / "answers" / f"{args.arm}-{args.seed}.jsonl"
    is_body = args.arm == "body"
    arms.answer_all(trained, words, held_out, path, args.seed, body=is_body, threads=args.threads)


def final(args: argparse.Namespace) -> None:
    """Have all arms' answers judged in one run, and write the tables."""
    held_out = [graph for graph, _ in arms.chosen(args.folder, args.split, args.held_out)]
    arms.judge_arms(args.folder, held_out, f"{args.split}.jsonl")
    text = table(args.folder, held_out, f"{args.split}.jsonl")
    (args.folder / f"{args.split}.md").write_text(text)
    print(text)


STAGES: dict[str, Callable[[argparse.Namespace], None]] = {
    "graphs": graphs, "judge": judge, "repairs": mend, "tokenizer": tokenizer, "sft": train, "grpo": reward,
    "answer": answer, "final": final,
}  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    lines = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    lines.add_argument("stage", choices=STAGES)
    lines.add_argument("folder", type=Path)
    lines.add_argument("--dataset", type=Path, default=DATASET)
    lines.add_argument("--count", type=int, default=12000, help="random graphs")
    lines.add_argument("--most", type=int, default=4000, help="random train graphs whose answers are judged")
    lines.add_argument("--repairs", type=int, default=1500, help="answers that are spoiled and judged")
    lines.add_argument("--extra", type=int, default=0, help="pairs that nobody judged, besides (an ablation)")
    lines.add_argument("--body", action="store_true", help="the kernel's statements alone (an ablation)")
    lines.add_argument("--tokens", type=int, default=15_000_000, help="tokens of a training")
    lines.add_argument("--size", choices=model.SIZES, default="full")
    lines.add_argument("--half", action="store_true", help="bfloat16 where autocast has it")
    lines.add_argument("--steps", type=int, default=60, help="steps of training by rewards")
    lines.add_argument("--arm", choices=("random", "sft", "grpo", "body", "controls"), default="sft")
    lines.add_argument("--split", choices=("validation", "test"), default="validation")
    lines.add_argument("--held-out", type=int, default=100, help="held-out graphs, real and random each")
    lines.add_argument("--seed", type=int, default=0)
    lines.add_argument("--threads", type=int, default=2)
    return lines


def main() -> None:
    """Run a stage."""
    args = parser().parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    STAGES[args.stage](args)


if __name__ == "__main__":
    main()
