"""A pytest plugin that puts tasks in random order, the same each time: neighbours in the suite are alike."""

from __future__ import annotations

import random

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the items."""
    random.Random(1).shuffle(items)
