"""The words of a run: the header, the line for each task, the summary at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_passbench.core.escape import line
from pytest_passbench.core.plurals import counted
from pytest_passbench.core.record import Record
from pytest_passbench.core.run import Run
from pytest_passbench.core.seed import commitment
from pytest_passbench.plugin import ci, nodeid
from pytest_passbench.plugin.live import outcome, spell
from pytest_passbench.plugin.select import cost, read
from pytest_passbench.plugin.state import State
from pytest_passbench.report import terminal
from pytest_passbench.run import journal
from pytest_passbench.run.forecast import forecast_line
from pytest_passbench.run.stored import warnings
from pytest_passbench.suite import published
from pytest_passbench.timing.looks import FIRST_LOOK

TRUSTED = "trusted: nothing is scored"
MAX_OVERRUN = 1.1  # times the budget, which does not cover the start of the sandboxes
MAX_STRAYS = 3  # folders for no known task that are named


def header(state: State) -> list[str]:
    """Return what a run prints before it starts: what is judged, with which settings, on which machine."""
    plan, settings, environment = state.plan, state.settings, state.ledger.environment
    cpu = environment.get("cpu") if settings.device == "cpu" else None
    parts = [
        f"passbench: device: {settings.device}" + (f" ({line(str(cpu), 60)})" if cpu else ""),
        f"threads: {settings.threads}, pipeline: {settings.pipeline}, policy: {settings.policy}",
        f"t: {settings.tolerance}",
        *([f"criterion: {settings.criterion}"] if settings.criterion != "ladder" else []),
        *([f"sandbox: {environment['sandbox']}"] if environment.get("sandbox") else []),
    ]
    rows = [", ".join(parts)]
    rows += [line(f"candidate: {c.name}, content {c.content_hash[:16]}, {c.passes}") for c in state.ledger.candidates]
    if plan.reference is not None:
        rows.append(line(f"against: {plan.reference.name}, content {plan.reference.content_hash[:16]}"))
    rows += _comparison(state)
    shard = f", shard {settings.shard[0]} of {settings.shard[1]}" if settings.shard else ""
    rows.append(state.selection.describe(settings) + shard)
    rows += [line(f"not judged: {error}", 300) for error in plan.strays[:MAX_STRAYS]]
    if len(plan.strays) > MAX_STRAYS:
        rows.append(f"not judged: {counted(len(plan.strays) - MAX_STRAYS, 'more folder')} for no known task")
    if settings.trusted:
        return [*rows, "trusted: the candidate runs in this process; nothing is scored"]
    if plan.collects_only:
        unfiltered = "only matching: not applied while collecting only; 'passbench explain DIR --all' lists the tasks"
        return [*rows, unfiltered] if settings.only_matching else rows
    if plan.earlier is not None:
        rows.append(line(str(plan.earlier), 1000))
    return [*rows, f"seed commitment: sha256 {commitment(plan.seed)}"]


def _comparison(state: State) -> list[str]:
    """Return the header's lines about the run to compare with."""
    stored = state.plan.stored
    if stored is None:
        return []
    text = f"compared with {stored.path}, at most {100 * stored.limit:g} % slower" + (", strict" * stored.strict)
    forecast = forecast_line(stored.run, getattr(state.config.option, "numprocesses", None) or 1, "The earlier run's")
    changed = [line(text, 1000) for text in warnings(stored.run, state.ledger.environment)]
    return [line(text, 1000), *filter(None, [forecast]), *changed]


def expect(state: State, costs: dict[str, int]) -> None:
    """Note the items that will be judged, and start the clock of the estimate."""
    state.progress.expect(costs)
    items = [nodeid.parse(text) for text in costs]
    state.ledger.tasks = list(dict.fromkeys(item.task for item in items))
    named = {item.candidate for item in items}
    state.ledger.candidates = [c for c in state.ledger.candidates if c.name in named] if items else []
    for item, count in zip(items, costs.values(), strict=True):
        state.ledger.expect(item.task, item.candidate, count)


def costs(state: State, ids: Iterable[str]) -> dict[str, int]:
    """Return the cost of each of our items by node id, for an xdist controller, which knows only the ids."""
    names = {candidate.name for candidate in state.ledger.candidates}
    items = {text: item for text in ids if (item := nodeid.parse(text)).candidate in names}
    return {text: _cost(state, item.path) for text, item in items.items()}


def _cost(state: State, node: str) -> int:
    if node in state.selection.costs:
        return state.selection.costs[node]
    path = state.config.rootpath / node
    return cost(read(path.parent if path.name in (published.LIST, published.MODEL) else path))


def status(state: State, report: pytest.TestReport, records: Sequence[Record]) -> tuple[str, str, str]:
    """Return what pytest prints for a judged task: category, text behind the file's name, and verbose word."""
    parts = [TRUSTED] if state.settings.trusted else []
    item = nodeid.parse(report.nodeid)
    total = state.ledger.count(item.task, item.candidate)
    parts += [outcome(records, total)] if records else []
    text = ", ".join(filter(None, [*parts, state.progress.remaining()]))
    letter = {"passed": ".", "skipped": "s"}.get(report.outcome, "F")
    # Under xdist no file names are printed between the dots: a line of its own says which task it was.
    place = f"\n{item.item} " if hasattr(report, "node") else ""
    room = _room(state.config, place)
    plain = ", ".join(parts)
    forms = (text, plain, plain.replace(" correct", ""), plain.rpartition(", ")[2])  # all keep the speed-up
    short = next((f" {form} " for form in forms if len(form) <= room), f"\n  {plain} ")
    return report.outcome, f"{place}{letter}{short}", f"{report.outcome.upper()} ({text})"


def _room(config: pytest.Config, place: str) -> int:
    """Return the columns (at least one) for a task's outcome behind ``place``.

    pytest prints the share of tests done at the right edge, and does so twice if the line ends within a column of it.
    """
    writer = config.get_terminal_writer()
    used = len(place) if place else writer.width_of_current_line
    return max(1, writer.fullwidth - used - len(". ") - len(" ") - len(" [100%]") - 2)


def show(state: State, reporter: Any) -> None:
    """Write the summary to the terminal."""
    assert state.report is not None
    reporter.section("passbench")
    reporter.write_line(terminal.summary(state.report, reporter._tw.fullwidth))
    if state.config.option.verbose > 0:
        reporter.write_line(durations(state.report.run))
    for text in closing(state):
        reporter.write_line(text)
    for verdict in state.verdicts:
        reporter.write_line(verdict.line, green=verdict.passed, red=not verdict.passed)
    commands, failed = ci.tell(state.report, state.written)
    for text in failed:
        reporter.write_line(line(text, 1000))
    state.commands.at_the_end = commands


def closing(state: State) -> list[str]:
    """Return the last lines: what is missing or took too long, where the results lie, and the seed."""
    from pytest_passbench.report import html

    missing = state.ledger.missing()
    rows = overdrawn(state.settings.budget, state.progress.spent())
    if state.unread:
        rows.append(line(f"faulty tasks: {', '.join(state.unread)}. No score has them.", 1000))
    if state.settings.only_matching and state.left_out is None:
        rows.append("left out: the tasks that no pass matches. No score has them (only matching).")
    elif state.left_out:
        rows.append(
            f"left out: {counted(state.left_out, 'task')} that no pass matches. No score has them "
            f"(--passbench-only-matching; finding them took {state.matching_seconds:.1f} s)."
        )
    if missing:
        names = ", ".join(map(_lacking, missing[:5]))
        more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
        rows.append(line(f"not judged: {names}{more}", 1000))
    if state.fault:
        rows.append(line(state.fault, 1000))
    if state.written is not None:
        files = ("results.json", "results.md", html.NAME)
        rows += [f"results: {_short(state.written / name, state)}" for name in files]
    if state.folder is not None and any(state.folder.glob(journal.PATTERN)):
        rows.append(f"to go on: pytest --passbench-resume={_short(state.folder, state)}")
    return [*rows, f"seed: {state.ledger.seed.hex()}"]


def _lacking(item: tuple[str, str, int, int]) -> str:
    task, candidate, judged, count = item
    return f"{task} [{candidate}]" + (f" ({count - judged} of {count} subgraphs)" if judged else "")


def overdrawn(budget: float | None, spent: float) -> list[str]:
    """Return a line about a run that took longer than its budget in seconds; no line if it was about as long."""
    if budget is None or spent < MAX_OVERRUN * budget:
        return []
    why = f"starting up comes on top, and every subgraph gets {FIRST_LOOK} short pairs at least"
    return [f"took {spell(spent)}, more than the budget of {spell(budget)}: {why}"]


def _short(path: Path, state: State) -> str:
    base = state.config.invocation_params.dir
    return str(path.relative_to(base)) if path.is_relative_to(base) else str(path)


def durations(run: Run) -> str:
    """Return a line for each phase with its seconds, all subgraphs together, the longest first."""
    totals: dict[str, float] = {}
    for record in run.records:
        for phase, seconds in record.durations.items():
            totals[phase] = totals.get(phase, 0.0) + seconds
    rows = sorted(totals.items(), key=lambda item: -item[1])
    return "\n".join(["seconds by phase:", *(f"  {seconds:8.2f}  {phase}" for phase, seconds in rows)])
