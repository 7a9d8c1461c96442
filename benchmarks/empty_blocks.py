"""What a block costs the harness: full and empty blocks of the installed subgraphs that take the least time.

Run: python benchmarks/empty_blocks.py --cases 8   (some seconds a case; microseconds, a line per subgraph)
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import median
from typing import Any

from engine import Twins, cases, spread

from pytest_passbench.core.settings import Settings
from pytest_passbench.judge.arms.runner import BlockTime, Runner

LONGEST = 100.0  # microseconds of eager

_block = Runner.block
_walls: dict[tuple[int, bool], list[float]] = defaultdict(list)


def _noted(runner: Runner, calls: int, empty: bool = False, depth: int = 0) -> BlockTime:
    taken = _block(runner, calls, empty, depth)
    _walls[calls, empty].append(taken.wall * 1e6)
    return taken


def main() -> None:
    """Measure eager against eager, and print what its blocks took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=8)
    chosen = spread(cases(longest=LONGEST), parser.parse_args().cases)
    patched: Any = Runner
    patched.block = _noted
    print("calls    full   empty: least  median   share of a block  subgraph")
    with Twins(Settings(audit="off")) as session:
        for case in chosen:
            _walls.clear()
            session.against(case)
            _print(case.name)


def _print(name: str) -> None:
    for calls in sorted({calls for calls, empty in _walls if empty}):
        full, empty = median(_walls[calls, False]), _walls[calls, True]
        print(f"{calls:5} {full:7.0f} {min(empty):14.0f} {median(empty):7.0f} {min(empty) / full:18.2f}  {name}")


if __name__ == "__main__":
    main()
