"""One command for a machine with a CUDA device: it tries everything that the project believes about devices.

    python benchmarks/gpu_check.py                     all steps, 9 minutes at most
    python benchmarks/gpu_check.py --only aa planted   these steps
    python benchmarks/gpu_check.py --after exploits    the steps after this one
    python benchmarks/gpu_check.py --rehearse          without a device: the CPU takes its place

It needs a checkout and what the machine has: no installation and no network. Each step is a process of its own under
a time limit, and a step that fails stops no other. Rows are appended to gpu-check.jsonl as they come, and a table is
written at the end, gpu-check.md. Both lie in the folder that $OUT names, or in reports/gpu/ (a rehearsal's in
reports/gpu-rehearsal/).

The ladder of walls says which wall of the sandbox the driver does not work behind. Later steps run without that wall.
If bubblewrap is not installed, its Debian package is taken from the folder .carry of the checkout, which git ignores
(`apt-get download bubblewrap` in there).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MINUTES = 9.0
END_SECONDS = 15.0  # reserved for writing the table
MAX_CELL = 160  # characters of a value in the table
MAX_SAID = 1500  # characters that are kept of a failed step's output


@dataclass(frozen=True)
class Step:
    """A step by its name in ``gpu_steps``, with its time limit in seconds, and what it finds out."""

    name: str
    seconds: float
    finds: str


STEPS = (
    Step("facts", 30, "what the machine is"),
    Step("ladder", 100, "which wall the driver does not work behind"),
    Step("costs", 60, "what the pieces of a block cost"),
    Step("imports", 60, "that zygotes open no device, by pipeline"),
    Step("weak", 110, "one subgraph by pipeline and audit, behind weak walls"),
    Step("strong", 110, "the same behind bubblewrap"),
    Step("exploits", 70, "programs that cheat the clock"),
    Step("aa", 110, "eager against eager on 20 subgraphs"),
    Step("planted", 45, "5 % more work"),
    Step("tests", 90, "pytest -m gpu"),
    Step("lite", 90, "candidates/triton-fused on the lite suite"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps and write the table. Return 1 if a step failed or was cut short."""
    args = parsed(arguments)
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    rows = folder / "gpu-check.jsonl"
    deadline = time.monotonic() + 60 * args.minutes
    with tempfile.TemporaryDirectory() as scratch:
        environment = surroundings(Path(scratch))
        down = list(args.down)
        outcomes = []
        for step in chosen(args):
            left = min(step.seconds * args.patience, deadline - time.monotonic() - END_SECONDS)
            outcomes.append(run_step(step, left, rows, down, args, environment))
            down += [wall for wall in walls_down(rows) if wall not in down]
    table = folder / "gpu-check.md"
    table.write_text(as_table(read_rows(rows), args.rehearse))
    print(table.read_text())
    return int(any(outcome != "done" for outcome in outcomes))


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    names = [step.name for step in STEPS]
    parser.add_argument("--rehearse", action="store_true", help="the CPU takes the device's place")
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="STEP", help=", ".join(names))
    parser.add_argument("--after", choices=names, metavar="STEP", help="leave out this step and those before it")
    parser.add_argument("--down", nargs="*", default=[], metavar="WALL", help="walls that are down from the start")
    parser.add_argument(
        "--refuse", default="", metavar="WALL", help="in a rehearsal: the driver fails behind this wall"
    )
    parser.add_argument("--device", default="cuda", help="cuda or cuda:N (default: cuda)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"for all steps (default: {MINUTES:g})")
    parser.add_argument("--patience", type=float, default=1.0, help="times each step's limit (default: 1)")
    parser.add_argument(
        "--out", default=os.environ.get("OUT"), metavar="FOLDER", help="default: $OUT, or reports/gpu"
    )
    args = parser.parse_args(arguments)
    args.out = args.out or str(ROOT / "reports" / ("gpu-rehearsal" if args.rehearse else "gpu"))
    return args


def chosen(args: argparse.Namespace) -> list[Step]:
    """Return the steps to run, in their order."""
    names = [step.name for step in STEPS]
    first = names.index(args.after) + 1 if args.after else 0
    return [step for step in STEPS[first:] if step.name in args.only]


def surroundings(scratch: Path) -> dict[str, str]:
    """Return the steps' environment variables: paths to this checkout's package, and to a bubblewrap from .carry."""
    folders = [str(ROOT), str(ROOT / "benchmarks")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
    packages = sorted((ROOT / ".carry").glob("*.deb"))
    if shutil.which("bwrap") is None and packages and shutil.which("dpkg"):
        for package in packages:
            subprocess.run(["dpkg", "-x", str(package), str(scratch)], check=False)
        found["PATH"] = f"{scratch / 'usr' / 'bin'}:{found['PATH']}"
    return found


def run_step(
    step: Step, limit: float, rows: Path, down: Sequence[str], args: argparse.Namespace, environment: dict[str, str]
) -> str:
    """Run a step in a process of its own, and append a row on how it ended: done, failed or late."""
    began, said = time.monotonic(), b""
    if limit <= 1:
        outcome = "no time"
    else:
        print(f"{step.name}: {step.finds} ({limit:.0f} s)", flush=True)
        command = [sys.executable, str(ROOT / "benchmarks" / "gpu_steps.py"), step.name, str(rows), f"{limit:.0f}"]
        command += [args.device, f"--down={','.join(down)}", f"--refuse={args.refuse}"]
        command += ["--rehearse"] if args.rehearse else []
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )  # fmt: skip
            try:
                outcome = "done" if process.wait(limit) == 0 else "failed"
            except subprocess.TimeoutExpired:
                outcome = "late"
            finally:
                _end(process)
            output.seek(0)
            said = output.read()
    row = {"step": step.name, "row": "outcome", "outcome": outcome, "seconds": round(time.monotonic() - began, 1)}
    if outcome == "failed":
        row["said"] = said.decode(errors="replace")[-MAX_SAID:]
    append(rows, row)
    return outcome


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a step's processes. Its sandboxes end with it, since they die with their parent."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # so that it ends its sandboxes
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def append(rows: Path, row: dict[str, Any]) -> None:
    """Append a row to the file at once."""
    with rows.open("a") as file:
        file.write(json.dumps(row, default=str) + "\n")


def read_rows(rows: Path) -> list[dict[str, Any]]:
    """Return the rows so far."""
    return [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []


def walls_down(rows: Path) -> list[str]:
    """Return the walls behind which, by the ladder, the driver does not work."""
    return [row["guilty"] for row in read_rows(rows) if row.get("guilty")]


def as_table(rows: Sequence[dict[str, Any]], rehearsed: bool) -> str:
    """Return the rows as Markdown: what became of each step, then the rows of each."""
    title = "# gpu_check" + (" (rehearsed on the CPU: no figure means anything)" if rehearsed else "")
    ends = [row for row in rows if row["row"] == "outcome"]
    lines = [title, "", "| step | outcome | seconds |", "|---|---|---|"]
    lines += [f"| {row['step']} | {row['outcome']} | {row['seconds']} |" for row in ends]
    for name in dict.fromkeys(row["step"] for row in rows):
        lines += ["", f"## {name}", "", "| what | found |", "|---|---|"]
        for row in rows:
            if row["step"] == name and (row["row"] != "outcome" or "said" in row):
                found = {key: value for key, value in row.items() if key not in ("step", "row")}
                lines.append(f"| {_cell(row['row'])} | {_cell(_told(found))} |")
    return "\n".join(lines) + "\n"


def _told(found: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_rounded(value)}" for name, value in found.items())


def _rounded(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _cell(text: str) -> str:
    flat = " ".join(text.split()).replace("|", "\\|")
    return flat if len(flat) <= MAX_CELL * 4 else flat[: MAX_CELL * 2] + " … " + flat[-MAX_CELL * 2 :]


if __name__ == "__main__":
    sys.exit(main())
