"""A long run of the full suite, watched from outside: does the judge grow, or leave anything behind?

    python benchmarks/soak.py --minutes 15
    python benchmarks/soak.py --minutes 90 --reports reports    to its end, on a quiet machine in less than that

Every few seconds it notes the judge's memory, open descriptors and threads, the processes below it, its temporary
files, and shared memory. Each quantity gets a row: its value in the first and in the last quarter of the samples, the
slope of a straight line through all of them per hour, and whether it is flat. It is if the last quarter's value
exceeds the first's by no more than the margin of the quantity. The value of memory is the median. That of a count is
its lowest tenth: a subgraph that a pass matches has more processes than another, and whatever is left behind stays.

Tasks come in random order, so that all quarters judge alike. The first tenth of the time is left out, and all
before the first record: the judge still imports then. A run that goes on for longer is ended by Ctrl+C. What it
leaves is printed too. Writes reports/benchmarks/soak.json.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import linear_regression, median

from engine import REPORTS, write
from tabulate import tabulate

from pytest_passbench.judge.arms import processes

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (
    *(sys.executable, "-m", "pytest", "--passbench", "--candidate=candidates/cpu-fused"),
    *("--passbench-pipeline=direct", "--passbench-suite=full", "-p", "any_order"),
)
SHM = Path("/dev/shm")
#: How much each quantity may grow from the first quarter to the last. Memory: what the largest subgraphs need.
MARGINS = {"rss_mib": 32.0, "pss_mib": 32.0, "descriptors": 4, "threads": 1, "processes": 2, "files": 0, "shared": 0}
MEMORY = ("rss_mib", "pss_mib")
START = 0.1  # share of the time that is left out, as is all before the first record
FEWEST = 8  # samples
STOPPING = 120  # seconds for the run to write its results


@dataclass(frozen=True)
class Sample:
    """A look at the run. ``processes`` counts those below the judge, ``records`` those in its journal."""

    seconds: float
    rss_mib: float
    pss_mib: float
    descriptors: float
    threads: float
    processes: float
    files: float
    shared: float
    records: int


def main() -> None:
    """Run, watch, print, write; exit with 1 if anything is not flat or left behind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=15.0, metavar="M", help="how long (default: 15)")
    parser.add_argument("--every", type=float, default=3.0, metavar="S", help="seconds between looks (default: 3)")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the run's results there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        reports = arguments.reports or Path(name) / "reports"
        samples, code, left = watch(Path(name), reports.absolute(), 60 * arguments.minutes, arguments.every)
    begin = START * samples[-1].seconds
    kept = [sample for sample in samples if sample.seconds >= begin and sample.records]
    if len(kept) < FEWEST:
        sys.exit(f"only {len(kept)} looks since the first record: give it more --minutes")
    rows = [row(kept, quantity, margin) for quantity, margin in MARGINS.items()]
    print(tabulate(rows, headers="keys", floatfmt=".1f"))
    judged = max(sample.records for sample in samples)
    print(f"{judged} subgraphs in {samples[-1].seconds:.0f} s, {len(kept)} looks; exit code {code}")
    print(f"left behind: {', '.join(left) or 'nothing'}")
    REPORTS.mkdir(parents=True, exist_ok=True)
    write("soak", {"rows": rows, "left": left, "samples": [asdict(sample) for sample in samples]})
    sys.exit(bool(left) or any(found["flat"] != "yes" for found in rows))


def watch(folder: Path, reports: Path, seconds: float, every: float) -> tuple[list[Sample], int, list[str]]:
    """Watch a run for so many seconds. Return the samples, its exit code, and what it left behind."""
    temporary, earlier = folder / "tmp", set(reports.glob("*/journal*.jsonl"))
    temporary.mkdir()
    shared = set(SHM.iterdir())
    path = os.pathsep.join(filter(None, [str(ROOT / "benchmarks"), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": path}
    samples: list[Sample] = []
    with (folder / "said").open("w") as said:
        run = subprocess.Popen(
            [*COMMAND, f"--passbench-report-dir={reports}"], cwd=ROOT, env=environment, stdout=said
        )
        begin = time.monotonic()
        while run.poll() is None and time.monotonic() - begin < seconds:
            time.sleep(every)
            with contextlib.suppress(OSError):  # it has just ended, or removed a file
                journals = set(reports.glob("*/journal*.jsonl")) - earlier
                samples.append(_look(run.pid, time.monotonic() - begin, temporary, journals, shared))
        below = processes.descendants(run.pid)
        run.send_signal(signal.SIGINT)
        code = run.wait(STOPPING)
    left = [f"process {processes.name(pid)}" for pid in below if processes.alive(pid)]
    return samples, code, left + [str(path) for path in (*_files(temporary), *_shared(shared))]


def _look(judge: int, seconds: float, temporary: Path, journals: set[Path], before: set[Path]) -> Sample:
    proc = Path(f"/proc/{judge}")
    sizes = dict(line.split(":") for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
    return Sample(
        seconds,
        rss_mib=int(sizes["Rss"].split()[0]) / 1024,
        pss_mib=int(sizes["Pss"].split()[0]) / 1024,
        descriptors=len(list((proc / "fd").iterdir())),
        threads=len(processes.threads(judge)),
        processes=len(processes.descendants(judge)),
        files=len(_files(temporary)),
        shared=len(_shared(before)),
        records=sum(path.read_bytes().count(b"\n") - 1 for path in journals),
    )


def _files(temporary: Path) -> list[Path]:
    return [path for path in temporary.rglob("*") if path.suffix != ".lock"]  # the machine's locks stay


def _shared(before: set[Path]) -> list[Path]:
    """Return what is new in shared memory. Semaphores are of other programs: a judge has none."""
    return [path for path in set(SHM.iterdir()) - before if not path.name.startswith("sem.")]


def lowest(values: list[float]) -> float:
    """Return the value that a tenth of the values do not exceed."""
    return sorted(values)[len(values) // 10]


def row(samples: list[Sample], quantity: str, margin: float) -> dict[str, object]:
    """Return the row of a quantity."""
    values = [float(getattr(sample, quantity)) for sample in samples]
    quarter = max(1, len(values) // 4)
    value = median if quantity in MEMORY else lowest
    first, last = value(values[:quarter]), value(values[-quarter:])
    slope = linear_regression([sample.seconds / 3600 for sample in samples], values).slope
    return {
        "quantity": quantity,
        "first quarter": first,
        "last quarter": last,
        "most": max(values),
        "per hour": slope,
        "margin": margin,
        "flat": "yes" if last - first <= margin else "NO",
    }


if __name__ == "__main__":
    main()
