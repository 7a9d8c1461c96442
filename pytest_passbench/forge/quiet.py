"""The silence of torch while models are captured: Dynamo and TorchInductor log graph breaks and much else."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library log or warn meanwhile. Logs stay if ``TORCH_LOGS`` is set, since the user then asks for them."""
    before = logging.root.manager.disable
    if not os.environ.get("TORCH_LOGS"):
        logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
