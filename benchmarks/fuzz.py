"""Bad inputs of every kind: what passbench makes of them, and at what cost.

    python benchmarks/fuzz.py                                # 2,000 mutated inputs
    python benchmarks/fuzz.py --inputs 200 --seed 7          # the same 200 every time
    python benchmarks/fuzz.py --only results --show          # one kind, with every input that failed
    python benchmarks/fuzz.py --cases --json cases.json      # the named cases of shared/bad_inputs.py alone

Each input is a command line and the files that it names: shared/good_inputs.py writes good ones, and one to three
mutations (mutations.py) make them bad. It runs in a forked child with 1 GiB of memory and 5 s
(shared/limited_commands.py).
Exits with 1 if any child was stopped, crashed, or printed a traceback or a message of more than 20 lines.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from mutations import KINDS
from tabulate import tabulate

from shared import bad_inputs, limited_commands
from shared.limited_commands import Outcome, lines_of

VERDICTS = ("fine", "message", "traceback", "hang", "too large", "too long", "crash")


def _fresh(base: Path, number: int) -> Path:
    folder = base / str(number)
    folder.mkdir()
    return folder


def _removed(folder: Path) -> None:
    """Remove a folder, also with folders in it that nobody may read, or that lie too deep for ``shutil.rmtree``."""
    subprocess.run(["rm", "-rf", "--", folder], check=False)


def mutated(count: int, seed: int, only: str, base: Path) -> list[tuple[str, list[str], Outcome]]:
    """Run ``count`` mutated inputs. Return the kind, command line and outcome of each."""
    found = []
    for number in range(count):
        rng = random.Random(f"{seed}/{number}")
        kinds = [only] if only else list(KINDS)
        kind = rng.choices(kinds, [KINDS[name][1] for name in kinds])[0]
        folder = _fresh(base, number)
        argv = KINDS[kind][0](folder, rng)
        found.append((kind, [f"#{number}", *argv], limited_commands.forked(argv, folder)))
        _removed(folder)
    return found


def cases(names: Sequence[str], base: Path) -> list[tuple[str, list[str], Outcome]]:
    """Run the cases of these names, or all if ``names`` is empty. Return name, command line and outcome of each."""
    found = []
    for number, case in enumerate(bad_inputs.CASES):
        if not names or case.name in names:
            folder = _fresh(base, number)
            argv = case.write(folder)
            found.append((case.name, argv, limited_commands.forked(argv, folder)))
            _removed(folder)
    return found


def main() -> int:
    """Run, print the table, and say whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="a kind of input to mutate")
    parser.add_argument("--cases", nargs="*", metavar="NAME", help="named cases, or all, instead of mutated inputs")
    parser.add_argument("--show", action="store_true", help="print the output of every input that failed")
    parser.add_argument("--json", type=Path, help="write every outcome there")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.argv = ["passbench"]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="passbench-fuzz-", ignore_cleanup_errors=True) as base:
        limited_commands.warm_up(_fresh(Path(base), -1))
        folder, named = Path(base), args.cases is not None
        found = cases(args.cases, folder) if named else mutated(args.inputs, args.seed, args.only, folder)
    if args.json:
        args.json.write_text(json.dumps([{"name": name, "argv": argv, **asdict(out)} for name, argv, out in found]))
    bad = [entry for entry in found if entry[2].verdict not in limited_commands.GOOD]
    for name, argv, outcome in bad:
        told = outcome.text[-1500:] if args.show else "".join(list(lines_of(outcome.text))[-1:])[:160]
        print(f"{outcome.verdict}: {name}: {shlex.join(word[:60] for word in argv)}\n    {told}")
    _table(found)
    slowest, largest = max(out.seconds for _, _, out in found), max(out.mebibytes for _, _, out in found)
    print(f"{len(found)} inputs, {len(bad)} bad, {time.monotonic() - started:.0f} s; ", end="")
    print(f"slowest {slowest:.1f} s, largest {largest:.0f} MiB")
    return int(bool(bad))


def _table(found: list[tuple[str, list[str], Outcome]]) -> None:
    counts = Counter((name.partition(":")[0], outcome.verdict) for name, _, outcome in found)
    kinds = dict.fromkeys(kind for kind, _ in counts)
    rows = [[kind, *(counts[kind, verdict] for verdict in VERDICTS)] for kind in kinds]
    print(tabulate(rows, headers=["kind", *VERDICTS]))


if __name__ == "__main__":
    sys.exit(main())
