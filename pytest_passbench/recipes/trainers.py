"""The parts that recipes share: settings of TRL's trainers, the training itself, and errors as one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_passbench.core.errors import UserError
from pytest_passbench.core.escape import line


def device_settings() -> dict[str, Any]:
    """Return a trainer's settings for this machine: bfloat16 on a GPU, float32 on the CPU. Nothing is reported."""
    gpu = torch.cuda.is_available()
    return {
        "model_init_kwargs": {"dtype": "bfloat16" if gpu else "float32"},
        "bf16": gpu,
        "use_cpu": not gpu,
        "activation_checkpointing": gpu,
        "dataloader_pin_memory": gpu,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
    }


def train(trainer: Any, out: str, subject: str, figure: str) -> None:
    """Train, save model and state in ``out``, and print the first and the last value of a ``figure`` of the log.

    ``subject`` names the data, such as "7 tasks".
    """
    trainer.train()
    trainer.save_model(out)
    trainer.save_state()
    values = [entry[figure] for entry in trainer.state.log_history if figure in entry]
    print(f"{out}: {len(values)} steps on {subject}, {figure} {values[0]:.3f} to {values[-1]:.3f}")


def run(main: Callable[[], None]) -> None:
    """Run a recipe. A mistake of the user's, such as a missing file or model, ends it with one line."""
    try:
        main()
    except (UserError, OSError) as error:  # transformers says with OSError that there is no such model
        sys.exit(f"{Path(sys.argv[0]).stem}: error: {line(str(error), 300)}")
