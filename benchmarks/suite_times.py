"""Eager's times and the head-room of the suite's subgraphs, written into the task files.

    python benchmarks/suite_times.py --eager   eager anew by the judge's clock, on a quiet machine, then head-room
    python benchmarks/suite_times.py           head-room alone, from the times that the files have

Eager is judged against eager, as in any run. A subgraph that takes less than 5 us or more than 50 ms is named: the
suite should not have it. The machine's rates are measured first.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from engine import REPORTS, Case, Twins, cases, machine, write

from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.forge import headroom
from pytest_passbench.forge.eager_time import suits
from pytest_passbench.forge.probe import Probe
from pytest_passbench.suite.find import discover, installed_tasks
from pytest_passbench.suite.taskfile import write_task

FIELD = "eager_us"


def main() -> None:
    """Measure, write the task files anew, and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", default=installed_tasks(), help="default: the installed tasks")
    parser.add_argument("--eager", action="store_true", help="measure eager by the judge's clock first")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rates = headroom.measure()
    tasks = [ref.load() for ref in discover(args.path)]
    if args.eager:
        times = eager_times(cases(0.0, float("inf"), args.path))
        tasks = [timed(task, times) for task in tasks]
    tasks = [bounded(task, rates) for task in tasks]
    for task in tasks:
        write_task(task, task.path)
    suite = [task for task in tasks if "train" not in task.header.tags]
    summary = {
        "machine": machine(),
        "rates": dataclasses.asdict(rates),
        "tasks": len(suite),
        "tasks_with_a_possible_2x": sum(task.header.headroom >= 2 for task in suite),
        "headroom": {task.id: task.header.headroom for task in suite},
    }
    REPORTS.mkdir(parents=True, exist_ok=True)
    print(write("suite-times", summary))
    print({name: value for name, value in summary.items() if name not in ("machine", "headroom")})


def eager_times(chosen: list[Case]) -> dict[str, float]:
    """Return eager's microseconds of every case, by its name."""
    found = {}
    with Twins(Settings(pipeline="direct", audit="off")) as twins:
        for case in chosen:
            speed = twins.against(case)[-1].arm.speed
            if speed is None:
                print(f"{case.name}: not measured, keeps {case.eager_us} us")
                continue
            found[case.name] = speed.eager_us
            if not suits(speed.eager_us * 1e-6):
                print(f"{case.name}: {speed.eager_us:.1f} us is outside the suite's bounds")
    return found


def timed(task: Task, times: dict[str, float]) -> Task:
    """Return the task with these times in place of its own."""
    made = []
    for subgraph in task.subgraphs:
        time = times.get(f"{task.id}/{subgraph.id}", subgraph.meta.get(FIELD))
        meta = subgraph.meta if time is None else {**subgraph.meta, FIELD: round(time, 1)}
        made.append(dataclasses.replace(subgraph, meta=meta))
    return dataclasses.replace(task, subgraphs=tuple(made))


def bounded(task: Task, rates: headroom.Machine) -> Task:
    """Return the task with its head-room in the header."""
    ratios = [
        headroom.headroom(float(s.meta[FIELD]), headroom.work(Probe(task, s)), rates)
        for s in task.subgraphs
        if FIELD in s.meta
    ]
    ratio = headroom.of_task(ratios) if ratios else 0.0
    return dataclasses.replace(task, header=dataclasses.replace(task.header, headroom=ratio))


if __name__ == "__main__":
    main()
