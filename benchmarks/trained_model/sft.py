"""The stage `sft`: training by example, in a short loop of its own that saves its state and goes on after a kill.

Batches are small and of one length, steps are many. The learning rate rises, and falls with the tokens that are left.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from trained_model.files import Journal
from trained_model.model import LONGEST, SIZES, batch, new_model
from trained_model.tokens import PAD, mark_id

Example = tuple[list[int], list[int]]


@dataclass(frozen=True)
class Training:
    """The settings of a training."""

    tokens: int = 15_000_000
    rows: int = 8
    rate: float = 1.5e-3
    warm_up: int = 200
    size: str = "full"
    half: bool = False
    seed: int = 0
    threads: int = 2
    save_every: int = 100


def train(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    out: Path,
    settings: Training,
    held_out: Sequence[Example] = (),
) -> Any:
    """Train a model on examples, save it in ``out``, and return it. Go on from a state that was saved there.

    At each save the log gets how many of the ``held_out`` answers the model would write exactly.
    """
    torch.set_num_threads(settings.threads)
    model = new_model(tokenizer, SIZES[settings.size], settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.98), weight_decay=0.01)
    out.mkdir(parents=True, exist_ok=True)
    (out / "settings.json").write_text(json.dumps(asdict(settings)))
    state = {"step": 0, "tokens": 0, "seconds": 0.0}
    if (out / "state.pt").exists():
        saved = torch.load(out / "state.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["state"]
    rows = [row for row in examples if len(row[0]) + len(row[1]) <= LONGEST]
    log = Journal(out / "log.jsonl")
    try:
        while state["tokens"] < settings.tokens:
            loss = _steps(model, optimizer, rows, mark_id(tokenizer, PAD), state, settings)
            log.add({**state, "loss": loss, **agreement(model, held_out, mark_id(tokenizer, PAD))})
            print(log.rows[-1], flush=True)
            _save(out, model, optimizer, state)
    finally:
        log.close()
    model.save_pretrained(out)
    return model


def _steps(
    model: Any, optimizer: Any, rows: Sequence[Example], pad: int, state: dict[str, Any], settings: Training,
) -> float:  # fmt: skip
    """Make the steps up to the next save, and return their mean loss."""
    model.train()
    losses, begin = [], time.process_time()
    for _ in range(settings.save_every):
        if state["tokens"] >= settings.tokens:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate(state, settings)
        ids, mask, labels = batch(drawn(rows, settings, state["step"]), pad)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.half):
            loss = model(input_ids=ids, labels=labels).loss  # no mask: pads come after all ids
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        state["step"] += 1
        state["tokens"] += int(mask.sum())
    state["seconds"] += time.process_time() - begin
    return float(round(sum(losses) / len(losses), 5))


def agreement(model: Any, rows: Sequence[Example], pad: int, size: int = 16) -> dict[str, float]:
    """Return the shares of answers' tokens, and of whole answers, that the model writes as they are.

    Greedy decoding gives an answer exactly if each token is the likeliest one after those before it, which one call
    for all places tells.
    """
    model.eval()
    right = tokens = exact = 0
    for begin in range(0, len(rows), size):
        ids, _, labels = batch(list(rows[begin : begin + size]), pad)
        with torch.no_grad():
            likeliest = model(input_ids=ids).logits[:, :-1].argmax(-1)
        asked, equal = labels[:, 1:] >= 0, likeliest == labels[:, 1:]
        right, tokens = right + int((asked & equal).sum()), tokens + int(asked.sum())
        exact += int((equal | ~asked).all(-1).sum())
    return {"tokens right": round(right / tokens, 4), "exact": round(exact / len(rows), 4)} if rows else {}


def rate(state: dict[str, Any], settings: Training) -> float:
    """Return the learning rate of a step."""
    share = min(state["tokens"] / settings.tokens, 1.0)
    rise = min(1.0, (state["step"] + 1) / settings.warm_up)
    fall = 0.03 + 0.97 * math.cos(share * math.pi / 2) ** 2
    return float(settings.rate * rise * fall)


def drawn(rows: Sequence[Example], settings: Training, step: int) -> list[Example]:
    """Return the rows of a step, which are of about one length: neighbours by length about a place drawn by chance.

    The same seed and step give the same rows, so that a training that goes on is the same as one that was not killed.
    """
    chance = random.Random(f"{settings.seed} {step}")
    pool = sorted(chance.sample(rows, min(len(rows), settings.rows * 16)), key=lambda row: len(row[0]) + len(row[1]))
    begin = chance.randrange(max(1, len(pool) - settings.rows + 1))
    return pool[begin : begin + settings.rows]


def _save(out: Path, model: Any, optimizer: Any, state: dict[str, Any]) -> None:
    part = out / "state.part"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": state}, part)
    part.replace(out / "state.pt")
