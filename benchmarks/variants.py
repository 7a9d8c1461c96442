"""Variants against the source layer: 1,000 of ten exploits, 500 of honest passes.

    python benchmarks/variants.py [--exploits 1000] [--honest 500]

Prints what got through and what was accused, and exits with 1 if anything did.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import variants

from pytest_passbench.candidate.audit import audit


def main() -> int:
    """Run both sweeps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exploits", type=int, default=1000)
    parser.add_argument("--honest", type=int, default=500)
    args = parser.parse_args()
    through = sweep("exploits", variants.EXPLOITS, args.exploits, caught=False)
    accused = sweep("honest", variants.HONEST, args.honest, caught=True)
    return int(bool(through or accused))


def sweep(kind: str, names: tuple[str, ...], count: int, *, caught: bool) -> list[str]:
    """Names of the variants for which "there is a violation" came out as ``caught``, the wrong way."""
    wrong, start, seen, number = [], time.perf_counter(), set(), 0
    while len(seen) < count:
        name, seed = names[number % len(names)], number // len(names)
        number += 1
        files = variants.variant(variants.CORPUS / kind / name, seed)
        if str(files) in seen:
            continue
        seen.add(str(files))
        found = violations(files)
        if bool(found) == caught:
            wrong.append(f"{kind}/{name} seed {seed}: {'; '.join(found)}")
    seconds = time.perf_counter() - start
    print("\n".join([f"{kind}: {count} different variants, {len(wrong)} wrong, {seconds:.1f} s", *wrong]))
    return wrong


def violations(files: dict[str, str]) -> list[str]:
    """What the source layer finds in a variant."""
    with tempfile.TemporaryDirectory() as scratch:
        found = audit(variants.write(files, Path(scratch) / "candidate"))
    return [f"{f.file}:{f.line} {f.rule} {f.message}" for f in found if f.severity == "violation"]


if __name__ == "__main__":
    sys.exit(main())
