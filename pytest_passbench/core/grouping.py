"""Groups of items with the same key, and the items that can be reached from others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Return the items by their keys, both in the order in which they come."""
    groups: dict[Key, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def reached(start: Iterable[Key], onward: Callable[[Key], Iterable[Key]]) -> dict[Key, None]:
    """Return all items that can be reached from ``start``, itself included. ``onward`` gives an item's successors."""
    visited, front = dict[Key, None](), list(start)
    while front:
        item = front.pop()
        if item not in visited:
            visited[item] = None
            front += onward(item)
    return visited
