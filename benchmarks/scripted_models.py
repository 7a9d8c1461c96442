"""Scripted models in the place of real ones: `passbench agent` with the real judge, killed once and resumed.

    python benchmarks/scripted_models.py DIR --tasks lite

An honest model has a generated pass judged, and submits. A cheating one gives its kernel a memory of earlier calls.
One calls tools that do not exist, and one never stops. Each has three turns. The honest model's evaluation is
killed after eight judgings, and the same command goes on. DIR has the logs, and ``judgings.jsonl`` with a line for
each judging. Exits with 1 if an evaluation failed or an answer was judged twice.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MODELS = ("honest", "cheating", "malformed", "endless")
SCORES = ("AS", "reward", "correct", "correct_fp64", "integrity", "attempts", "turns")
KILLED_AFTER = 8  # judgings
MEMORY = r"\1 static int calls; if (++calls > 3) return;"


def main() -> int:
    """Evaluate each model, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--tasks", default="lite")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--model", choices=MODELS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.model:
        return evaluate(args)
    args.folder.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in MODELS:
        command = [sys.executable, __file__, str(args.folder), f"--tasks={args.tasks}", f"--turns={args.turns}"]
        begin = time.monotonic()
        if name == "honest":
            first = subprocess.Popen([*command, "--model", name], start_new_session=True)
            kill_after(first, args.folder, KILLED_AFTER)
        process = subprocess.run([*command, "--model", name], check=False)
        failed = failed or process.returncode != 0
        print(f"{name}: exit code {process.returncode}, {time.monotonic() - begin:.0f} s", flush=True)
    return 1 if report(args.folder) or failed else 0


def kill_after(process: subprocess.Popen[bytes], folder: Path, count: int) -> None:
    """Kill an evaluation once so many answers were judged."""
    while len(judgings(folder)) < count and process.poll() is None:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    print(f"killed after {len(judgings(folder))} judgings", flush=True)


def evaluate(args: argparse.Namespace) -> int:
    """Run `passbench agent` with a scripted model, and note each judging."""
    from pytest_passbench.agents.shared_judge import SharedJudge
    from pytest_passbench.commands.main import main as passbench
    from shared.scripted_api import register

    register(next_call)
    judge = SharedJudge.judge

    def noted(self: SharedJudge, files: Any, task: Any, is_awaited: Any) -> Any:
        judging = judge(self, files, task, is_awaited)
        line = {"model": args.model, "task": Path(task).stem, "files": sorted(files.items())}
        with (args.folder / "judgings.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        return judging

    SharedJudge.judge = noted  # type: ignore[method-assign]
    command = ["agent", f"--model=scripted/{args.model}", f"--tasks={args.tasks}", f"--turns={args.turns}"]
    return int(passbench([*command, f"--out={args.folder / 'logs'}"]))


async def next_call(name: str, turn: int, messages: Sequence[Any]) -> tuple[str, dict[str, Any]] | None:
    """Return the call that a model makes at a turn."""
    judged: tuple[tuple[str, dict[str, Any]], ...] = ("judge", {}), ("submit", {"answer": "done"})
    if name == "malformed":
        return (("no_such_tool", {"x": 1}), ("write_file", {"nme": "a.py"}), None)[min(turn, 2)]
    if name == "endless":
        return judged[0]
    if name == "honest":
        return (("new_pass", {}), *judged)[min(turn, 2)]
    return (("write_file", cheat("\n".join(message.text for message in messages))), *judged)[min(turn, 2)]


def cheat(texts: str) -> dict[str, str]:
    """Return the generated pass of the task that a prompt names, with a kernel that remembers its calls."""
    from pytest_passbench.core.errors import UserError
    from pytest_passbench.first_pass.write import draft
    from pytest_passbench.suite import find

    task = re.search(r"The task (\S+):", texts)
    assert task
    try:
        name, text = next(iter(draft(find.single(task[1]).load()).files.items()))
    except UserError:  # no kernel is generated for the task
        name, text = "empty.py", ""
    return {"path": name, "text": re.sub(r'(extern "C" void [^{]*\{)', MEMORY, text)}


def judgings(folder: Path) -> list[dict[str, Any]]:
    """Return the judgings that were noted."""
    path = folder / "judgings.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def report(folder: Path) -> int:
    """Print each model's samples, judgings and scores. Return how often an answer was judged again."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    noted = judgings(folder)
    keys = Counter((row["model"], row["task"], json.dumps(row["files"])) for row in noted)
    again = sum(count - 1 for count in keys.values())
    print(f"{len(noted)} judgings, of which {again} were of an answer judged before")
    for info in list_eval_logs(str(folder / "logs")):
        log = read_eval_log(info)
        values = [score.value for sample in log.samples or [] for score in (sample.scores or {}).values()]
        means = {name: round(sum(value[name] for value in values) / max(len(values), 1), 3) for name in SCORES}
        limits = Counter(sample.limit.type for sample in log.samples or [] if sample.limit)
        print(f"{log.eval.model}: {log.status}, {len(values)} samples, means {means}, limits {dict(limits)}")
    return again


if __name__ == "__main__":
    sys.exit(main())
