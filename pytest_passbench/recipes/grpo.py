"""Reinforcement learning with TRL's GRPO and the judge's staged reward: in one turn, or in turns with tools.

    python -m pytest_passbench.recipes.grpo --tasks lite --model MODEL --out trained
    python -m pytest_passbench.recipes.grpo --data rl.parquet --turns 10 --model MODEL --out trained

In one turn a reward function has the files of each answer judged, those of a group one after the other. With
``--turns`` each rollout has a ``PassEnvironment``, whose tools the model calls. Rewards are not scaled within a group
(``scale_rewards="none"``): if all are alike, scaling would turn noise of the clock into a signal. ``alike`` in the
log is the share of such groups, which teach nothing. ``trainer_state.json`` in the output's folder has each step.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import Dataset, load_dataset
from trl import GRPOConfig, GRPOTrainer

from pytest_passbench import Evaluator
from pytest_passbench.agents import PassEnvironment, SharedJudge
from pytest_passbench.agents.answer_files import answer_files, question
from pytest_passbench.agents.prompt import prompt
from pytest_passbench.api.arguments import TaskShelf
from pytest_passbench.api.outcome import Outcome
from pytest_passbench.core.errors import UserError
from pytest_passbench.recipes.trainers import device_settings, run, train

EMPTY = [{"role": "user", "content": ""}]
"""A prompt to which an environment adds its own."""

Rewards = list[float | None]


def main(argv: Sequence[str] | None = None) -> None:
    """Train a model on tasks by the judge's reward, and save it."""
    args = parsed(argv)
    rows = make_rows(args)
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    with Evaluator(pipeline="direct") as evaluator:
        judge = SharedJudge(evaluator)
        trainer = GRPOTrainer(
            args.model,
            log_alike if args.turns > 1 else make_reward(evaluator),
            args=config(args),
            train_dataset=rows,
            environment_factory=partial(PassEnvironment, judge) if args.turns > 1 else None,
        )
        train(trainer, args.out, f"{len(rows)} tasks", "reward")


def parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--tasks", nargs="+", default=["train"], help="suites, ids, files, folders (default: train)")
    parser.add_argument("--data", nargs="+", help="files of `passbench trajectories --format rl`: tasks, prompts")
    parser.add_argument("--model", required=True, help="a model's folder, or its name")
    parser.add_argument("--out", required=True)
    parser.add_argument("--turns", type=int, default=1, help="rounds of tool calls; 1 (default): one answer")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--group", type=int, default=8, help="answers to a task")
    parser.add_argument("--prompts", type=int, default=1, help="tasks of a step")
    parser.add_argument("--learning-rate", type=float, default=1e-6)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--max-tokens", type=int, default=4096, help="of an answer, or of all turns after the prompt")
    return parser.parse_args(argv)


def make_rows(args: argparse.Namespace) -> Dataset:
    """Return the tasks as rows with ``task``, ``file`` and ``prompt``."""
    if args.data:
        rows = load_dataset("parquet", data_files=args.data, split="train").select_columns(["task", "file", "prompt"])
        if args.turns > 1:
            return rows
        files = [row["file"] if Path(row["file"]).exists() else row["task"] for row in rows]
    else:
        files = args.tasks
    tasks = TaskShelf().named(files)
    return Dataset.from_list([
        {"task": task.id, "file": str(task.path), "prompt": EMPTY if args.turns > 1 else question(prompt(task))}
        for task in tasks
    ])  # fmt: skip


def config(args: argparse.Namespace) -> GRPOConfig:
    """Return the trainer's settings."""
    return GRPOConfig(
        args.out,
        max_steps=args.steps,
        num_generations=args.group,
        per_device_train_batch_size=args.group,
        gradient_accumulation_steps=args.prompts,
        learning_rate=args.learning_rate,
        temperature=args.temperature,
        max_completion_length=args.max_tokens,
        max_tool_calling_iterations=args.turns if args.turns > 1 else None,
        beta=0.0,
        scale_rewards="none",
        **device_settings(),
    )


def make_reward(evaluator: Evaluator) -> Callable[..., Rewards]:
    """Return a reward function that has answers judged. Equal answers to a task are judged once."""

    def judged(completions: list[Any], file: list[str], log_metric: Any, **_columns: Any) -> Rewards:
        rewards: Rewards = [0.0] * len(completions)  # for an answer without a file
        for task in dict.fromkeys(file):
            places: dict[str, list[int]] = {}
            for place, (completion, name) in enumerate(zip(completions, file, strict=True)):
                if name == task:
                    places.setdefault(completion[-1]["content"], []).append(place)
            candidates = {text: files for text in places if (files := files_of(text))}
            for text, reward in zip(candidates, judge_all(evaluator, list(candidates.values()), task), strict=True):
                for place in places[text]:
                    rewards[place] = reward
        log_metric("alike", share_alike(rewards, file))
        return rewards

    return judged


def files_of(text: str) -> dict[str, str] | None:
    """Return the files of an answer, None if it has none."""
    try:
        return answer_files(text)
    except UserError:
        return None


def judge_all(evaluator: Evaluator, candidates: list[dict[str, str]], task: str) -> Rewards:
    """Return the staged reward of each answer, None for those that the machine could not judge."""
    if not candidates:
        return []
    try:
        return list(map(reward_of, evaluator.evaluate_many(candidates, task)))
    except UserError as error:
        print(f"not judged: {error}")
        return [None] * len(candidates)


def reward_of(outcome: Outcome) -> float | None:
    """Return the staged reward of an answer, None if the machine could not judge it."""
    try:
        return outcome.reward(shape="staged")
    except UserError as error:
        print(f"not judged: {error}")
        return None


def log_alike(environments: list[PassEnvironment], file: list[str], log_metric: Any, **_columns: Any) -> Rewards:
    """Log the share of groups that are alike. The rewards are the environments' own."""
    log_metric("alike", share_alike([item.get_reward() for item in environments], file))
    return [None] * len(environments)


def share_alike(rewards: Sequence[float | None], tasks: Sequence[str]) -> float:
    """Return the share of tasks whose rewards cannot be told apart: their intervals have a point in common."""
    ends: dict[str, list[tuple[float, float]]] = {}
    for reward, task in zip(rewards, tasks, strict=True):
        if reward is not None:
            low, high = getattr(reward, "low", reward), getattr(reward, "high", reward)
            ends.setdefault(task, []).append((low, high))
    alike = [max(low for low, _ in group) <= min(high for _, high in group) for group in ends.values()]
    return sum(alike) / len(alike) if alike else 1.0


if __name__ == "__main__":
    run(main)
