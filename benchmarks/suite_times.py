"""Eager's times and the head-room of the suite's subgraphs, written into the task files.

    python benchmarks/suite_times.py --eager --minutes 30   eager by the judge's clock, on a quiet machine
    python benchmarks/suite_times.py                        write the times measured so far, and head-room

Eager is judged against eager, as in a run with ``--passbench-budget``. Each time is a line of
reports/benchmarks/suite-times.jsonl. So a run can be stopped, and goes on where it stopped. Remove the file to begin
anew. A subgraph without a line keeps the time of its task file. One that takes less than 5 us or more than 50 ms is
printed: the suite should not have it. The machine's rates, for the head-room, are measured when files are written.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path

import torch
from engine import Case, Store, Twins, cases, machine, write

from pytest_passbench.core.settings import Settings
from pytest_passbench.core.task import Task
from pytest_passbench.forge.probe import Probe, suits
from pytest_passbench.suite.find import discover, installed_tasks
from pytest_passbench.suite.taskfile import write_task
from shared import headroom

FIELD = "eager_us"


def main() -> None:
    """Measure, or write the task files anew and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path, nargs="?", default=installed_tasks(), help="default: the installed tasks")
    parser.add_argument("--eager", action="store_true", help="measure eager by the judge's clock, and write no task")
    parser.add_argument("--minutes", type=float, default=30.0, metavar="N", help="for all subgraphs without a time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    store = Store("suite-times")
    if args.eager:
        measure(cases(0.0, float("inf"), args.path), store, args.minutes)
    else:
        fill(args.path, store)


def measure(chosen: list[Case], store: Store, minutes: float) -> None:
    """Measure and store eager's microseconds for every case that has no line yet."""
    done = {session["case"] for session in store.sessions()}
    left = [case for case in chosen if case.name not in done]
    with Twins(Settings(pipeline="direct", audit="off", budget=60 * minutes)) as twins:
        twins.expected = len(left)
        for case in left:
            load = os.getloadavg()[0]
            speed = twins.against(case)[-1].arm.speed
            if speed is None:
                print(f"{case.name}: not measured")
                continue
            store.add({"case": case.name, FIELD: speed.eager_us, "load": load})
            if not suits(speed.eager_us * 1e-6):
                print(f"{case.name}: {speed.eager_us:.1f} us is outside the suite's bounds")


def fill(path: Path, store: Store) -> None:
    """Write the times and the head-room into the task files, and a summary."""
    rates = headroom.measure()
    times = {session["case"]: session[FIELD] for session in store.sessions()}
    tasks = [bounded(timed(ref.load(), times), rates) for ref in discover(path)]
    for task in tasks:
        write_task(task, task.path)
    suite = [task for task in tasks if "train" not in task.header.tags]
    names = {f"{task.id}/{subgraph.id}" for task in tasks for subgraph in task.subgraphs}
    summary = {
        "machine": machine(),
        "rates": dataclasses.asdict(rates),
        "tasks": len(suite),
        "tasks_with_a_possible_2x": sum(task.header.headroom >= 2 for task in suite),
        "subgraphs": len(names),
        "times_by_the_judge": len(names & times.keys()),
        "headroom": {task.id: task.header.headroom for task in suite},
    }
    print(write("suite-times", summary))
    print({name: value for name, value in summary.items() if name not in ("machine", "headroom")})


def timed(task: Task, times: dict[str, float]) -> Task:
    """Return the task with these times in place of its own."""
    made = []
    for subgraph in task.subgraphs:
        found = times.get(f"{task.id}/{subgraph.id}", subgraph.meta.get(FIELD))
        meta = subgraph.meta if found is None else {**subgraph.meta, FIELD: round(found, 1)}
        made.append(dataclasses.replace(subgraph, meta=meta))
    return dataclasses.replace(task, subgraphs=tuple(made))


def bounded(task: Task, rates: headroom.PeakRates) -> Task:
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
