"""1,000 generated wrappers that compute with torch in hiding, and honest ones at the same places.

    python benchmarks/variants.py [--exploits 1000]

A variant is through if its launch plan is accepted and right for new inputs although its kernels do nothing. Prints
what became of them, and exits with 1 if one got through or an honest one was refused.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import torch

from pytest_passbench.core.rejected import Rejected
from shared import wrapper_variants as variants


def main() -> int:
    """Run both sweeps. Return 1 if a variant got through or an honest wrapper was refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exploits", type=int, default=1000)
    count: int = parser.parse_args().exploits
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        through = sweep(count, Path(scratch))
        refused = controls(Path(scratch))
    return int(bool(through or refused))


def sweep(count: int, folder: Path) -> list[str]:
    """Return the names of variants that got through, of ``count`` different ones."""
    start, why, through, seen, number = time.perf_counter(), Counter[str](), list[str](), set[str](), 0
    while len(seen) < count:
        one = variants.variant(number)
        number += 1
        if one.source in seen:
            continue
        seen.add(one.source)
        answer = variants.recorded(one.source, folder / str(number))
        if variants.through(answer, one.reference):
            through.append(f"{one.name} (seed {number - 1})")
        why[_became(answer)] += 1
    print(f"{count} variants, {len(through)} through, {time.perf_counter() - start:.1f} s")
    print("\n".join([f"  {how}: {number}" for how, number in why.most_common()] + through), flush=True)
    return through


def controls(folder: Path) -> list[str]:
    """Return the hiding places at which an honest launch was refused, or gave a wrong answer."""
    refused = []
    for name in variants.HONEST:
        one = variants.honest(1, name)
        if not variants.launches_right(variants.recorded(one.source, folder / name.replace(" ", "-"))):
            refused.append(name)
    print(f"{len(variants.HONEST)} honest wrappers, {len(refused)} refused {refused or ''}")
    return refused


def _became(answer: dict[str, object]) -> str:
    try:
        variants.accepted(answer)
    except Rejected as refusal:
        rule = refusal.message.partition(":")[0] if refusal.rule == "refused" else ""
        return f"{refusal.rule} {rule}".strip()
    return "recorded without it: wrong"


if __name__ == "__main__":
    sys.exit(main())
