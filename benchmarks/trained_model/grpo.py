"""The stage `grpo`: a trained model goes on by the judge's staged reward, in groups of answers to a graph.

The graphs are random ones of the train split that no training example has. Each step draws answers from the model as
it is, has the different ones judged, and makes one update. Rewards are not divided by a group's deviation: that
would turn the noise of the clock into a signal. The state is saved after each step.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trained_model.files import Journal
from trained_model.generate import answer_ids
from trained_model.graphs import Graph
from trained_model.judged import Judge
from trained_model.model import batch, load
from trained_model.tokens import END, PAD, asked, mark_id, prompt, text_of


@dataclass(frozen=True)
class Rewarding:
    """The settings of a training by rewards."""

    steps: int = 60
    graphs: int = 4
    group: int = 8
    rate: float = 2e-5
    temperature: float = 1.0
    seed: int = 0
    threads: int = 2


def train(
    start: Path, graphs: Sequence[Graph], tokenizer: Tokenizer, judge: Judge, out: Path, settings: Rewarding
) -> None:
    """Train the model of the folder ``start`` on graphs, and save it in ``out``. Go on from a state saved there."""
    torch.set_num_threads(settings.threads)
    model = load(start)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.0)
    out.mkdir(parents=True, exist_ok=True)
    first = 0
    if (out / "state.pt").exists():
        saved = torch.load(out / "state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    log = Journal(out / "log.jsonl")
    for step in range(first, settings.steps):
        chance = random.Random(f"{settings.seed} {step}")
        begin = time.perf_counter()
        row = _step(model, optimizer, chance.sample(graphs, settings.graphs), tokenizer, judge, settings, step)
        log.add({"step": step + 1, **row, "seconds": round(time.perf_counter() - begin, 1)})
        print(log.rows[-1], flush=True)
        part = out / "state.part"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, part)
        part.replace(out / "state.pt")
    log.close()
    model.save_pretrained(out)


def _step(
    model: Any, optimizer: Any, graphs: Sequence[Graph], tokenizer: Tokenizer, judge: Judge, settings: Rewarding,
    step: int,
) -> dict[str, float]:  # fmt: skip
    """Draw answers, have them judged, and make an update. Return the means of the step."""
    asked_ids = [asked(tokenizer, prompt(graph)) for graph in graphs for _ in range(settings.group)]
    drawn = answer_ids(model, tokenizer, asked_ids, temperature=settings.temperature,
                       seed=settings.seed * 100_000 + step)  # fmt: skip
    end = mark_id(tokenizer, END)
    answers = [row[: row.index(end) + 1] if end in row else row for row in drawn]
    rewards, right = [], 0
    for place, row in enumerate(answers):
        verdict = judge.verdict(graphs[place // settings.group], text_of(tokenizer, row))
        rewards.append(verdict["staged"])
        right += verdict["right"]
    gains = advantages(rewards, settings.group)
    rows = [item for item in zip(asked_ids, answers, gains, strict=True) if item[2]]
    if rows:
        _update(model, optimizer, rows, mark_id(tokenizer, PAD), len(answers))
    known = [reward for reward in rewards if reward is not None]
    return {"reward": round(sum(known) / max(len(known), 1), 4), "right": right / len(rewards), "taught": len(rows)}


def advantages(rewards: Sequence[float | None], group: int) -> list[float]:
    """Return each reward less the mean of its group; 0 for an answer that could not be judged."""
    gains = []
    for begin in range(0, len(rewards), group):
        members = rewards[begin : begin + group]
        known = [reward for reward in members if reward is not None]
        mean = sum(known) / max(len(known), 1)
        gains += [0.0 if reward is None else round(reward - mean, 6) for reward in members]
    return gains


def _update(
    model: Any,
    optimizer: Any,
    rows: Sequence[tuple[list[int], list[int], float]],
    pad: int,
    count: int,
    size: int = 8,
) -> None:
    """Make one step along the rewards' gradient. The present model wrote the answers: there is no ratio to clip."""
    model.train()
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        ids, _, labels = batch([(question, answer) for question, answer, _ in part], pad)
        logits = model(input_ids=ids).logits[:, :-1]
        targets = labels[:, 1:]
        logs = torch.log_softmax(logits, -1).gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        gains = torch.tensor([gain for _, _, gain in part])
        means = (logs * (targets >= 0)).sum(-1) / (targets >= 0).sum(-1)
        (-(means * gains).sum() / count).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
